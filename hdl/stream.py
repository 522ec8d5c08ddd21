"""Small parts for streams: a gate, queues, pipeline registers, arbiters."""

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .logic import choose, encoded
from .queue import Queue

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
    standing : bool
        ``o`` comes from registers, cycle by cycle the same: up to ``LUT_RAM_DEPTH`` items, more do anyway.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    level : Out(range(depth + 1))
        Items held.
    free : Out(range(depth + 1))
        ``depth - level``.
    """

    def __init__(self, shape, depth, *, standing=False):
        if depth < 1:
            raise ValueError(f"a queue of depth {depth} holds nothing; choose 1 or more")
        self.shape, self.depth, self.standing = shape, depth, standing
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "level": Out(range(depth + 1)),
            "free": Out(range(depth + 1)),
        })

    def elaborate(self, platform):
        m = Module()
        block = self.depth > LUT_RAM_DEPTH
        m.submodules.queue = queue = Queue(Shape.cast(self.shape).width, self.depth, block, self.standing and not block)
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


class _Stage(wiring.Component):
    """A part that items of one shape pass through, from ``i`` to ``o``."""

    def __init__(self, shape, **more):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), **more})


class PipelineRegister(_Stage):
    """Registers payload and ``valid``; ``ready`` passes through combinationally.

    One item per cycle, latency 1.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    """

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):    # whether something comes or not: `valid` is late where the payload is wide
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
        return m


class ReadyRegister(_Stage):
    """Registers ``ready``; payload and ``valid`` pass through combinationally.

    One item per cycle, latency 0, holds up to one item.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    """

    def elaborate(self, platform):
        m = Module()
        spare, held = Signal(self.shape), Signal()
        m.d.comb += [
            self.i.ready.eq(~held), self.o.valid.eq(held | self.i.valid),
            Value.cast(self.o.payload).eq(Mux(held, Value.cast(spare), Value.cast(self.i.payload))),
        ]
        m.d.sync += held.eq(self.o.valid & ~self.o.ready)
        with m.If(~held):
            m.d.sync += spare.eq(self.i.payload)
        return m


class Skid(_Stage):
    """Registers payload, ``valid`` and ``ready``: cuts every combinational path.

    One item per cycle, latency 1, holds up to two items.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    takes, next : Out(1), Out(shape)
        ``o`` shows another item from the next cycle on, if any: this one.
    """

    def __init__(self, shape):
        super().__init__(shape, takes=Out(1), next=Out(shape))

    def elaborate(self, platform):
        m = Module()
        spare = Signal(Shape.cast(self.shape))
        empty = Signal(init=1)      # nothing is in `spare`; as it is, it is `ready`
        m.d.comb += [
            self.takes.eq(~self.o.valid | self.o.ready), self.i.ready.eq(empty),
            Value.cast(self.next).eq(Mux(empty, Value.cast(self.i.payload), spare)),
        ]
        with m.If(self.takes):
            m.d.sync += [self.o.valid.eq(~empty | self.i.valid), self.o.payload.eq(self.next), empty.eq(1)]
        with m.Elif(self.i.valid):
            m.d.sync += empty.eq(0)
        with m.If(empty):       # whether or not something comes: that is known late
            m.d.sync += spare.eq(self.i.payload)
        return m


class Pair(_Stage):
    """Two registers in turns, cycle by cycle a :class:`Skid`: where ``o.ready`` comes late and the payload is wide.

    ``o.ready`` reaches no register of the payload, which comes through a choice of two instead.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    """

    def elaborate(self, platform):
        m = Module()
        items = [Signal(self.shape, name=f"item{k}") for k in range(2)]
        write, read, room = Signal(), Signal(), Signal(init=1)
        m.d.comb += [
            self.i.ready.eq(room),
            Value.cast(self.o.payload).eq(Mux(read, *(Value.cast(item) for item in reversed(items)))),
        ]
        m.d.sync += [
            room.eq(~self.o.valid | self.o.ready | (room & ~self.i.valid)),
            self.o.valid.eq((self.i.valid & room) | (self.o.valid & ~(self.o.ready & room))),
            write.eq(write ^ (self.i.valid & room)), read.eq(read ^ (self.o.valid & self.o.ready)),
        ]
        for k, item in enumerate(items):
            with m.If(room & (write == k)):
                m.d.sync += item.eq(self.i.payload)
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
    late : int, optional
        The input that offers late in its cycle: all the others are decided on before it.

    Members
    -------
    i : In(stream.Signature(shape)).array(n)
    o : Out(stream.Signature(shape))
    source : Out(range(n))
        Input that ``o`` comes from; valid with ``o``.
    """

    def __init__(self, shape, n, late=None):
        if n < 1:
            raise ValueError(f"an arbiter of {n} inputs has nothing to do")
        self.n, self.late = n, late
        super().__init__({
            "i": In(stream.Signature(shape)).array(n),
            "o": Out(stream.Signature(shape)),
            "source": Out(range(max(n, 2))),
        })

    def is_last(self, payload):
        """Whether the grant may move on behind this item."""
        return payload.last

    def elaborate(self, platform):
        m, n = Module(), self.n
        owner = Signal(ceil_log2(max(n, 2)))
        inside, load = Signal(name="inside"), Signal()      # a packet is under way: `owner` keeps the grant
        open_, granted = Signal(n), Signal(n)   # who is taken if he has something; who is
        m.d.comb += load.eq(~self.o.valid | self.o.ready)

        def turn(other, k):
            """Owners behind whom ``other`` comes before input ``k``."""
            return Cat(owner == each for each in range(n) if (other - each - 1) % n < (k - each - 1) % n).any()

        early = [k for k in range(n) if k != self.late]
        for k, s in enumerate(self.i):
            others = Cat(self.i[j].valid & turn(j, k) for j in early if j != k)
            # `ready` looks at the others' `valid` alone: whoever offers late hears early.
            m.d.comb += [open_[k].eq(Mux(inside, owner == k, ~others.any())),
                         granted[k].eq(open_[k] & s.valid if k != self.late else 0)]
        any_, grant = granted.any(), encoded(granted)
        payload, last = (choose(granted, values) for values in (
            [s.payload for s in self.i], [self.is_last(s.payload) for s in self.i]))
        if self.late is None:
            m.d.comb += [s.ready.eq(load & open_[k]) for k, s in enumerate(self.i)]
        else:
            m.submodules.last_word = word = LastWord(len(Value.cast(self.o.payload)), n, self.late)
            it = self.i[self.late]
            m.d.comb += [
                word.load.eq(load), word.open.eq(open_), word.valid.eq(it.valid), word.others.eq(any_),
                word.yields.eq(Cat(~inside & (turn(self.late, k) if k != self.late else 0) for k in range(n))),
                word.payload.eq(it.payload), word.other.eq(payload),
                *[s.ready.eq(word.ready[k]) for k, s in enumerate(self.i)],
            ]
            any_, payload = word.any, word.o
            grant, last = Mux(word.wins, self.late, grant), Mux(word.wins, self.is_last(it.payload), last)
        with m.If(load):    # a wide payload does not wait for whether anyone has something
            m.d.sync += [self.o.valid.eq(any_), Value.cast(self.o.payload).eq(payload), self.source.eq(grant)]
        with m.If(load & any_):
            m.d.sync += [owner.eq(grant), inside.eq(~last)]
        return m


