"""Line reader: descriptors, Adamap nodes and page-table entries, in whole lines with low latency."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract import abi
from ..contract.params import REQUEST_LINES_MAX, exact_log2
from ..part.arbiter import Arbiter
from ..part.layouts import LineData, LineRequest
from ..part.logic import one_hot
from ..part.stages import SkidBuffer
from ..part.stream import Fifo
from .read_slots import ReadSlots
from .scatter import ScatteredBeat
from .tlp import SIZE_CODE_WIDTH, ReadTlp

SMALL_MRRS_LINES = 2      # lines of a request when the host allows 128-byte reads only


class LineReader(wiring.Component):
    """Reads of 1 to 4 aligned lines of a page for several clients, each delivered when it is complete.

    One request per cycle in, one line per cycle out; 6 cycles from a request's last completion to its
    first line. Round-robin among clients. When the host allows 128-byte reads only, a longer
    request takes two reads one after the other. A failed read delivers all its lines with ``error``.

    Parameters
    ----------
    clients : int
    first_tag, tags : int
        Tags of the engine; ``tags`` is a power of two.

    Members
    -------
    size : In(3)
        Largest read request, 128 bytes << ``size``.
    i : In(stream.Signature(LineRequest)).array(clients)
    o : Out(stream.Signature(LineData)).array(clients)
        ``ready`` is ignored.
    o_read : Out(stream.Signature(ReadTlp))
    completion : In(ScatteredBeat)
        Completions of any tag; those of other clients are ignored.
    completion_valid : In(1)
    busy : Out(1)
        Something was accepted and not yet delivered.
    """

    def __init__(self, *, clients, first_tag, tags):
        if clients < 1:
            raise ValueError("a line reader needs a client")
        self._clients, self._first_tag, self._tags = clients, first_tag, tags
        self._tag_width = exact_log2(tags)
        super().__init__({
            "size": In(SIZE_CODE_WIDTH),
            "i": In(stream.Signature(LineRequest)).array(clients),
            "o": Out(stream.Signature(LineData)).array(clients),
            "o_read": Out(stream.Signature(ReadTlp)),
            "completion": In(ScatteredBeat),
            "completion_valid": In(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        tags = self._tags
        m.submodules.arbiter = arbiter = Arbiter(LineRequest, self._clients)
        m.submodules.free = free = Fifo(self._tag_width, tags)
        m.submodules.complete = complete = Fifo(
            data.StructLayout({"slot": self._tag_width, "error": 1}), tags, output_registers=1)
        m.submodules.slots = slots = ReadSlots(first_tag=self._first_tag, tags=tags, rows=REQUEST_LINES_MAX)
        record_shape = data.StructLayout({
            "client": range(max(self._clients, 2)), "tag": 16, "count": 3, "line": 58, "left": 3})
        m.submodules.records = records = Memory(shape=record_shape, depth=tags, init=[])
        record_write, record_read = records.write_port(), records.read_port(domain="comb")
        m.submodules.out = out = SkidBuffer(ReadTlp)
        connect(m, out.o, flipped(self.o_read))
        for k in range(self._clients):
            connect(m, flipped(self.i[k]), arbiter.i[k])

        # Requests. Unused tags are counted up; used ones come back through the queue.
        fresh = Signal(range(tags + 1))
        slot = Signal(self._tag_width)
        slot_ready = Signal()
        again = Signal()                    # a second read of the same tag goes first
        again_slot = Signal(self._tag_width)
        again_line, again_count = Signal(58), Signal(3)
        request = arbiter.o.p
        count = Signal(3)
        small = Signal()
        m.d.comb += small.eq((self.size == 0) & (request.count > SMALL_MRRS_LINES))
        with m.If(fresh != tags):
            m.d.comb += [slot.eq(fresh), slot_ready.eq(1)]
        with m.Else():
            m.d.comb += [slot.eq(free.o.p), slot_ready.eq(free.o.valid)]
        with m.If(small):
            m.d.comb += count.eq(SMALL_MRRS_LINES)
        with m.Else():
            m.d.comb += count.eq(request.count)

        def tlp(line, lines, tag):
            return Cat(Const(0, 4), line, Const(0, 4), lines, Const(0, 4), Const(0xFF, 8), (tag + self._first_tag)[:8])

        with m.If(again):
            m.d.comb += [out.i.valid.eq(1), out.i.p.eq(tlp(again_line, again_count, again_slot))]
            with m.If(out.i.ready):
                m.d.sync += again.eq(0)
        with m.Else():
            m.d.comb += [
                out.i.valid.eq(arbiter.o.valid & slot_ready),
                out.i.p.eq(tlp(request.line, count, slot)),
                arbiter.o.ready.eq(out.i.ready & slot_ready),
                record_write.en.eq(out.i.valid & out.i.ready),
                free.o.ready.eq(record_write.en & (fresh == tags)),
            ]
            with m.If(record_write.en & (fresh != tags)):
                m.d.sync += fresh.eq(fresh + 1)
        m.d.comb += [
            record_write.addr.eq(slot),
            record_write.data.eq(Cat(arbiter.source, request.tag, request.count, request.line,
                                     (request.count - count)[:3])),
        ]

        # Completions.
        failed = Signal(tags)
        m.d.comb += [slots.completion.eq(self.completion), slots.completion_valid.eq(self.completion_valid)]
        m.d.comb += [
            complete.i.valid.eq(slots.filled & slots.done),
            complete.i.p.slot.eq(slots.slot),
            complete.i.p.error.eq(slots.error | failed.bit_select(slots.slot, 1)),
        ]

        # Read-out, one line per cycle. `halved`: slots that wait for their second read.
        halved, in_page = Signal(tags), exact_log2(abi.PAGE_LINES)
        record = record_read.data
        active, final, load = Signal(), Signal(), Signal()
        now = Signal(record_shape)
        now_slot, now_row, now_index, now_error = Signal(self._tag_width), Signal(2), Signal(2), Signal()
        second = Signal()
        in_flight = Signal(range(tags + 1))
        m.d.comb += [
            record_read.addr.eq(complete.o.p.slot),
            second.eq((record.left != 0) & ~halved.bit_select(complete.o.p.slot, 1)),
            final.eq(now_index == now.count - 1),
            load.eq(complete.o.valid & (~active | final)),
            complete.o.ready.eq(load & ~(second & again)),
            slots.read_en.eq(active), slots.read_slot.eq(now_slot), slots.read_row.eq(now_row),
            free.i.valid.eq(active & final), free.i.p.eq(now_slot),
            self.busy.eq(arbiter.o.valid | (in_flight != 0)),
        ]
        m.d.sync += in_flight.eq(in_flight + record_write.en - free.i.valid)
        m.d.sync += [now_row.eq(now_row + 1), now_index.eq(now_index + 1)]
        # These registers load without waiting for the decision, which comes late from the records.
        with m.If(~active | final):
            m.d.sync += [
                active.eq(complete.o.valid & ~second), now.eq(record), now_slot.eq(complete.o.p.slot),
                now_row.eq(record.line), now_index.eq(0), now_error.eq(complete.o.p.error),
            ]
        with m.If(~again):
            m.d.sync += [
                again_slot.eq(complete.o.p.slot), again_count.eq(record.left),
                again_line.eq(Cat((record.line[:in_page] + SMALL_MRRS_LINES)[:in_page], record.line[in_page:])),
            ]
        with m.If(load & second & ~again):
            m.d.sync += again.eq(1)
        first_half = one_hot(load & second & ~again, complete.o.p.slot, tags)
        loaded = one_hot(load & ~second, complete.o.p.slot, tags)
        m.d.sync += [failed.eq((failed | one_hot(slots.filled & slots.error, slots.slot, tags)) & ~loaded),
                     halved.eq((halved | first_half) & ~loaded)]
        valid_q = Signal(self._clients)
        side_q = Signal(data.StructLayout({"tag": 16, "index": 2, "last": 1, "error": 1}))
        m.d.sync += [
            valid_q.eq(Cat(active & (now.client == k) for k in range(self._clients))),
            side_q.eq(Cat(now.tag, now_index, final, now_error)),
        ]
        for k in range(self._clients):
            m.d.comb += [
                self.o[k].valid.eq(valid_q[k]),
                self.o[k].p.eq(Cat(slots.read_data, side_q)),
            ]
        return m
