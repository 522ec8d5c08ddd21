"""Store-and-forward memory after the MAC: a frame is committed or removed at its end."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.params import exact_log2
from ..part.layouts import BEAT_BITS, Beat
from ..part.logic import sum_equals


class RevocableBuffer(wiring.Component):
    """Queue of beats whose newest frame can be removed.

    One beat per cycle in and out. A committed beat can be read two cycles later. The input is
    never stalled: a beat without space is lost and ``fits`` falls until the frame's end.

    Parameters
    ----------
    depth : int
        Beats, a power of two.

    Members
    -------
    i : In(stream.Signature(Beat, always_ready=True))
        ``error`` is not stored.
    end : In(1)
        The frame ends: with this cycle's beat, or before. The next frame's first beat comes later.
    keep : In(1)
        With ``end``: commit the frame; otherwise it is removed. Low unless ``fits``.
    fits : Out(1)
        There is space for every beat of the frame so far, including this cycle's. Combinational from ``i``.
    used : Out(range(depth + 1))
        Beats of committed frames that were not read yet, a cycle ago.
    o : Out(stream.Signature(Beat))

    Raises
    ------
    ValueError
        If ``depth`` is not a power of two.
    """

    def __init__(self, depth):
        exact_log2(depth)
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(Beat, always_ready=True)),
            "end": In(1),
            "keep": In(1),
            "fits": Out(1),
            "used": Out(range(self.depth + 1)),
            "o": Out(stream.Signature(Beat)),
        })

    def elaborate(self, platform):
        m = Module()
        stored = data.StructLayout({"data": BEAT_BITS, "empty": 6, "last": 1})
        m.submodules.memory = memory = Memory(shape=stored, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port()

        # Pointers are one bit wider than the address, so that full and empty differ.
        width = exact_log2(self.depth) + 1
        written, written_next = Signal(width), Signal(width)
        committed = Signal(width)
        fetched = Signal(width)
        full, lost = Signal(name="full"), Signal()     # `lost`: a beat of the frame found no space
        last_place = Signal()       # full after one more beat
        m.d.comb += [
            last_place.eq(sum_equals(written, 1, fetched ^ self.depth)),
            self.fits.eq(~lost & ~(self.i.valid & full)),
            write.en.eq(self.i.valid & ~full & ~lost),
            write.addr.eq(written),
            write.data.eq(Cat(self.i.p.data, self.i.p.empty, self.i.p.last)),
            written_next.eq(written + write.en),
        ]
        m.d.sync += [written.eq(written_next), lost.eq(~self.fits), full.eq(~read.en & Mux(write.en, last_place, full))]
        with m.If(self.end):
            m.d.sync += lost.eq(0)
            with m.If(self.keep):
                m.d.sync += committed.eq(written_next)
            with m.Else():
                m.d.sync += [written.eq(committed), full.eq(~read.en & (committed ^ fetched == self.depth))]

        m.d.comb += [
            read.en.eq((fetched != committed) & (~self.o.valid | self.o.ready)),
            read.addr.eq(fetched),
            self.o.p.data.eq(read.data.data),
            self.o.p.empty.eq(read.data.empty),
            self.o.p.last.eq(read.data.last),
        ]
        m.d.sync += fetched.eq(fetched + read.en)
        m.d.sync += self.used.eq(committed - fetched)
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += self.o.valid.eq(read.en)
        return m
