"""Reorder buffer for descriptors read from host memory."""

from operator import xor

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..contract.params import REQUEST_LINES_MAX, exact_log2
from ..part.layouts import BEAT_BITS, LineData
from ..part.logic import reduce_tree
from .output_register import OutputRegister

CHECK_BITS = abi.WORK.by_name["check"].width
MISSING_BITS = exact_log2(REQUEST_LINES_MAX)


class FetchedDescriptor(data.Struct):
    """A descriptor as read.

    ``failed``: the read failed. ``damaged``: its words do not XOR to 0, or its phase is wrong.
    """

    data: BEAT_BITS
    damaged: 1
    failed: 1


def reorder_tag(places):
    """Return the layout of the tag of a read: entry of its first line, and number of lines that follow."""
    return data.StructLayout({"place": exact_log2(places), "tail": MISSING_BITS})


def _folded(word):
    """Return the XOR of the words of a descriptor: 0 for a valid one."""
    return reduce_tree((word.word_select(k, CHECK_BITS) for k in range(BEAT_BITS // CHECK_BITS)), xor)


class ReorderBuffer(wiring.Component):
    """Reorder buffer: entries are allocated in order, filled in any order, and leave in order.

    One line per cycle in, one out, 3 cycles after it came. A line that ends its request early fails the entries of the
    missing lines.

    The flags of a line are in a distributed memory beside its data, and in registers while the line leaves: the output
    of a block RAM is late.

    Only memories grow with the number of entries. An entry is filled if two bits of it differ: one toggles when a line
    comes, the other when it leaves. ``clear`` makes them equal, one entry per cycle.

    Parameters
    ----------
    places : int
        Number of entries, a power of two, at least 4.
    puts : bool, optional
        Add the pushed input (``put``).

    Members
    -------
    i_line : In(stream.Signature(LineData))
        ``tag`` is a :func:`reorder_tag`. Always accepted.
    put, put_data : In(1), In(512)
        Fill entry ``next`` without a read; not in a cycle with a line.
    take, count : In(1), In(range(5))
        Allocate ``count`` entries from ``next`` on.
    next : Out(range(places))
        The first free entry.
    used : Out(range(places + 1))
        Number of allocated entries.
    phase : In(1)
        Expected bit 0 of the next line to leave.
    leaves : Out(1)
        Strobe: a line leaves, and will be offered.
    o : Out(stream.Signature(FetchedDescriptor))
    answered : Out(1)
        Strobe: the last line of a request came.
    clear : In(1)
        Discard the contents; hold for ``places`` cycles, in which nothing comes and nothing is allocated.
    """

    def __init__(self, places, puts=False):
        self._places, self._puts = places, puts
        super().__init__({
            "i_line": In(stream.Signature(LineData)),
            "put": In(1), "put_data": In(BEAT_BITS),
            "take": In(1), "count": In(range(REQUEST_LINES_MAX + 1)),
            "next": Out(range(places)), "used": Out(range(places + 1)),
            "phase": In(1), "leaves": Out(1),
            "o": Out(stream.Signature(FetchedDescriptor)),
            "answered": Out(1), "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        places = self._places
        m.submodules.held = held = Memory(shape=BEAT_BITS, depth=places, init=[])
        m.submodules.good = good = Memory(shape=3, depth=places, init=[])
        m.submodules.missing = missing = Memory(shape=MISSING_BITS, depth=places, init=[])
        m.submodules.came = came = Memory(shape=1, depth=places, init=[])
        m.submodules.left = left = Memory(shape=1, depth=places, init=[])
        comes, leaves = held.write_port(), held.read_port()
        good_write, good_read = good.write_port(), good.read_port(domain="comb")
        missing_write, missing_read = missing.write_port(), missing.read_port(domain="comb")
        came_write = came.write_port()
        came_here, came_after = came.read_port(domain="comb"), came.read_port(domain="comb")
        left_write = left.write_port()
        left_there, left_after = left.read_port(domain="comb"), left.read_port(domain="comb")

        # Input: a line comes.
        valid = Signal()
        line = Signal(LineData)
        place = Signal(range(places))
        rest = Signal(MISSING_BITS)         # lines of its request that follow
        fold = Signal(CHECK_BITS)           # XOR of the words of `line`
        m.d.comb += [
            self.i_line.ready.eq(1), self.answered.eq(valid & line.last),
            comes.addr.eq(place), comes.en.eq(valid), comes.data.eq(line.data),
            good_write.addr.eq(place), good_write.en.eq(valid),
            good_write.data.eq(Cat(fold != 0, line.error, line.data[0])),
            missing_write.addr.eq(place), missing_write.en.eq(valid),
            missing_write.data.eq(Mux(line.last, rest, 0)),
            left_there.addr.eq(place), came_write.addr.eq(place), came_write.en.eq(valid),
            came_write.data.eq(~left_there.data),
        ]
        tag = data.View(reorder_tag(places), self.i_line.p.tag[:reorder_tag(places).size])
        m.d.sync += [valid.eq(self.i_line.valid | self.put), line.eq(self.i_line.payload),
                     fold.eq(_folded(self.i_line.p.data)), place.eq(tag.place + self.i_line.p.index),
                     rest.eq(tag.tail - self.i_line.p.index)]
        if self._puts:      # `put` is late and its data wide: load the pushed data whenever there is no line
            with m.If(~self.i_line.valid):
                m.d.sync += [line.eq(0), line.data.eq(self.put_data), fold.eq(_folded(self.put_data)),
                             place.eq(self.next)]

        # Output: a line leaves. `absent`: number of entries after the last one that left whose lines will not come. The
        # fill state of the next entry is read a cycle before it may leave.
        at = Signal(range(places))
        after = Signal(range(places), init=1)
        absent = Signal(MISSING_BITS)
        there = Signal()
        behind, leave = Signal(), self.leaves
        damaged, failed, phase = Signal(), Signal(), Signal()       # flags of the line at `at`
        m.submodules.outlet = out = OutputRegister()
        m.d.comb += [
            missing_read.addr.eq(at), leaves.addr.eq(at), good_read.addr.eq(at),
            came_here.addr.eq(at), came_after.addr.eq(after), left_after.addr.eq(after),
            behind.eq((came_after.data != left_after.data) | (valid & (place == after))),
            out.some.eq(there | (absent != 0)), out.clear.eq(self.clear), out.ready.eq(self.o.ready),
            self.o.valid.eq(out.valid), leave.eq(out.moves), leaves.en.eq(out.free),
            left_write.addr.eq(at), left_write.data.eq(came_here.data), left_write.en.eq(leave | self.clear),
            self.o.p.data.eq(leaves.data), Cat(damaged, failed, phase).eq(good_read.data),
        ]
        with m.If(out.free):
            m.d.sync += [self.o.p.damaged.eq(damaged | (phase != self.phase)),
                         self.o.p.failed.eq(failed | (absent != 0))]
        with m.If(leave):
            m.d.sync += absent.eq(Mux(absent != 0, absent - 1, missing_read.data))
        m.d.sync += there.eq(there | (valid & (place == at)))
        with m.If(leave | self.clear):
            m.d.sync += [at.eq(after), after.eq(after + 1), there.eq(behind)]

        def moved(number, by):      # select between sums: `take` and `put` are late
            return Mux(self.take, number + self.count + by, number + by)

        m.d.sync += [
            self.next.eq(Mux(self.put, moved(self.next, 1), moved(self.next, 0))),
            self.used.eq(Mux(self.put == leave, moved(self.used, 0),
                             Mux(leave, moved(self.used, -1), moved(self.used, 1)))),
        ]
        with m.If(self.clear):
            m.d.sync += [absent.eq(0), self.used.eq(0), self.next.eq(at + 1)]
        return m
