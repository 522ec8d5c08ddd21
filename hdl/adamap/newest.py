"""The newest ticket of the headers that were matched."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..ticket import EXTENDED_TICKET_WIDTH


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
        newest, behind, ahead = Signal.like(self.o), Signal.like(self.o), Signal.like(self.o)
        m.d.comb += [behind.eq(newest - self.ticket), ahead.eq(self.o - self.placed),
                     self.o.eq(Mux(self.valid & behind[-1], self.ticket, newest))]
        m.d.sync += newest.eq(Mux(ahead[-1], self.placed, self.o))
        return m
