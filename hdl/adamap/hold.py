"""Keeps reports back until the packets they speak of were placed."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import BEAT_BITS, TICKET_WIDTH, Report
from ..part.stream import Fifo
from ..part.ticket import EXTENDED_TICKET_WIDTH, follow


class LongReport(data.Struct):
    """A report with an extended ticket."""

    entry: BEAT_BITS
    ticket: EXTENDED_TICKET_WIDTH


class ReportHold(wiring.Component):
    """Queue of reports; the first leaves once its ticket was placed.

    Tickets are extended before they wait, so a report may wait for any length: behind this block its 8-bit
    ticket says nothing any more and need not be looked at.

    Members
    -------
    i : In(stream.Signature(LongReport))
    o : Out(stream.Signature(Report))
    placed_ticket : In(8)
    placed : Out(40)
        The placed ticket, extended.
    idle : Out(1)
    """

    def __init__(self, *, depth=4):
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(LongReport)),
            "o": Out(stream.Signature(Report)),
            "placed_ticket": In(TICKET_WIDTH),
            "placed": Out(EXTENDED_TICKET_WIDTH),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = Fifo(LongReport, self.depth)
        behind = Signal(EXTENDED_TICKET_WIDTH)
        due = Signal()          # stays while the first report waits for its taker
        follow(m, self.placed, self.placed_ticket)
        m.d.comb += [
            behind.eq(self.placed - queue.o.p.ticket),
            self.o.valid.eq(queue.o.valid & (due | ~behind[-1])),
            self.o.p.entry.eq(queue.o.p.entry), self.o.p.ticket.eq(queue.o.p.ticket),
            queue.o.ready.eq(self.o.ready & self.o.valid),
            self.idle.eq(~queue.o.valid),
        ]
        m.d.sync += due.eq(self.o.valid & ~self.o.ready)
        m.d.comb += [queue.i.payload.eq(self.i.payload), queue.i.valid.eq(self.i.valid), self.i.ready.eq(queue.i.ready)]
        return m