class LastWord(wiring.Component):
    """What is left of a choice among streams when all but one of them were decided on. Combinational.

    A block of its own, so that a tool does not give away the one level from ``valid`` to the answers.

    Parameters
    ----------
    width, n, late : int
        Bits of a payload; inputs; which of them is the late one.

    Members
    -------
    load : In(1)
        Something may be taken.
    open, yields : In(n)
        Who is taken if he has something and the late one has not; who gives way to that one.
    others, other : In(1), In(width)
        One of the others is taken then, and what he has.
    valid, payload : In(1), In(width)
        Of the late one.
    ready : Out(n)
    any, wins, o : Out(1), Out(1), Out(width)
        One is taken; the late one is; what he has.
    """

    def __init__(self, width, n, late):
        self.late, self.n = late, n
        super().__init__({
            "load": In(1), "open": In(n), "yields": In(n), "others": In(1), "other": In(width), "valid": In(1),
            "payload": In(width), "ready": Out(n), "any": Out(1), "wins": Out(1), "o": Out(width),
        })

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.ready.eq(self.open & ~(self.yields & self.valid.replicate(self.n)) & self.load.replicate(self.n)),
            self.wins.eq(self.valid & self.open[self.late]), self.any.eq(self.wins | self.others),
            self.o.eq(Mux(self.wins, self.payload, self.other)),
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
