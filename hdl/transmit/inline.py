"""Payload that came with its descriptor, while the packet it belongs to is checked and waits for its turn."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..layouts import BEAT_BYTES, Beat
from ..stream import Fifo
from .payload import PayloadCleaner
from .segment import TxJob, TxSegment

WAITING = 64     # packets with such payload between here and the frame builder; then the next one waits


class InlineStore(wiring.Component):
    """Keeps the payload of ``inline`` packets in their order, whose headers go on alone.

    One packet per cycle, without latency; its payload is there 2 cycles later.

    Members
    -------
    i : In(stream.Signature(TxSegment))
    o : Out(stream.Signature(TxJob))
    o_payload : Out(stream.Signature(Beat))
        Payload of the oldest packet that has some here, one beat. Unused bytes are zero.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(TxSegment)),
            "o": Out(stream.Signature(TxJob)),
            "o_payload": Out(stream.Signature(Beat)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.waiting = waiting = Fifo(Beat, WAITING)
        m.submodules.cleaner = cleaner = PayloadCleaner()
        wiring.connect(m, waiting.o, cleaner.i)
        wiring.connect(m, cleaner.o, wiring.flipped(self.o_payload))
        packet = self.i.p.job.packet
        go = self.i.valid & (~packet.inline | waiting.i.ready)
        m.d.comb += [
            self.o.payload.eq(self.i.p.job), self.o.valid.eq(go),
            self.i.ready.eq(self.o.ready & (~packet.inline | waiting.i.ready)),
            waiting.i.valid.eq(self.i.valid & self.o.ready & packet.inline),
            waiting.i.p.data.eq(self.i.p.data), waiting.i.p.empty.eq(BEAT_BYTES - packet.length),
            waiting.i.p.last.eq(1),
        ]
        return m
