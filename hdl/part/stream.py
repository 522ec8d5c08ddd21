"""Stream gate and FIFO."""

from amaranth import Module, Shape, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .queue import Queue

LUT_RAM_DEPTH = 64  # deepest queue in distributed memory; deeper ones use block memory


def pass_unless(m, hold, source, sink, *, groups=False):
    """Connect two streams with a gate: while ``hold`` is high no new item or group begins.

    An item that is already offered, or a group that has begun, is completed. Returns whether that is the case.
    """
    shown, inside, open_ = Signal(), Signal(), Signal()
    m.d.comb += [
        open_.eq(~hold | shown | inside),
        sink.valid.eq(source.valid & open_), sink.payload.eq(source.payload), source.ready.eq(sink.ready & open_),
    ]
    m.d.sync += shown.eq(sink.valid & ~sink.ready)
    if groups:
        with m.If(sink.valid & sink.ready):
            m.d.sync += inside.eq(~source.p.last)
    return inside | shown


class Fifo(wiring.Component):
    """First-in first-out queue between two streams.

    One item per cycle each way. Latency 1 cycle up to ``LUT_RAM_DEPTH`` items, 2 above (block memory).

    Parameters
    ----------
    shape : ShapeLike
        Payload.
    depth : int
        Number of items, at least 1.
    output_registers : int
        Output registers, as in :class:`~weft.hdl.part.queue.Queue`. Ignored above ``LUT_RAM_DEPTH`` items, where the
        output is registered anyway.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    level : Out(range(depth + 1))
        Items held.
    free : Out(range(depth + 1))
        ``depth - level``.
    """

    def __init__(self, shape, depth, *, output_registers=0):
        if depth < 1:
            raise ValueError(f"a queue of depth {depth} holds nothing; choose 1 or more")
        self.shape, self.depth, self.output_registers = shape, depth, output_registers
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "level": Out(range(depth + 1)),
            "free": Out(range(depth + 1)),
        })

    def elaborate(self, platform):
        m = Module()
        block = self.depth > LUT_RAM_DEPTH
        m.submodules.queue = queue = Queue(
            Shape.cast(self.shape).width, self.depth, block, 0 if block else self.output_registers)
        m.d.comb += [
            queue.w_data.eq(self.i.payload),
            queue.w_en.eq(self.i.valid),
            self.i.ready.eq(queue.w_rdy),
            self.o.payload.eq(queue.r_data),
            self.o.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o.ready),
            self.level.eq(queue.level),
            self.free.eq(self.depth - queue.level),
        ]
        return m
