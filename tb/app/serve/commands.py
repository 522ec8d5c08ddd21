"""Commands of `weft link` and steps of a schedule: a dataclass of settings each, read from a table (JSON or TOML)."""

import json
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from weft.driver.serve.control import CannotAsk, exchange
from weft.model.faults import COUNT_MAX, FaultRule
from weft.model.settings import BadSetting, BadSettings, Setting, check, fields
from weft.tb.app.serve.settings import SCHEDULE, LinkSettings
from weft.tb.sim.flow.failure import Failure

STEPS_MAX, DAY_MS, LIMIT_S = 1000, 86_400_000, 60
SOURCE = Setting("Host that sends the frames.", metavar="HOST", default_text="all hosts")


@dataclass(frozen=True, kw_only=True)
class Show:
    """No settings."""


@dataclass(frozen=True, kw_only=True)
class LinkOf:
    """Link on which a host sends, or those of all."""

    source: Annotated[str | None, SOURCE] = None


@dataclass(frozen=True, kw_only=True)
class LinkChange(LinkSettings, LinkOf):
    """New impairments of these links. Raises BadSetting."""


@dataclass(frozen=True, kw_only=True)
class Clear:
    """Rule to remove, or everything. Raises BadSetting."""

    rule: Annotated[int | None, Setting("Number of the only rule to remove.", least=1, most=COUNT_MAX)] = None
    seed: Annotated[str | None, Setting("Seed of every random choice of the links from now on; any text.",
                                        metavar="TEXT", default_text="the same", encoded=True)] = None

    def __post_init__(self) -> None:
        check(self)
        if self.rule is not None and self.seed is not None:
            raise BadSetting("seed", self.seed, "it cannot be combined with rule")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Contents of a file."""

    faults: Annotated[str, SCHEDULE] = ""


COMMANDS: dict[str, type[Any]] = {"show": Show, "set": LinkChange, "cut": LinkOf, "restore": LinkOf,
                                  "rule": FaultRule, "clear": Clear, "schedule": Schedule}
IN_STEPS = ("set", "cut", "restore", "rule", "clear")


@dataclass(frozen=True, kw_only=True)
class Step:
    """Command, and its start: a time after the first frame, a number of frames, or at once. Raises BadSetting."""

    do: str
    command: Any
    at_ms: Annotated[float | None, Setting("Start.", unit="milliseconds", least=0, most=DAY_MS)] = None
    frames: Annotated[int | None, Setting("Frames that all hosts have sent.", least=0, most=COUNT_MAX)] = None

    def __post_init__(self) -> None:
        check(self)
        if self.at_ms is not None and self.frames is not None:
            raise BadSetting("frames", self.frames, "it cannot be combined with at_ms")


def given(settings: object) -> dict[str, Any]:
    """Return the settings that differ from their defaults, by name."""
    return {name: value for name, field in fields(type(settings)).items()
            if (value := getattr(settings, name)) != field.default}


def command_of(table: object, hosts: Collection[str], names: Collection[str] = COMMANDS,
               others: Collection[str] = ()) -> tuple[str, Any]:
    """Return name and settings of a command ``{"do": name, setting: value, ...}``, one of ``names``.

    Keys in ``others`` are ignored. Raises BadSettings, with a sentence.
    """
    if not isinstance(table, dict) or not isinstance(do := table.get("do"), str) or do not in names:
        raise BadSettings(f"`do` must be one of {', '.join(names)}")
    known = fields(COMMANDS[do])
    values = {name: value for name, value in table.items() if name != "do" and name not in others}
    if extra := [name for name in values if name not in known]:
        raise BadSettings(f"{extra[0]!r} is not a setting of {do}; choose among {', '.join((*known, *others))}")
    command = COMMANDS[do](**values)
    for name in {"source", "destination"} & set(known):
        if (host := getattr(command, name)) is not None and host not in list(hosts):
            raise BadSetting(name, host, f"choose one of {', '.join(hosts)}")
    return do, command


def schedule_of(text: str, hosts: Collection[str]) -> tuple[str | None, list[Step]]:
    """Return the seed, if any, and the steps of a schedule. Raises BadSettings, with a sentence."""
    try:
        found = tomllib.loads(str(text))
    except (ValueError, RecursionError) as error:
        raise BadSettings(f"the schedule is not TOML: {error}") from None
    tables, seed = found.pop("step", []), found.pop("seed", None)
    if found:
        raise BadSettings(f"{next(iter(found))!r} is not a part of a schedule, which has a seed and tables [[step]]")
    if not isinstance(tables, list) or len(tables) > STEPS_MAX:
        raise BadSettings(f"a schedule has up to {STEPS_MAX} tables [[step]]")
    steps, starts = [], fields(Step)
    for number, table in enumerate(tables, 1):
        try:
            do, command = command_of(table, hosts, IN_STEPS, starts)
            steps.append(Step(do=do, command=command, **{name: table[name] for name in starts if name in table}))
        except BadSettings as problem:
            raise BadSettings(f"step {number} of the schedule: {problem}") from None
    return None if seed is None else str(seed), steps


def ask(folder: Path, command: dict[str, Any]) -> dict[str, Any]:
    """Send a command to the daemon below ``folder``; return its response. Raises Failure, or BadSettings."""
    try:
        data = exchange(folder, json.dumps(command, ensure_ascii=False).encode(), LIMIT_S)
    except CannotAsk as problem:
        raise Failure(str(problem)) from None
    response: dict[str, Any] = json.loads(data)
    if "setting" in response:
        raise BadSetting(*response["setting"])
    if "problem" in response:
        raise BadSettings(response["problem"])
    return response
