"""Store-and-forward buffer of memory writes."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.stream import Fifo
from .tlp import LANES, PAGE_BYTES, WriteTlp

STORE_BEATS = PAGE_BYTES // (4 * LANES)      # of the largest memory write
MARKS = data.StructLayout({"first": 1, "last": 1, "dwords": 11})     # of a beat


class WriteStore(wiring.Component):
    """Passes a packet on when it is complete, so that ``o.valid`` never falls inside one, however slowly it comes.

    One beat per cycle; a packet leaves one cycle after its last beat came. It holds the largest packet that exists,
    so every packet becomes complete.

    Members
    -------
    i, o : In/Out(stream.Signature(WriteTlp))
    busy : Out(1)
        A beat is inside.
    """

    i: In(stream.Signature(WriteTlp))
    o: Out(stream.Signature(WriteTlp))
    busy: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.beats = beats = Fifo(WriteTlp, STORE_BEATS)
        # Fields that decide about the next beat are in registers, in a queue with the same items.
        m.submodules.marks = marks = Fifo(MARKS, STORE_BEATS, output_registers=1)
        whole = Signal(range(STORE_BEATS + 1))       # packets whose last beat is inside
        some, came, left = Signal(), Signal(), Signal()
        wiring.connect(m, wiring.flipped(self.i), beats.i)
        m.d.comb += [
            marks.i.valid.eq(self.i.valid), marks.o.ready.eq(beats.o.ready), self.o.payload.eq(beats.o.payload),
            *[marks.i.p[name].eq(self.i.p[name]) for name in MARKS.members],
            *[self.o.p[name].eq(marks.o.p[name]) for name in MARKS.members],
            self.o.valid.eq(some),
            beats.o.ready.eq(some & self.o.ready),
            came.eq(self.i.valid & self.i.ready & self.i.p.last), left.eq(some & self.o.ready & self.o.p.last),
            self.busy.eq(beats.o.valid),
        ]
        m.d.sync += some.eq(came | (some & ~(left & (whole == 1))))
        with m.If(came ^ left):
            m.d.sync += whole.eq(whole + Mux(came, 1, -1))
        return m
