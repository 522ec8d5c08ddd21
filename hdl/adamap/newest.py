"""The newest ticket of the headers that were matched."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..part.ticket import EXTENDED_TICKET_WIDTH


class Newest(wiring.Component):
    """A ticket not older than that of any header so far, nor than the placed one: what a retirement waits for.

    Members
    -------
    valid, ticket : In
        A header.
    placed : In
    o : Out
        With the header of this cycle.
    """

    def __init__(self):
        ticket = EXTENDED_TICKET_WIDTH
        super().__init__({"valid": In(1), "ticket": In(ticket), "placed": In(ticket), "o": Out(ticket)})

    def elaborate(self, platform):
        m = Module()
        newest, behind, comes, left = Signal.like(self.o), Signal.like(self.o), Signal(), Signal(2)
        # What is behind the placed one is asked of both at once.
        for k, ticket in enumerate((newest, self.ticket)):
            ahead = Signal.like(self.o, name=f"ahead{k}")
            m.d.comb += [ahead.eq(ticket - self.placed), left[k].eq(ahead[-1])]
        m.d.comb += [behind.eq(newest - self.ticket), comes.eq(self.valid & behind[-1]),
                     self.o.eq(Mux(comes, self.ticket, newest))]
        m.d.sync += newest.eq(Mux(Mux(comes, left[1], left[0]), self.placed, self.o))
        return m
