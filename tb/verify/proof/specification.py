"""Specifications: a block with free inputs, assumptions about them, checks and covers."""

import contextlib
import sys
from dataclasses import dataclass
from types import FunctionType

from amaranth.back import rtlil
from amaranth.hdl import Cat, ClockDomain, Fragment, Module, Mux, Signal, Value
from amaranth.lib import wiring

KINDS = ("unbounded", "together", "induction", "bounded", "cover")
TOP = "spec"
FIRST, BEFORE, STEP = "first_cycle", "held_before", "step_broken"     # names of signals, see Spec
# Cycles by which a cover must precede the bound of its specification: an event reaches the registers one cycle later,
# and checks that observe the read port of a memory or an output register one more cycle later.
MARGIN = 2
PARTS = (type, FunctionType)    # kinds of parts that can be replaced
FREE_COVERS = 30    # cycles for covers, and for faults of faulty copies, if the checks have no bound


@dataclass
class Property:
    """Output of a specification: ``bad`` must never be 1; a cover must become 1."""

    name: str
    kind: str = "bounded"
    bound: int | None = None    # checked cycles (bounded, cover)
    seconds: int = 100          # time limit
    simplify: str = "&dc2"      # ABC's simplification of the graph before a bounded check
    given: tuple = ()           # checks that hold for at least as many cycles, assumed in the runs that are checked


