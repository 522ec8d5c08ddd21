"""Alignment of completions to the slot memories: every double word goes to the bank of its address."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import BEAT_BITS
from .tlp import LANES, TAG_BITS, CompletionBeat, rotate_right


class ScatteredBeat(data.Struct):
    """A completion beat with lane j holding a double word whose address is j modulo 16.

    Lanes with a bit in ``upper`` belong to ``row``, the others to the next row (64 bytes each, modulo 4 KiB).
    """

    data: BEAT_BITS
    lanes: LANES
    upper: LANES
    row: 6
    tag: TAG_BITS
    done: 1
    error: 1


class Scatter(wiring.Component):
    """Rotates completion beats by their double-word address.

    One beat per cycle, one cycle of latency, no stall.

    Members
    -------
    i : In(CompletionBeat)
    i_valid : In(1)
    o : Out(ScatteredBeat)
    o_valid : Out(1)
    """

    i: In(CompletionBeat)
    i_valid: In(1)
    o: Out(ScatteredBeat)
    o_valid: Out(1)

    def elaborate(self, platform):
        m = Module()
        low = self.i.dword[:4]
        shift = Signal(4)
        m.d.comb += shift.eq(-low)
        m.d.sync += [
            self.o_valid.eq(self.i_valid),
            self.o.data.eq(rotate_right(self.i.data, 32, shift)),
            self.o.lanes.eq(Mux(self.i_valid, rotate_right(self.i.lanes, 1, shift), 0)),
            self.o.upper.eq(Cat(low <= j for j in range(LANES))),
            self.o.row.eq(self.i.dword[4:]),
            self.o.tag.eq(self.i.tag),
            self.o.done.eq(self.i.done),
            self.o.error.eq(self.i.error),
        ]
        return m
