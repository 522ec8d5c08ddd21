"""Payload reads of one client: many requests in flight, one contiguous byte stream out."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract.params import exact_log2
from ..part.layouts import BEAT_BYTES, Beat, DmaRequest
from ..part.logic import greater_than, one_hot
from ..part.stages import PipelineRegister
from ..part.stream import Fifo
from .gather import Gather
from .read_slots import ReadSlots
from .scatter import ScatteredBeat
from .splitter import Splitter
from .tlp import SIZE_CODE_WIDTH, Piece, ReadTlp, byte_enables


class BulkReader(wiring.Component):
    """Reads request groups and delivers each as one packet, in request order.

    A tag is a slot. Slots are allocated in ring order, filled by completions in any order and read out in
    ring order; so completions of different tags may overtake each other and one request may have several
    completions. One beat per cycle sustained; 2 cycles from a request to its first read, 10 from a slot's
    last completion to its first beat. A request that failed delivers its bytes with undefined values and ``error`` on
    the group's last beat.

    Parameters
    ----------
    first_tag, tags : int
        Tags of this client.
    slot_bytes : int
        Largest read request, a power of two from 128 to 4096.

    Members
    -------
    size : In(3)
        Largest read request, 128 bytes << ``size``, not above ``slot_bytes``.
    i : In(stream.Signature(DmaRequest))
        Lengths from 1 to 4096.
    o : Out(stream.Signature(Beat))
    o_read : Out(stream.Signature(ReadTlp))
    completion : In(ScatteredBeat)
        Completions of any tag; those of other clients are ignored.
    completion_valid : In(1)
    busy : Out(1)
        A group was accepted and not yet delivered.
    """

    def __init__(self, *, first_tag, tags, slot_bytes):
        if tags < 1:
            raise ValueError("a bulk reader needs a tag")
        self._first_tag, self._tags = first_tag, tags
        self._rows = slot_bytes // BEAT_BYTES
        self._slot_log2 = exact_log2(slot_bytes)
        super().__init__({
            "size": In(SIZE_CODE_WIDTH),
            "i": In(stream.Signature(DmaRequest)),
            "o": Out(stream.Signature(Beat)),
            "o_read": Out(stream.Signature(ReadTlp)),
            "completion": In(ScatteredBeat),
            "completion_valid": In(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        tags, row_width = self._tags, exact_log2(self._rows)
        record_shape = data.StructLayout({"offset": 6, "row": row_width, "length": self._slot_log2 + 1, "last": 1})
        m.submodules.splitter = splitter = Splitter()
        m.submodules.pieces = pieces = PipelineRegister(Piece)
        m.submodules.records = records = Fifo(record_shape, tags, output_registers=1)
        m.submodules.slots = slots = ReadSlots(first_tag=self._first_tag, tags=tags, rows=self._rows)
        m.submodules.gather = gather = Gather()
        connect(m, flipped(self.i), splitter.i)
        connect(m, splitter.o, pieces.i)
        connect(m, gather.o, flipped(self.o))
        m.d.comb += splitter.size.eq(self.size)

        # Groups inside, and whether one is partly accepted.
        groups = Signal(range(tags + 9))    # upper bound of slots, splitter, its register and aligner
        opened = Signal()
        accepted = self.i.valid & self.i.ready
        m.d.sync += groups.eq(groups + (accepted & self.i.p.last) - (self.o.valid & self.o.ready & self.o.p.last))
        with m.If(accepted):
            m.d.sync += opened.eq(~self.i.p.last)
        m.d.comb += self.busy.eq((groups != 0) | opened)

        # Requests: allocate the next slot of the ring.
        tail, slot = Signal(range(tags)), Signal(range(tags))
        used = Signal(range(tags + 1))
        taken, released = Signal(), Signal()
        piece = pieces.o.p
        dwords, first_be, last_be = byte_enables(m, piece.address, piece.length)
        m.d.comb += [
            self.o_read.valid.eq(pieces.o.valid & (used != tags)),
            self.o_read.p.eq(Cat(piece.address[2:], dwords, first_be, last_be, (tail + self._first_tag)[:8])),
            taken.eq(self.o_read.valid & self.o_read.ready),
            pieces.o.ready.eq(self.o_read.ready & (used != tags)),
            records.i.valid.eq(taken),
            records.i.p.eq(Cat(piece.address[:6], piece.address[6:6 + row_width],
                               piece.length[:self._slot_log2 + 1], piece.last)),
        ]
        m.d.sync += used.eq(used + taken - released)
        with m.If(taken):
            m.d.sync += tail.eq(Mux(tail == tags - 1, 0, tail + 1))

        # Completions: fill the slot, note that it is complete.
        done, failed = Signal(tags), Signal(tags)
        m.d.comb += [slots.completion.eq(self.completion), slots.completion_valid.eq(self.completion_valid)]

        # Read-out: walk the slots in ring order, one row per cycle. `step` is late, as the aligner may stall.
        at = Signal(tags, init=1)           # one-hot: `head`
        head, following = Signal(range(tags)), Signal(range(tags), init=1)
        complete = Signal()                 # the slot at `head` has all data
        active, load, step, final = Signal(), Signal(), Signal(), Signal()
        row, low = Signal(row_width), Signal(6)
        span = Signal(self._slot_log2 + 1)   # bytes left, counted from the start of the row; a slot is aligned
        last, error = Signal(), Signal()
        record = records.o.p
        read_valid, moves = Signal(), Signal()
        read_side = Signal.like(gather.i.p)
        fill = Signal(6)
        row_end, total = Signal(7), Signal(7)
        m.d.comb += [
            moves.eq(~read_valid | gather.i.ready), step.eq(active & moves),
            final.eq(~greater_than(span, BEAT_BYTES)),
            load.eq((~active | (moves & final)) & records.o.valid & complete),
            records.o.ready.eq(load),
            released.eq(step & final),
            slots.read_en.eq(step), slots.read_slot.eq(slot), slots.read_row.eq(row),
            row_end.eq(Mux(final, span, BEAT_BYTES)),
            total.eq(fill + row_end - low),
            gather.i.valid.eq(read_valid),
            gather.i.p.eq(read_side),
            gather.i.p.data.eq(slots.read_data),
        ]
        with m.If(moves):
            m.d.sync += [
                read_valid.eq(active),
                read_side.shift.eq(low - fill),
                read_side.fill.eq(fill),
                read_side.total.eq(total),
                read_side.end.eq(final & last),
                read_side.error.eq(error),
            ]
        with m.If(step):
            m.d.sync += [row.eq(row + 1), span.eq(span - BEAT_BYTES), low.eq(0),
                         fill.eq(Mux(final & last, 0, total))]
            with m.If(final):
                m.d.sync += active.eq(0)
        with m.If(load):
            m.d.sync += [
                active.eq(1), slot.eq(head), head.eq(following),
                following.eq(Mux(following == tags - 1, 0, following + 1)), at.eq(at.rotate_left(1)),
                row.eq(record.row), low.eq(record.offset), span.eq(record.offset + record.length),
                last.eq(record.last), error.eq((failed & at).any()),
            ]
        loaded, ends = at & load.replicate(tags), slots.filled & slots.done
        m.d.sync += [
            complete.eq(Mux(load, (done & at.rotate_left(1)).any() | (ends & (slots.slot == following)),
                            (done & at).any() | (ends & (slots.slot == head)))),
            done.eq((done & ~loaded) | one_hot(ends, slots.slot, tags)),
            failed.eq((failed & ~loaded) | one_hot(slots.filled & slots.error, slots.slot, tags)),
        ]
        return m
