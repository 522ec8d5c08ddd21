"""Tells when everything received before a moment has been placed."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

COUNT_BITS = 16     # far more than packets fit into the receive path


class Drain(wiring.Component):
    """Counts packets into and out of the receive path.

    Members
    -------
    enter_stb, leave_stb : In(1)
        A packet comes into the path; a packet is placed. In the same order.
    request : In(1)
        A rising edge marks the moment. It may stay high until ``done``, or be a strobe.
    done : Out(1)
        Every packet that entered before the moment has left. Stays high while ``request`` does,
        and for one cycle at least.
    idle : Out(1)
        Every packet that entered has left.
    """

    def __init__(self):
        super().__init__({"enter_stb": In(1), "leave_stb": In(1), "request": In(1), "done": Out(1),
                          "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        entered, left, target = Signal(COUNT_BITS), Signal(COUNT_BITS), Signal(COUNT_BITS)
        request_q, pending = Signal(), Signal()
        missing = Signal(COUNT_BITS)    # packets before the target, as a signed number
        m.d.comb += [missing.eq(target - left), self.idle.eq(entered == left)]
        m.d.sync += [entered.eq(entered + self.enter_stb), left.eq(left + self.leave_stb), request_q.eq(self.request)]
        with m.If(self.request & ~request_q):
            m.d.sync += [pending.eq(1), target.eq(entered + self.enter_stb), self.done.eq(0)]
        with m.Elif(pending):
            m.d.sync += self.done.eq((missing == 0) | missing[-1])
            with m.If(self.done & ~self.request):
                m.d.sync += [pending.eq(0), self.done.eq(0)]
        return m
