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
        m.submodules.choice = choice = PacketChoice(paced=self.paced)
        takes = Signal()
        m.d.comb += [
            takes.eq(~self.o.valid | self.o.ready),
            choice.enable.eq(self.enable), choice.takes.eq(takes),
            choice.send.eq(self.i_send.valid), choice.retransmit.eq(self.i_retransmit.valid),
            self.i_retransmit.ready.eq(takes & choice.retransmit_next),
            self.i_send.ready.eq(takes & choice.send_next),
        ]
        with m.If(takes):
            m.d.sync += self.o.valid.eq(choice.valid)
            with m.If(self.i_retransmit.valid):
                m.d.sync += self.o.payload.eq(self.i_retransmit.payload)
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i_send.payload)
            if self.paced:
                with m.If(choice.paced_next):
                    m.d.sync += self.o.p.job.eq(self.i_paced.payload)
        if self.paced:
            m.d.comb += [choice.paced.eq(self.i_paced.valid), choice.of_send.eq(~self.i_paced.p.packet.ring),
                         self.i_paced.ready.eq(takes & choice.paced_next)]
        return m


class PacketChoice(wiring.Component):
    """Choice of the next packet, in the same cycle.

    Kept as a block, so that a late ``ready`` of the output passes one level of logic: folded into the merge, the
    longest estimated path of preset ``full`` is 3.44 instead of 3.40 ns.

    Parameters
    ----------
    paced : bool

    Members
    -------
    enable, takes : In(1)
        Something may pass; a packet that is chosen passes in this cycle.
    send, retransmit, paced : In(1)
        A packet waits.
    of_send : In(1)
        The paced packet is no retransmission.
    send_next, retransmit_next, paced_next : Out(1)
        The next packet comes from this input, if one waits there.
    valid : Out(1)
        A packet passes.
    """

    def __init__(self, *, paced):
        self.with_pacer = paced
        super().__init__({
            **dict.fromkeys(("enable", "takes", "send", "retransmit", "paced", "of_send"), In(1)),
            **dict.fromkeys(("send_next", "retransmit_next", "paced_next", "valid"), Out(1)),
        })

    def elaborate(self, platform):
        m = Module()
        ring, wins = self.send | self.retransmit, Signal()
        if self.with_pacer:
            row = Signal(range(UNPACED))
            m.d.comb += wins.eq(self.paced & ~(self.retransmit & self.of_send) & ~(ring & row.all()))
            with m.If(self.takes & self.enable):
                m.d.sync += row.eq(Mux(wins & ring, row + 1, 0))
        m.d.comb += [
            self.paced_next.eq(self.enable & wins),
            self.retransmit_next.eq(self.enable & ~wins),
            self.send_next.eq(self.enable & ~wins & ~self.retransmit),
            self.valid.eq(self.enable & (wins | ring)),
        ]
        return m
