"""Storage of inline payload while its packet is checked and queued."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import BEAT_BYTES, Beat, tx_job, tx_segment
from ..part.stream import LUT_RAM_DEPTH, Fifo
from .payload import used_bytes

WAITING = LUT_RAM_DEPTH + 1     # packets with inline payload that may wait, in block memory; then the input stalls


class InlineStore(wiring.Component):
    """Stores the payload of ``inline`` packets in order; their headers go on separately.

    One packet per cycle, without latency; its payload is there 2 cycles later.

    Parameters
    ----------
    paced : bool, optional
        There is a pacer.

    Members
    -------
    i : In(stream.Signature(tx_segment(paced)))
    o : Out(stream.Signature(tx_job(paced)))
    o_payload : Out(stream.Signature(Beat))
        Payload of the oldest packet with stored payload, one beat. Unused bytes are zero.
    """

    def __init__(self, *, paced=False):
        super().__init__({
            "i": In(stream.Signature(tx_segment(paced=paced))),
            "o": Out(stream.Signature(tx_job(paced=paced))),
            "o_payload": Out(stream.Signature(Beat)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.waiting = waiting = Fifo(Beat, WAITING)
        wiring.connect(m, waiting.o, wiring.flipped(self.o_payload))
        packet = self.i.p.job.packet
        beat = Signal(Beat)
        go = self.i.valid & (~packet.inline | waiting.i.ready)
        m.d.comb += [
            self.o.payload.eq(self.i.p.job), self.o.valid.eq(go),
            self.i.ready.eq(self.o.ready & (~packet.inline | waiting.i.ready)),
            waiting.i.valid.eq(self.i.valid & self.o.ready & packet.inline),
            beat.data.eq(self.i.p.data), beat.empty.eq(BEAT_BYTES - packet.length), beat.last.eq(1),
            waiting.i.payload.eq(beat), waiting.i.p.data.eq(used_bytes(beat)),
        ]
        return m