class Spec(wiring.Component):
    """Block with free inputs, assumptions, checks and covers. Subclasses implement :meth:`specify`.

    A property counts only while every assumption has held since the start. The clock domain has no reset: the run
    starts in the registers' initial state, except those named by :meth:`start_anywhere`. Faulty copies have another
    class ``block``; ``replaced`` maps classes of parts of the block, or functions that add parts, to replacements.
    """

    name = None
    block = None
    proof = {}          # kind, bound and seconds of every check that states none
    simplify = Property.simplify
    alone = False       # true: no check assumes another one

    def __init__(self, block=None, replaced=()):
        super().__init__({})
        self.block = block or type(self).block
        self.replaced = dict(replaced)

    def specify(self, m):
        """Add the block, the assumptions and the properties to ``m``."""
        raise NotImplementedError

    def free(self, shape, name):
        """Return a signal that may take any value in every cycle."""
        signal = Signal(shape, name=f"any_{name}")
        self._inputs.append(Value.cast(signal))
        return signal

    def constant(self, m, shape, name):
        """Return a signal that may take any value, the same in all cycles."""
        chosen, kept = self.free(shape, name), Signal(shape, name=f"kept_{name}")
        value = Signal(shape, name=name)
        m.d.comb += Value.cast(value).eq(Mux(self._first, Value.cast(chosen), Value.cast(kept)))
        m.d.sync += Value.cast(kept).eq(Value.cast(value))
        return value

    def free_members(self, component, *driven):
        """Let inputs of a component take any value, except those (or the arrays and streams) that are ``driven``."""
        for path, member, value in component.signature.flatten(component):
            name = "__".join(map(str, path))
            if member.flow == wiring.In and not any(name == d or name.startswith(f"{d}__") for d in driven):
                if isinstance(value := Value.cast(value), Signal):
                    self._inputs.append(value)

    def inside(self, path, shape):
        """Return the value of a wire inside the block; ``path`` is its name in the waves, ``dut.fetches.valid``.

        A word of a memory is ``table.memory[0]``.
        """
        signal = Signal(shape, name=f"inside_{len(self.probes)}")
        self.probes.append(path)
        self._inputs.append(Value.cast(signal))
        return signal

    def start_anywhere(self, *paths):
        """Let registers and memories inside the block, by name, start with any value."""
        self.anywhere.extend(paths)

    def assume(self, condition):
        """Restrict the proof to runs in which ``condition`` is true in every cycle."""
        self._assumed.append(condition)

    def assume_first(self, condition):
        """Restrict the proof to runs in whose first cycle ``condition`` is true."""
        self._assumed.append(~self._first | Value.cast(condition).any())
        self._at_first.add(len(self._assumed) - 1)

    def check(self, name, condition, *, given=(), **proof):
        """Check that ``condition`` is true in every cycle, or each of a list of conditions, one by one in an induction.

        ``proof`` has kind, bound and seconds, if they differ from those of the specification. A bounded check may
        assume earlier checks, whose names are ``given``: these are proven separately, up to a bound that is no less. A
        faulty copy must violate the check without this assumption.
        """
        prop = Property(name, **(proof or self.proof), simplify=self.simplify, given=tuple(given))
        assert prop.kind in KINDS
        assert (prop.bound is None) == (prop.kind != "bounded")
        earlier = {p.name: p for p, _ in self._properties if p.kind == "bounded"}
        assert all(earlier[one].bound >= prop.bound for one in given)
        several = isinstance(condition, list)
        parts = [~Value.cast(part).any() for part in (condition if several else [condition])]
        if prop.kind == "induction":
            self._parts += parts
        self._properties.append((prop, Cat(parts).any() if several else parts[0]))

    def cover(self, name, condition):
        """Cover ``condition``: it is true in some run, :data:`MARGIN` cycles or more before the bound."""
        self._properties.append((Property(name, "cover", None, 60, self.simplify), Value.cast(condition).any()))

    def cycles(self, m, condition, most):
        """Return the number of cycles in a row, at most ``most``, in which ``condition`` was true until now."""
        count = Signal(range(most + 1), name="cycles")
        with m.If(condition):
            m.d.sync += count.eq(count + (count != most))
        with m.Else():
            m.d.sync += count.eq(0)
        return count

    def once(self, m, condition):
        """Return a signal that is true in all cycles after one in which ``condition`` was true."""
        happened = Signal(name="happened")
        with m.If(condition):
            m.d.sync += happened.eq(1)
        return happened

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = self._domain = ClockDomain("sync", reset_less=True)
        self._inputs, self._assumed, self._properties, self.probes, self.anywhere = [], [], [], [], []
        self._parts = []            # conditions that are proven by induction
        self._at_first = set()      # indices of the assumptions about the first cycle alone
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
            self._outputs.append(out)
        if any(p.kind == "induction" for p, _ in self._properties):
            self._outputs.append(self._step(m))
        return m

    def _step(self, m):
        """Return an output with a bit per part of a check: 1 if the part fails a cycle after all of them held.

        Runs start in any state, except that :data:`BEFORE` starts as 0 and :data:`FIRST` as 1.
        """
        bad, faulty = Signal(len(self._parts)), Signal(len(self._parts), name=STEP)
        allowed, before = Signal(), Signal(name=BEFORE)
        self._first.name = FIRST
        always = (a for k, a in enumerate(self._assumed) if k not in self._at_first)
        m.d.comb += [allowed.eq(Cat(Value.cast(a).any() for a in always).all()),
                     bad.eq(Cat(self._parts)), faulty.eq(Mux(before & allowed, bad, 0))]
        m.d.sync += before.eq(allowed & ~bad.any())
        return faulty

    def properties(self):
        """Return the properties, in output order."""
        self._fragment()
        return [p for p, _ in self._properties]

    def convert(self):
        """Return the RTLIL, and the properties in output order."""
        fragment = self._fragment()
        ports = [self._domain.clk, *self._inputs, *self._outputs]
        return rtlil.convert(fragment, name=TOP, emit_src=False, ports=ports), [p for p, _ in self._properties]

    def _fragment(self):
        with _standing_in(self.replaced, self.block):
            return Fragment.get(self, None)


def bound_of(properties):
    """Return the number of cycles that all checks cover; None if all of them hold in runs of any length."""
    return min((p.bound for p in properties if p.kind == "bounded"), default=None)


def covers_within(properties):
    """Return the last cycle in which a cover of these properties may be reached."""
    bound = bound_of(properties)
    return FREE_COVERS if bound is None else bound - MARGIN


@contextlib.contextmanager
def _standing_in(replaced, block):
    """Replace classes or functions by others in every module of the project, for the duration of the context.

    The block's namespace is included: a faulty copy has a module that is not imported.
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
    """Return the global names of a part of a block."""
    made = part if isinstance(part, FunctionType) else getattr(part, "elaborate", part.__init__)
    return made.__globals__
