"""A block and its specifications, small enough to test the engine with."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.tb.verify.proof.specification import MARGIN, Spec

LAST = 12


class Counter(wiring.Component):
    """Counts to 12, or further if it is faulty."""

    run: In(1)
    count: Out(8)

    def elaborate(self, platform):
        m = Module()
        with m.If(self.run & (self.count != LAST)):
            m.d.sync += self.count.eq(self.count + 1)
        return m


class CounterSpec(Spec):
    """A check, and a cover that is reached in cycle 12."""

    name = "test_counter"
    block, bound, late = Counter, LAST + MARGIN, False

    def specify(self, m):
        m.submodules.dut = dut = self.block()
        self.free_members(dut)
        if self.late:
            self.start_anywhere("dut.count")
            self.assume_first(self.inside("dut.count", 8) == 200)
        self.check("it never goes beyond 12", dut.count <= (220 if self.late else LAST), bound=self.bound)
        self.cover("it comes to its end", dut.count == (205 if self.late else LAST))


class HastyCounterSpec(CounterSpec):
    """The same, but the proof is too short to reach the end of the count."""

    bound = LAST + MARGIN - 1


class LateCounterSpec(CounterSpec):
    """The same from another initial state."""

    late = True


class GivenCounterSpec(CounterSpec):
    """The same with a check that assumes the other one."""

    name = "test_given"

    def specify(self, m):
        super().specify(m)
        count = self.inside("dut.count", 8)
        self.check("it never is 13", count != LAST + 1, bound=self.bound, given=["it never goes beyond 12"])


class Holder(wiring.Component):
    """A block with a counter as a submodule."""

    run: In(1)
    count: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.submodules.counter = counter = Counter()
        m.d.comb += [counter.run.eq(self.run), self.count.eq(counter.count)]
        return m


class HolderSpec(CounterSpec):
    """The same for the surrounding block."""

    name, block = "test_holder", Holder
