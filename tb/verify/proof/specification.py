"""What a specification is: a block with free inputs, what is assumed of them, and what is checked and covered."""

import contextlib
import sys
from dataclasses import dataclass
from types import FunctionType

from amaranth.back import rtlil
from amaranth.hdl import Assert, Cat, ClockDomain, Fragment, Module, Mux, Signal, Value
from amaranth.lib import wiring

KINDS = ("unbounded", "together", "induction", "bounded", "cover")
TOP = "spec"
FIRST, BEFORE, STEP = "first_cycle", "held_before", "step_broken"     # names of signals, see Spec
# Cycles that a cover must lie below the bound of its specification: what happens at an event is in the registers one
# cycle later, and behind the read port of a memory or an output register, where checks look, one more.
MARGIN = 2
PARTS = (type, FunctionType)    # what a block is put together from
FREE_COVERS = 30    # cycles in which covers, and faults of broken copies, are looked for where a check has no bound


@dataclass
class Property:
    """One output of a specification: ``bad`` must never be 1; a cover must become 1."""

    name: str
    kind: str
    bound: int | None    # cycles looked at (bounded, cover)
    seconds: int         # limit
    simplify: str = "&dc2"      # what ABC does with the graph before it looks at runs up to a bound
    given: tuple = ()           # checks that hold as far, in the runs that are looked at


