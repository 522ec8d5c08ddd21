"""Priority of retransmissions over new packets."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .segment import TxSegment


class PriorityMerge(wiring.Component):
    """Strict priority between the packets of two rings.

    One packet per cycle, latency 1. A SEND packet passes only when no RETRANSMIT packet waits.

    Members
    -------
    i_send, i_retransmit : In(stream.Signature(TxSegment))
    enable : In(1)
        While low nothing is accepted.
    o : Out(stream.Signature(TxSegment))
    """

    def __init__(self):
        super().__init__({
            "i_send": In(stream.Signature(TxSegment)),
            "i_retransmit": In(stream.Signature(TxSegment)),
            "enable": In(1),
            "o": Out(stream.Signature(TxSegment)),
        })

    def elaborate(self, platform):
        m = Module()
        with m.If(~self.o.valid | self.o.ready):
            m.d.comb += [
                self.i_retransmit.ready.eq(self.enable),
                self.i_send.ready.eq(self.enable & ~self.i_retransmit.valid),
            ]
            m.d.sync += self.o.valid.eq(self.enable & (self.i_send.valid | self.i_retransmit.valid))
            with m.If(self.i_retransmit.valid):
                m.d.sync += self.o.payload.eq(self.i_retransmit.payload)
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i_send.payload)
        return m
