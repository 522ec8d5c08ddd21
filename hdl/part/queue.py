"""FIFO memory and pointers."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .stages import PingPongBuffer


class Queue(wiring.Component):
    """First-in first-out queue, cycle-equivalent to Amaranth's ``SyncFIFO``, or to ``SyncFIFOBuffered`` with ``block``.

    There are two levels of logic from ``w_en`` and ``r_en``, which are often late, to every register; Amaranth's queue
    has an adder of four levels there.

    One item per cycle each way. Latency 1 cycle, with ``block`` 2.

    Parameters
    ----------
    width, depth : int
        Bits of an item; number of items, at least 2 with ``block``.
    block : bool
        Use block memory, whose read takes a cycle: the last item read is in its output register.
    output_registers : int
        Output registers: number of next items (0 to 2) held in registers instead of distributed memory, so that a read
        that depends on the next item begins earlier. The cycles are the same. Two alternate, as in
        :class:`~weft.hdl.part.stages.PingPongBuffer`, for wide items. Not with ``block``.

    Members
    -------
    w_data, w_en, w_rdy : In(width), In(1), Out(1)
    r_data, r_en, r_rdy : Out(width), In(1), Out(1)
    level : Out(range(depth + 1))
        Items held.
    """

    def __init__(self, width, depth, block=False, output_registers=0):
        self.width, self.depth, self.block, self.output_registers = width, depth, block, output_registers
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
        consume = Signal(range(places), init=1 % places if self.output_registers == 1 else 0)
        stored = Signal(range(places + 1), name="inner_level") if self.block else self.level
        put, take, some, last = Signal(), Signal(), Signal(), Signal()
        leaves = take           # strobe: an item leaves the memory
        m.d.comb += [
            # For a power of two, the top bit of the level is 1 if the queue is full.
            self.w_rdy.eq(~stored[-1] if whole else stored != places),
            some.eq(stored != 0),
            put.eq(self.w_en & self.w_rdy),
            write.addr.eq(produce), write.data.eq(self.w_data),
            write.en.eq(self.w_rdy if self.output_registers == 2 else put),
            read.addr.eq(consume), last.eq(stored[1:] == 0),
        ]
        if self.block:
            m.d.comb += [take.eq(some & (~self.r_rdy | self.r_en)), read.en.eq(take), self.r_data.eq(read.data),
                         self.level.eq(stored + self.r_rdy)]
            m.d.sync += self.r_rdy.eq(take | (self.r_rdy & ~self.r_en))
        elif self.output_registers == 2:
            # An item written while the memory holds none goes to the output directly, and `consume` follows a cycle
            # later; nothing is read until then. `w_en` is late and items are wide, so a free entry is written in every
            # cycle.
            m.submodules.heads = heads = PingPongBuffer(self.width)
            passed = Signal()
            m.d.sync += passed.eq(put & last & heads.i.ready)
            leaves = passed | (~last & heads.i.ready)
            m.d.comb += [
                heads.i.valid.eq(put | ~last), heads.i.payload.eq(Mux(last, self.w_data, read.data)),
                self.r_data.eq(heads.o.payload), self.r_rdy.eq(heads.o.valid), heads.o.ready.eq(self.r_en),
                take.eq(self.r_rdy & self.r_en),
            ]
        elif self.output_registers:
            # `consume` is one entry ahead. An item written while the memory is empty becomes the next output item.
            m.d.comb += take.eq(self.r_rdy & self.r_en)
            m.d.sync += self.r_rdy.eq(put | (self.r_rdy & ~(take & last)))
            with m.If(~self.r_rdy | take):
                m.d.sync += self.r_data.eq(Mux(last, self.w_data, read.data))
        else:
            m.d.comb += [take.eq(some & self.r_en), self.r_rdy.eq(some), self.r_data.eq(read.data)]
        for pointer, moves in ((produce, put), (consume, leaves)):
            with m.If(moves):
                m.d.sync += pointer.eq(pointer + 1 if whole else Mux(pointer == places - 1, 0, pointer + 1))
        # A bit toggles if all lower bits are ones (up) or zeros (down): no adder after the late `put` and `take`.
        more, fewer = put & ~take, take & ~put
        turns = ((more & stored[:k].all()) | (fewer & ~stored[:k].any()) for k in range(1, len(stored)))
        m.d.sync += stored.eq(stored ^ Cat(more | fewer, turns))
        return m
