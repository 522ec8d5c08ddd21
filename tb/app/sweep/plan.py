"""Plan of a sweep: its file, with varied settings, fixed settings, and the picture.

The file is TOML. ``of`` is ``"wan"`` (default) for wide-area experiments with values of
:class:`~weft.model.wan.experiment.Experiment`, ``"fabric"`` for flows over a fabric with values of
:class:`~weft.model.fabric.experiment.FabricExperiment`, or ``"cards"`` for two cards with values of
:class:`~weft.tb.app.sweep.cards.CardPoint`. The tables are ``fixed`` (values), ``vary`` (lists of values; the points
are all combinations), and ``picture``: the names of ``x`` and ``y``, the setting ``line`` with a line for each of its
values, and the ``log`` axes.
"""

import itertools
import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.model.settings import BadSetting
from weft.tb.app.sweep.subject import SUBJECTS, WAN, Subject

POINTS_MAX = 100_000


class BadPlan(Exception):
    """Error in a sweep; the message is a sentence."""


@dataclass(frozen=True)
class Plan:
    """Definition of a sweep."""

    subject: Subject
    points: list[Any]           # objects of `subject.settings`: all combinations, in order
    varied: list[str]           # names of settings
    picture: dict[str, Any]     # x, y, line, log


def read(path: Path | None, options: Iterable[str], of: str | None = None) -> Plan:
    """Return the Plan of a TOML file and of options ``name=value`` or ``name=value,value``, which override it.

    ``of`` names the subject if the file does not.

    Raises
    ------
    BadPlan
    """
    found: dict[str, Any] = {}
    if path is not None:
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadPlan(f"{str(path)!r} is not a TOML file: {error}") from None
    if unknown := set(found) - {"of", "fixed", "vary", "picture"}:
        raise BadPlan(f"there is no table {sorted(unknown)[0]!r} in a sweep; they are fixed, vary and picture")
    for name in ("fixed", "vary", "picture"):
        if not isinstance(found.setdefault(name, {}), dict):
            raise BadPlan(f"{name} is {found[name]!r}, which is not a table")
    subject = _subject(found.get("of"), of)
    fixed, vary = found["fixed"], found["vary"]
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or name not in subject.fields:
            raise BadPlan(f"{option!r} is not a setting; write one as NAME=VALUE or NAME=VALUE,VALUE, NAME being one "
                          f"of {', '.join(subject.fields)}")
        try:
            values = [subject.fields[name].read(one) for one in text.split(",")]
        except BadSetting as error:
            raise BadPlan(str(error)) from None
        fixed.pop(name, None)
        vary.pop(name, None)
        if len(values) > 1:
            vary[name] = values
        else:
            fixed[name] = values[0]
    return _plan(subject, fixed, vary, found["picture"])


def _subject(planned: object, asked: str | None) -> Subject:
    name = planned or asked or WAN.name
    if not isinstance(name, str) or name not in SUBJECTS:
        raise BadPlan(f"a sweep of {name!r} is none; choose one of {', '.join(SUBJECTS)}")
    if asked and asked != name:
        raise BadPlan(f"the plan is a sweep of {name}, not of {asked}; leave --of out")
    return SUBJECTS[name]


def _plan(subject: Subject, fixed: dict[str, Any], vary: dict[str, Any], picture: dict[str, Any]) -> Plan:
    for name in (*fixed, *vary):
        if name not in subject.fields:
            raise BadPlan(f"{subject.article} has no {name!r}; it has {', '.join(subject.fields)}")
    for name, values in vary.items():
        if not isinstance(values, list) or not values:
            raise BadPlan(f"{name} varies over {values!r}, which is not a list of values")
    if (count := math.prod(map(len, vary.values()))) > POINTS_MAX:
        raise BadPlan(f"the sweep has {count:,} points, and may have {POINTS_MAX:,}")
    for axis in ("x", "y", "line"):
        if axis in picture and picture[axis] not in [*subject.fields, *subject.outcomes]:
            raise BadPlan(f"the picture's {axis} is {picture[axis]!r}, which is neither a setting nor a result")
    if not isinstance(picture.get("log", []), list | str):
        raise BadPlan(f"the picture's log is {picture['log']!r}, which is not a list of axes")
    points = []
    for values in itertools.product(*vary.values()):
        try:
            points.append(subject.settings(**fixed | dict(zip(vary, values, strict=True))))
        except (ValueError, TypeError) as error:
            raise BadPlan(str(error)) from None
    return Plan(subject, points, list(vary), picture)
