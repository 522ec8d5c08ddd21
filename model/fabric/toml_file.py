"""Fabric of a TOML file.

``hosts`` names all hosts, ``watched`` the two ends of the bottleneck; by default they are those of the first link. The
arrays of tables ``switch``, ``link``, ``flow`` and ``background`` have the fields of the classes in
:mod:`weft.model.fabric.description`.
"""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from ..settings import BadSettings
from .description import Background, Fabric, FabricLink, Flow, Switch

NAMES = {"name", "a", "b", "source", "destination"}
TABLES = {"switch": Switch, "link": FabricLink, "flow": Flow, "background": Background}


def read(path: Path) -> Fabric:
    """Return the fabric of a file.

    Raises
    ------
    BadSettings
        If the file is not a description of a fabric.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadSettings(f"{str(path)!r} is not a TOML file that can be read: {error}") from None
    if unknown := set(found) - {"hosts", "watched", *TABLES}:
        raise BadSettings(f"a fabric has no {sorted(unknown)[0]!r}; it has hosts, watched, {', '.join(TABLES)}")
    parts = {name: _tables(found.get(name, []), name, kind) for name, kind in TABLES.items()}
    if not (links := parts["link"]):
        raise BadSettings("a fabric needs links; write each as [[link]]")
    hosts = _names(found, "hosts")
    watched = _names(found, "watched") if "watched" in found else (links[0].a, links[0].b)
    if len(watched) != 2:
        raise BadSettings("watched must have the names of two nodes, from and to")
    return Fabric(hosts, parts["switch"], links, parts["flow"], (watched[0], watched[1]), parts["background"])


def _names(found: dict[str, Any], name: str) -> tuple[str, ...]:
    value = found.get(name)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadSettings(f"{name} is {value!r}; it must be a list of names")
    return tuple(value)


def _tables(found: object, name: str, kind: type[Any]) -> tuple[Any, ...]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise BadSettings(f"{name} is {found!r}; write it as [[{name}]]")
    known = {field.name for field in dataclasses.fields(kind)}
    made = []
    for one in found:
        if unknown := set(one) - known:
            raise BadSettings(f"a {name} has no {sorted(unknown)[0]!r}; it has {', '.join(sorted(known))}")
        for key in NAMES & set(one):
            if not isinstance(one[key], str):
                raise BadSettings(f"{key} of a {name} is {one[key]!r}; it must be a name")
        if "down_us" in one:
            one = one | {"down_us": _pairs(one["down_us"])}
        try:
            made.append(kind(**one))
        except TypeError as error:
            raise BadSettings(f"a {name} is wrong: {error}") from None
    return tuple(made)


def _pairs(found: object) -> tuple[Any, ...]:
    if not isinstance(found, list) or not all(
            isinstance(pair, list) and all(type(time) in (int, float) for time in pair) for pair in found):
        raise BadSettings(f"down_us is {found!r}; write pairs [down, up] of microseconds")
    return tuple(map(tuple, found))
