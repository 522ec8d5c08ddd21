"""Small parts for streams: a gate, queues, pipeline registers, arbiters."""

from amaranth import Array, Const, Module, Shape, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

LUT_RAM_DEPTH = 64  # deepest queue kept in distributed memory; deeper ones use block memory


def pass_unless(m, hold, source, sink, *, groups=False):
    """Connect two streams; while ``hold`` nothing new begins, but what was shown or is amid its group goes on."""
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
        Items it holds, at least 1; any number.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    level : Out(range(depth + 1))
        Items held.
    free : Out(range(depth + 1))
        ``depth - level``.
    """

    def __init__(self, shape, depth):
        if depth < 1:
            raise ValueError(f"a queue of depth {depth} holds nothing; choose 1 or more")
        self.shape, self.depth = shape, depth
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "level": Out(range(depth + 1)),
            "free": Out(range(depth + 1)),
        })

    def elaborate(self, platform):
        m = Module()
        cls = fifo.SyncFIFO if self.depth <= LUT_RAM_DEPTH else fifo.SyncFIFOBuffered
        m.submodules.queue = queue = cls(width=Shape.cast(self.shape).width, depth=self.depth)
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


class PipelineRegister(wiring.Component):
    """Registers payload and ``valid``; ``ready`` passes through combinationally.

    One item per cycle, latency 1.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += self.o.valid.eq(self.i.valid)
            with m.If(self.i.valid):
                m.d.sync += self.o.payload.eq(self.i.payload)
        return m


class Skid(wiring.Component):
    """Registers payload, ``valid`` and ``ready``: cuts every combinational path.

    One item per cycle, latency 1, holds up to two items.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    """

    def __init__(self, shape):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        spare = Signal(self.shape)
        spare_valid = Signal()
        free = Signal()
        m.d.comb += [free.eq(~self.o.valid | self.o.ready), self.i.ready.eq(~spare_valid)]
        with m.If(free):
            m.d.sync += self.o.valid.eq(spare_valid | self.i.valid)
            with m.If(spare_valid):
                m.d.sync += [self.o.payload.eq(spare), spare_valid.eq(0)]
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i.payload)
        with m.Elif(self.i.valid & self.i.ready):
            m.d.sync += [spare.eq(self.i.payload), spare_valid.eq(1)]
        return m


class PacketArbiter(wiring.Component):
    """Merges streams round-robin; a packet, once begun, is passed whole.

    The output is registered: one item per cycle, latency 1, no bubble between packets.

    Parameters
    ----------
    shape : ShapeLike
        Payload with a 1-bit field ``last`` (:class:`~weft.hdl.layouts.Beat`, ``DmaRequest``).
    n : int
        Inputs.

    Members
    -------
    i : In(stream.Signature(shape)).array(n)
    o : Out(stream.Signature(shape))
    source : Out(range(n))
        Input that ``o`` comes from; valid with ``o``.
    """

    def __init__(self, shape, n):
        if n < 1:
            raise ValueError(f"an arbiter of {n} inputs has nothing to do")
        self.n = n
        super().__init__({
            "i": In(stream.Signature(shape)).array(n),
            "o": Out(stream.Signature(shape)),
            "source": Out(range(max(n, 2))),
        })

    def is_last(self, payload):
        """Whether the grant may move on behind this item."""
        return payload.last

    def elaborate(self, platform):
        m = Module()
        owner = Signal(ceil_log2(max(self.n, 2)))
        inside = Signal()                       # a packet is under way: `owner` keeps the grant
        grant = Signal.like(owner)
        valids = Array(s.valid for s in self.i)
        load = Signal()

        m.d.comb += [grant.eq(owner), load.eq(~self.o.valid | self.o.ready)]
        with m.If(~inside), m.Switch(owner):
            for current in range(self.n):
                with m.Case(current):
                    for step in reversed(range(1, self.n)):
                        candidate = (current + step) % self.n
                        with m.If(self.i[candidate].valid):
                            m.d.comb += grant.eq(candidate)

        with m.If(load):
            m.d.sync += self.o.valid.eq(valids[grant])
        with m.Switch(grant):
            for k, s in enumerate(self.i):
                with m.Case(k):
                    m.d.comb += s.ready.eq(load)
                    with m.If(load & s.valid):
                        m.d.sync += [
                            self.o.payload.eq(s.payload),
                            self.source.eq(k),
                            owner.eq(k),
                            inside.eq(~self.is_last(s.payload)),
                        ]
        return m


class Arbiter(PacketArbiter):
    """Merges streams of single items round-robin.

    The output is registered: one item per cycle, latency 1.

    Parameters
    ----------
    shape : ShapeLike
        Payload.
    n : int
        Inputs.

    Members
    -------
    i : In(stream.Signature(shape)).array(n)
    o : Out(stream.Signature(shape))
    source : Out(range(n))
        Input that ``o`` comes from; valid with ``o``.
    """

    def is_last(self, payload):
        return Const(1)
