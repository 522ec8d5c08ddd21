"""Priority of retransmissions over new packets."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import tx_job, tx_segment

UNPACED = 16     # of this number of packets in a row at least one is unpaced, if one waits


class PriorityMerge(wiring.Component):
    """Strict priority between the packets of two rings and of the pacer.

    One packet per cycle, latency 1. A packet that is no retransmission passes only when none waits. The pacer comes
    before the rings, because its packets have a time, except that of 16 packets one is from a ring if one waits there.

    Parameters
    ----------
    paced : bool, optional
        There is a pacer.

    Members
    -------
    i_send, i_retransmit : In(stream.Signature(tx_segment(paced)))
    i_paced : In(stream.Signature(tx_job(paced)))
        May be withdrawn.
    enable : In(1)
        While low nothing is accepted.
    o : Out(stream.Signature(tx_segment(paced)))
    """

    def __init__(self, *, paced=False):
        self.paced, shape = paced, tx_segment(paced=paced)
        super().__init__({
            "i_send": In(stream.Signature(shape)),
            "i_retransmit": In(stream.Signature(shape)),
            **({"i_paced": In(stream.Signature(tx_job(paced=True)))} if paced else {}),
            "enable": In(1),
            "o": Out(stream.Signature(shape)),
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
            if self.paced:
                self._pace(m)
        return m

    def _pace(self, m):
        """Let packets of the pacer pass before those of SEND, retransmissions first."""
        paced, ring = self.i_paced, self.i_send.valid | self.i_retransmit.valid
        row, wins = Signal(range(UNPACED)), Signal()
        m.d.comb += wins.eq(paced.valid & ~(self.i_retransmit.valid & ~paced.p.packet.ring) & ~(ring & row.all()))
        with m.If(self.enable):
            m.d.sync += row.eq(Mux(wins & ring, row + 1, 0))
        with m.If(wins):
            m.d.comb += [self.i_send.ready.eq(0), self.i_retransmit.ready.eq(0), paced.ready.eq(self.enable)]
            m.d.sync += [self.o.p.job.eq(paced.payload), self.o.valid.eq(self.enable)]
