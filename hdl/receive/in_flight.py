"""Drain of the receive path: detects that all packets received before a request have been placed."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

COUNT_BITS = 16     # far more than the packets that fit into the receive path
ARRIVAL_TIMEOUT = 1 << 10  # limit in cycles for the arrival of a frame; the longest has 65 beats
TO_VERDICT = 16     # upper bound of the cycles from a frame's last beat to its decision


class InFlightCounter(wiring.Component):
    """Counts packets into and out of the receive path.

    A drain has two steps: first, every frame with a translation request at that time is decided, and becomes a
    packet of the path or is dropped; then every packet that entered until then leaves. A frame whose end does
    not come is dropped after ``ARRIVAL_TIMEOUT`` cycles.

    Members
    -------
    request_stb, outcome_stb : In(1)
        A translation was requested for a frame that is still arriving; such a frame was decided. In the same order.
        A frame enters with ``outcome_stb``, or later.
    give_up : Out(1)
        The frame that is arriving now must not become a packet.
    enter_stb, leave_stb : In(1)
        A packet enters the path; a packet is placed. In the same order.
    request : In(1)
        A rising edge requests a drain. It may stay high until ``done``, or be a strobe.
    done : Out(1)
        Every packet that entered before the request has left. Stays high while ``request`` does,
        and for one cycle at least.
    idle : Out(1)
        Every packet that entered has left.
    """

    def __init__(self):
        super().__init__({"request_stb": In(1), "outcome_stb": In(1), "give_up": Out(1), "enter_stb": In(1),
                          "leave_stb": In(1), "request": In(1), "done": Out(1), "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        entered, left, target = Signal(COUNT_BITS), Signal(COUNT_BITS), Signal(COUNT_BITS)
        # undecided frames; those of them at the time of the request
        requested, before = Signal(COUNT_BITS), Signal(COUNT_BITS)
        requested_next = Signal(COUNT_BITS)
        waiting, pending, timeout = Signal(), Signal(), Signal(range(ARRIVAL_TIMEOUT + TO_VERDICT + 1))
        decided = Signal()              # a cycle ago: `enter_stb` is late, and has been counted by now
        request_q = Signal()
        missing = Signal(COUNT_BITS)    # packets left before the target, signed
        m.d.comb += [missing.eq(target - left), self.idle.eq(entered == left)]
        m.d.comb += requested_next.eq(requested + self.request_stb - self.outcome_stb)
        m.d.sync += requested.eq(requested_next)
        m.d.sync += [entered.eq(entered + self.enter_stb), left.eq(left + self.leave_stb), request_q.eq(self.request)]
        with m.If(self.request & ~request_q):
            m.d.sync += [waiting.eq(1), pending.eq(0), self.done.eq(0)]
            m.d.sync += [before.eq(requested_next), timeout.eq(ARRIVAL_TIMEOUT + TO_VERDICT)]
        with m.Elif(waiting):
            m.d.comb += self.give_up.eq(timeout == TO_VERDICT)
            m.d.sync += [before.eq(before - self.outcome_stb), timeout.eq(timeout - 1)]
            with m.If((before == 0) | (timeout == 0)):
                m.d.sync += [waiting.eq(0), pending.eq(1), decided.eq(1)]
        with m.Elif(pending):
            m.d.sync += [decided.eq(0), self.done.eq(~decided & ((missing == 0) | missing[-1]))]
            with m.If(decided):
                m.d.sync += target.eq(entered)
            with m.If(self.done & ~self.request):
                m.d.sync += [pending.eq(0), self.done.eq(0)]
        return m
