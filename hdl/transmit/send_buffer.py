"""Store-and-forward buffer before the MAC."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.params import exact_log2
from ..part.layouts import Beat

DEPTH_MIN = 128  # beats: a frame of 4096 bytes payload, and most of the next


def check_depth(depth):
    """Raise ValueError unless a buffer of ``depth`` beats is possible."""
    exact_log2(depth)
    if depth < DEPTH_MIN:
        raise ValueError(f"a transmit buffer of {depth} beats is too small; choose {DEPTH_MIN} or more")


class SendBuffer(wiring.Component):
    """Holds each frame until it is complete, so that the MAC never waits inside a frame.

    One beat per cycle each way; the first beat leaves 2 cycles after the last one came. A frame
    whose last beat has ``error`` is dropped, and so is one longer than the buffer.

    Parameters
    ----------
    depth : int
        Beats, a power of two, at least 128.

    Members
    -------
    i : In(stream.Signature(Beat))
    o : Out(stream.Signature(Beat))
        Once a frame has begun, ``valid`` stays until its last beat. ``error`` is zero.
    too_long : Out(1)
        Strobe: a frame did not fit.
    empty : Out(1)
    """

    def __init__(self, depth):
        check_depth(depth)
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(Beat)),
            "o": Out(stream.Signature(Beat)),
            "too_long": Out(1),
            "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        width = exact_log2(self.depth) + 1
        m.submodules.memory = memory = Memory(shape=Beat, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        write_at, complete, read_at = Signal(width), Signal(width), Signal(width)  # free running
        full, alone, discard = Signal(), Signal(), Signal()
        m.d.comb += [
            full.eq((write_at ^ read_at) == self.depth),        # the pointers differ in the top bit only
            alone.eq((write_at ^ complete) == self.depth),
            self.i.ready.eq(~full | discard | alone),
            self.empty.eq((complete == read_at) & ~self.o.valid & (write_at == complete) & ~self.i.valid),
            write.addr.eq(write_at),
            write.data.eq(self.i.payload),
            write.en.eq(self.i.valid & ~full & ~discard),
        ]
        with m.If(self.i.valid & self.i.ready):
            with m.If(discard | alone):
                m.d.comb += self.too_long.eq(self.i.p.last)
                m.d.sync += [discard.eq(~self.i.p.last), write_at.eq(complete)]
            with m.Elif(~self.i.p.last):
                m.d.sync += write_at.eq(write_at + 1)
            with m.Elif(self.i.p.error):
                m.d.sync += write_at.eq(complete)
            with m.Else():
                m.d.sync += [write_at.eq(write_at + 1), complete.eq(write_at + 1)]

        m.d.comb += [
            read.en.eq(~self.o.valid | self.o.ready),
            read.addr.eq(read_at),
            self.o.payload.eq(read.data),
            self.o.p.error.eq(0),
        ]
        with m.If(read.en):
            m.d.sync += self.o.valid.eq(complete != read_at)
            m.d.sync += read_at.eq(Mux(complete != read_at, read_at + 1, read_at))
        return m
