"""Counter of outstanding memory writes in the hard block."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

COUNT_BITS = 16


class OutstandingWrites(wiring.Component):
    """Counts writes into the hard block, and their sequence numbers.

    A completion may pass a posted write inside the hard block; so a register read is only known to be ordered after a
    write when the write's sequence number came back.

    Members
    -------
    sent : In(1)
        Strobe: a write goes to the hard block.
    left : In(2)
        For each of the two sequence numbers that the hard block may report in a cycle: it is a write's.
    gone : In(1)
        Nothing is in the hard block, whatever it reported.
    busy : Out(1)
        A write may be in the hard block, or the last one left it in the cycle before.
    """

    sent: In(1)
    left: In(2)
    gone: In(1)
    busy: Out(1)

    def elaborate(self, platform):
        m = Module()
        count = Signal(COUNT_BITS)
        step, change = Signal(signed(3)), Signal(signed(3))      # of the cycle before: `sent` is late
        m.d.comb += [self.busy.eq((count != 0) | (step != 0)), change.eq(self.sent - self.left[0] - self.left[1])]
        with m.If(self.gone):
            m.d.sync += [count.eq(0), step.eq(0)]
        with m.Else():
            m.d.sync += [count.eq(count + step), step.eq(change)]
        return m