class Spec(wiring.Component):
    """A block with free inputs, assumptions, checks and covers. Subclasses write :meth:`specify`.

    A property counts only while every assumption has held since the start. The clock domain has no reset: the run
    starts in the registers' initial state, except those named by :meth:`start_anywhere`.

    Parameters
    ----------
    block : type, optional
        Class of the block, for its broken copies.
    replaced : dict of type to type
        Classes of parts of the block, or functions that add some, and what stands in their place: broken copies, too.
    """

    name = None
    block = None
    simplify = Property.simplify
    alone = False       # no check takes another one as true

    def __init__(self, block=None, replaced=()):
        super().__init__({})
        self.block = block or type(self).block
        self.replaced = dict(replaced)

    def specify(self, m):
        """Add the block, the assumptions and the properties to ``m``."""
        raise NotImplementedError

    def free(self, shape, name):
        """A signal that may take any value in every cycle."""
        signal = Signal(shape, name=f"any_{name}")
        self._inputs.append(Value.cast(signal))
        return signal

    def constant(self, m, shape, name):
        """A signal that may take any value, the same in all cycles."""
        chosen, kept = self.free(shape, name), Signal(shape, name=f"kept_{name}")
        value = Signal(shape, name=name)
        m.d.comb += Value.cast(value).eq(Mux(self._first, Value.cast(chosen), Value.cast(kept)))
        m.d.sync += Value.cast(kept).eq(Value.cast(value))
        return value

    def free_members(self, component, *driven):
        """Inputs of a component may take any value, except those (or the arrays and streams) that are ``driven``."""
        for path, member, value in component.signature.flatten(component):
            name = "__".join(map(str, path))
            if member.flow == wiring.In and not any(name == d or name.startswith(f"{d}__") for d in driven):
                if isinstance(value := Value.cast(value), Signal):
                    self._inputs.append(value)

    def inside(self, path, shape):
        """What a wire inside the block shows: ``path`` names it as in the waves, ``dut.fetches.valid``.

        A word of a memory is ``table.memory[0]``.
        """
        signal = Signal(shape, name=f"inside_{len(self.probes)}")
        self.probes.append(path)
        self._inputs.append(Value.cast(signal))
        return signal

    def start_anywhere(self, *paths):
        """Registers and memories inside the block, by name, that may have any value at the start."""
        self.anywhere.extend(paths)

    def assume(self, condition):
        """Only runs in which ``condition`` is true in every cycle are looked at."""
        self._assumed.append(condition)

    def assume_first(self, condition):
        """Only runs in whose first cycle ``condition`` is true are looked at."""
        self._assumed.append(~self._first | Value.cast(condition).any())
        self._at_first.add(len(self._assumed) - 1)

    def check(self, name, condition, *, kind="bounded", bound=None, seconds=100, given=()):
        """``condition`` is true in every cycle, or every one of several: an induction looks at them one by one.

        A bounded check may take the checks before it whose names are ``given`` as true: they are proven themselves, up
        to a bound that is no less. A broken copy has to violate it without that.
        """
        assert kind in KINDS
        assert (bound is None) == (kind != "bounded")
        earlier = {p.name: p for p, _ in self._properties if p.kind == "bounded"}
        assert all(earlier[one].bound >= bound for one in given)
        several = isinstance(condition, list)
        parts = [~Value.cast(part).any() for part in (condition if several else [condition])]
        if kind == "induction":
            self._parts += parts
        bad = Cat(parts).any() if several else parts[0]
        self._properties.append((Property(name, kind, bound, seconds, self.simplify, tuple(given)), bad))

    def cover(self, name, condition, *, seconds=60):
        """``condition`` becomes true in some run: early enough before the bound of the checks (:data:`MARGIN`)."""
        self._properties.append((Property(name, "cover", None, seconds, self.simplify), Value.cast(condition).any()))

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = self._domain = ClockDomain("sync", reset_less=True)
        self._inputs, self._assumed, self._properties, self.probes, self.anywhere = [], [], [], [], []
        self._parts = []            # of what is proven by induction
        self._at_first = set()      # which of the assumptions speak of the first cycle alone
        self._first, held = Signal(init=1), Signal(init=1)
        m.d.sync += self._first.eq(0)
        self.specify(m)
        holds = Signal(name="assumptions_hold")
        m.d.comb += holds.eq(held & Cat(Value.cast(a).any() for a in self._assumed).all())
        m.d.sync += held.eq(holds)
        self._outputs = []
        bad = {prop.name: condition for prop, condition in self._properties}
        limit = covers_within(p for p, _ in self._properties)
        for k, (prop, condition) in enumerate(self._properties):
            out = Signal(name=f"property_{k}")
            m.d.comb += out.eq(holds & condition)
            if prop.given and not self.alone:
                known, given = Signal(name=f"given_{k}"), Signal(init=1, name=f"were_given_{k}")
                m.d.comb += [known.eq(given & ~Cat(bad[name] for name in prop.given).any()),
                             out.eq(holds & condition & known)]
                m.d.sync += given.eq(known)
            if prop.kind == "cover":
                prop.bound = limit
            else:
                m.d.comb += Assert(~out)
            self._outputs.append(out)
        if any(p.kind == "induction" for p, _ in self._properties):
            self._outputs.append(self._step(m))
        return m

    def _step(self, m):
        """An output, a bit for every part of a check, that is 1 where it fails a cycle after all of them held.

        Runs that start in any state are looked at, but :data:`BEFORE` starts as 0 and :data:`FIRST` as 1.
        """
        bad, broken = Signal(len(self._parts)), Signal(len(self._parts), name=STEP)
        allowed, before = Signal(), Signal(name=BEFORE)
        self._first.name = FIRST
        always = (a for k, a in enumerate(self._assumed) if k not in self._at_first)
        m.d.comb += [allowed.eq(Cat(Value.cast(a).any() for a in always).all()),
                     bad.eq(Cat(self._parts)), broken.eq(Mux(before & allowed, bad, 0))]
        m.d.sync += before.eq(allowed & ~bad.any())
        return broken

    def properties(self):
        """Its properties, in output order."""
        self._fragment()
        return [p for p, _ in self._properties]

    def convert(self):
        """Its RTLIL, and its properties in output order."""
        fragment = self._fragment()
        ports = [self._domain.clk, *self._inputs, *self._outputs]
        return rtlil.convert(fragment, name=TOP, emit_src=False, ports=ports), [p for p, _ in self._properties]

    def _fragment(self):
        with _standing_in(self.replaced, self.block):
            return Fragment.get(self, None)


def bound_of(properties):
    """Cycles that all checks of a specification look at; None if each of them holds in runs of any length."""
    return min((p.bound for p in properties if p.kind == "bounded"), default=None)


def covers_within(properties):
    """The last cycle in which a cover of these properties may be reached."""
    bound = bound_of(properties)
    return FREE_COVERS if bound is None else bound - MARGIN


@contextlib.contextmanager
def _standing_in(replaced, block):
    """While this is entered, every module of the project has other classes, or functions, in place of some.

    So has the block, which may be a broken copy whose module is not among those imported.
    """
    spaces = [vars(module) for name, module in list(sys.modules.items()) if name.startswith("weft.")]
    spaces += [_space(part) for part in (block, *replaced.values()) if isinstance(part, PARTS)]
    undo = []
    try:
        for space in spaces:
            for name, value in list(space.items()):
                if isinstance(value, PARTS) and value in replaced:
                    undo.append((space, name, value))
                    space[name] = replaced[value]
        yield
    finally:
        for space, name, value in reversed(undo):
            space[name] = value


def _space(part):
    """The names that a part of a block knows."""
    made = part if isinstance(part, FunctionType) else getattr(part, "elaborate", part.__init__)
    return made.__globals__
