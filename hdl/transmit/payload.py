"""Clears the unused bytes of payload beats, so that they can serve as padding."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import BEAT_BYTES, Beat
from ..part.stages import SkidBuffer


def used_bytes(beat):
    """Return the data of a beat with its unused bytes cleared."""
    return Cat(*[
        Mux(beat.empty < BEAT_BYTES - index, beat.data.word_select(index, 8), 0) if index else beat.data[:8]
        for index in range(BEAT_BYTES)
    ])


class PayloadCleaner(wiring.Component):
    """Clears the unused bytes of beats. One beat per cycle, latency 1; registered in both directions.

    Members
    -------
    i, o : In/Out(stream.Signature(Beat))
    """

    def __init__(self):
        super().__init__({"i": In(stream.Signature(Beat)), "o": Out(stream.Signature(Beat))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid = skid = SkidBuffer(Beat)
        wiring.connect(m, skid.o, wiring.flipped(self.o))
        m.d.comb += [
            skid.i.valid.eq(self.i.valid),
            self.i.ready.eq(skid.i.ready),
            skid.i.payload.eq(self.i.payload),
            skid.i.p.data.eq(used_bytes(self.i.p)),
        ]
        return m
