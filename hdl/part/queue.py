"""The memory and the pointers of a queue."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .stages import Pair


class Queue(wiring.Component):
    """First-in first-out queue, cycle by cycle that of Amaranth (``SyncFIFO``, or ``SyncFIFOBuffered`` with ``block``).

    What may be written or read is often known late in a cycle: two levels of logic lead from ``w_en`` and ``r_en`` to
    every register here. Amaranth's queue has an adder behind them, of four.

    One item per cycle each way. Latency 1 cycle, with ``block`` 2.

    Parameters
    ----------
    width, depth : int
        Of an item in bits; of the queue in items, with ``block`` at least 2.
    block : bool
        For block memory, which answers a cycle late: the last item read is in its output register.
    standing : int
        How many of the next items stand in registers, 2 at most, not in distributed memory: what is decided by the next
        one begins a read earlier. The cycles are the same. Two take turns, as
        :class:`~weft.hdl.part.stages.Pair` has it, for wide items. Not with ``block``.

    Members
    -------
    w_data, w_en, w_rdy : In(width), In(1), Out(1)
    r_data, r_en, r_rdy : Out(width), In(1), Out(1)
    level : Out(range(depth + 1))
        Items held.
    """

    def __init__(self, width, depth, block=False, standing=0):
        self.width, self.depth, self.block, self.standing = width, depth, block, standing
        super().__init__({
            "w_data": In(width), "w_en": In(1), "w_rdy": Out(1),
            "r_data": Out(width), "r_en": In(1), "r_rdy": Out(1),
            "level": Out(range(depth + 1)),
        })

    def elaborate(self, platform):
        m = Module()
        places = self.depth - self.block
        whole = not places & (places - 1)       # a power of two
        m.submodules.storage = storage = Memory(shape=self.width, depth=places, init=[])
        write, read = storage.write_port(), storage.read_port(domain="sync" if self.block else "comb")
        produce = Signal(range(places))
        consume = Signal(range(places), init=1 % places if self.standing == 1 else 0)
        stored = Signal(range(places + 1), name="inner_level") if self.block else self.level
        put, take, some, last = Signal(), Signal(), Signal(), Signal()
        leaves = take           # the memory
        m.d.comb += [
            # Of a power of two the top bit says whether all are taken, without a comparison.
            self.w_rdy.eq(~stored[-1] if whole else stored != places),
            some.eq(stored != 0),
            put.eq(self.w_en & self.w_rdy),
            write.addr.eq(produce), write.data.eq(self.w_data),
            write.en.eq(self.w_rdy if self.standing == 2 else put),
            read.addr.eq(consume), last.eq(stored[1:] == 0),
        ]
        if self.block:
            m.d.comb += [take.eq(some & (~self.r_rdy | self.r_en)), read.en.eq(take), self.r_data.eq(read.data),
                         self.level.eq(stored + self.r_rdy)]
            m.d.sync += self.r_rdy.eq(take | (self.r_rdy & ~self.r_en))
        elif self.standing == 2:
            # What is put when none is behind the item that is shown goes there at once, and `consume` follows a cycle
            # later: until then nothing is read. `w_en` is late, and items wide: a free place takes whatever is there.
            m.submodules.heads = heads = Pair(self.width)
            passed = Signal()
            m.d.sync += passed.eq(put & last & heads.i.ready)
            leaves = passed | (~last & heads.i.ready)
            m.d.comb += [
                heads.i.valid.eq(put | ~last), heads.i.payload.eq(Mux(last, self.w_data, read.data)),
                self.r_data.eq(heads.o.payload), self.r_rdy.eq(heads.o.valid), heads.o.ready.eq(self.r_en),
                take.eq(self.r_rdy & self.r_en),
            ]
        elif self.standing:
            # `consume` is a place ahead. What comes when nothing is left behind the item that goes is the next one.
            m.d.comb += take.eq(self.r_rdy & self.r_en)
            m.d.sync += self.r_rdy.eq(put | (self.r_rdy & ~(take & last)))
            with m.If(~self.r_rdy | take):
                m.d.sync += self.r_data.eq(Mux(last, self.w_data, read.data))
        else:
            m.d.comb += [take.eq(some & self.r_en), self.r_rdy.eq(some), self.r_data.eq(read.data)]
        for pointer, moves in ((produce, put), (consume, leaves)):
            with m.If(moves):
                m.d.sync += pointer.eq(pointer + 1 if whole else Mux(pointer == places - 1, 0, pointer + 1))
        # A bit turns if all below it are ones, or zeros: without an adder, and late.
        more, fewer = put & ~take, take & ~put
        turns = ((more & stored[:k].all()) | (fewer & ~stored[:k].any()) for k in range(1, len(stored)))
        m.d.sync += stored.eq(stored ^ Cat(more | fewer, turns))
        return m
