"""Pipelined byte rotation of a beat."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import BEAT_BITS
from .tlp import rotate_right


class Rotate(wiring.Component):
    """Rotates a beat by whole bytes: byte j of ``o`` is byte ``j + shift`` modulo 64 of ``i``.

    One beat per cycle, two cycles of latency (coarse shift, fine shift). While ``o`` is stalled the pipeline stops.

    Parameters
    ----------
    side : ShapeLike
        Sideband that travels with the beat.

    Members
    -------
    i : In(stream of {data 512, shift 6, side})
    o : Out(stream of {data 512, side})
    busy : Out(1)
        A beat is inside.
    """

    def __init__(self, side):
        self._i = data.StructLayout({"data": BEAT_BITS, "shift": 6, "side": side})
        self._o = data.StructLayout({"data": BEAT_BITS, "side": side})
        super().__init__({"i": In(stream.Signature(self._i)), "o": Out(stream.Signature(self._o)), "busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        coarse = Signal(self._i)
        coarse_valid = Signal()
        m.d.comb += [
            self.i.ready.eq(~self.o.valid | self.o.ready),
            self.busy.eq(coarse_valid | self.o.valid),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                coarse_valid.eq(self.i.valid),
                coarse.eq(self.i.payload),
                coarse.data.eq(rotate_right(self.i.p.data, 64, self.i.p.shift[3:])),
                self.o.valid.eq(coarse_valid),
                self.o.p.side.eq(coarse.side),
                self.o.p.data.eq(rotate_right(coarse.data, 8, coarse.shift[:3])),
            ]
        return m
