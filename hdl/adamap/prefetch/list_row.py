"""The list that the prefetcher looks at: its row, the reach of its next read, and its end if it breaks."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams, exact_log2
from ...part.layouts import REPORT_EVENT, Report
from ...part.logic import above, at_most, height, steps_of_least, to_overflow
from ...table.kinds import QP_STATES
from ..cache.cached import extent_member, in_extent, split
from .ahead import ahead_row
from .fetches import LINES


def list_view(params):
    """A list: is it ``live``; ``block``, with which it goes on, and whether nodes behind each other may lie there;
    nodes ``ahead``, or more than a read fetches; is a header ``waiting`` for one."""
    return data.StructLayout({
        "generation": 8, "live": 1, "block": params.block_bits, "adjacent": 1, "ahead": range(LINES + 2), "waiting": 1})


class Job(enum.Enum, shape=2):
    """What the row of a list is read for."""

    LOOK = 0        # does it want more nodes?
    LAND = 1        # a read of it came back
    CONTROL = 2
    TURN_OUT = 3    # its last node may have to go


class ListRow(wiring.Component):
    """Reads the row of a list in three cycles: it waits for what doorbells of the last cycles told, reads, and keeps.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    start : In(1)
    qpn : In
        From the next cycle on, as long as ``o`` counts.
    post_stb, post_qpn : In
        Nodes were linked.
    row_en, row_index, ahead, qp
        As :class:`~weft.hdl.adamap.prefetch.prefetch.Prefetch` has them.
    waiting : In(1)
        A header waits for a node of ``qpn``, when ``kept`` is high.
    extent_base, extent_lines : arrays of In
    soon, kept : Out(1)
        Third cycle after ``start``, in which the row is there; and the one before.
    o, base, size : Out
        The list, and the extent in which its block is said to lie; a cycle after ``kept``.
    on_lands, block : In
        A node landed: the list goes on with this block.
    posted : Out(1)
        More nodes were linked since the row was read; a cycle late.
    """

    def __init__(self, params: CardParams):
        self.params = params
        width = params.qpn_width
        super().__init__({
            "start": In(1), "qpn": In(width), "post_stb": In(1), "post_qpn": In(width),
            "row_en": Out(1), "row_index": Out(width), "ahead": In(ahead_row(params)),
            "qp": Out(QP_STATES.read_port(params)), "waiting": In(1),
            "extent_base": In(58).array(params.knit_extents),
            "extent_lines": In(extent_member(params)).array(params.knit_extents),
            "soon": Out(1), "kept": Out(1),
            "o": Out(list_view(params)), "base": Out(58), "size": Out(extent_member(params)),
            "on_lands": In(1), "block": In(params.block_bits), "posted": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        row, o = self.ahead, self.o
        coming = Signal()
        m.d.comb += [
            coming.eq(self.post_stb & (self.post_qpn == self.qpn)),
            self.row_en.eq(self.soon), self.qp.en.eq(self.soon), self.row_index.eq(self.qpn),
            self.qp.index.eq(self.qpn),
        ]
        settling = Signal()
        m.d.sync += [settling.eq(self.start), self.soon.eq(settling), self.kept.eq(self.soon),
                     self.posted.eq(coming | (self.posted & ~self.soon))]
        with m.If(self.kept):
            # A multiplexer's select is not inverted on its way.
            m.d.sync += [part.eq(in_extent(self.params, [*reversed(values)], split(self.params, row.inverse)[0]))
                         for part, values in ((self.base, self.extent_base), (self.size, self.extent_lines))]
            m.d.sync += [
                o.generation.eq(self.qp.entry.generation), o.live.eq(row.inverse != 0), o.block.eq(~row.inverse),
                o.adjacent.eq(row.adjacent), o.ahead.eq(Mux(above(row.count, LINES), LINES + 1, row.count)),
                o.waiting.eq(self.waiting),
            ]
        with m.Elif(self.on_lands):
            m.d.sync += o.block.eq(self.block)
        return m


def reserve(params):
    """Entries of the cache that a list leaves to others, but for its first nodes."""
    return params.cache_entries // 8


class ReadReach(wiring.Component):
    """What a list may have in the cache, and how much of it lies where. Combinational; a block of its own, as
    :class:`~weft.hdl.part.select.IndexOf` is.

    A read stays within the page, the extent, the nodes that are linked, and the room that the list has in the cache. An
    eighth of the cache is left free, but for one node.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    block : In(params.block_bits)
        The list's next node.
    base, size : In
        Of its extent.
    ahead : In(range(LINES + 2))
        Nodes linked, or more than a read fetches.
    cached, depth, watermark : In
        Nodes of the list in the cache; how many it may have there, and how many it should at least.
    free : In(range(cache_entries + 1))
        Entries that are free.
    room, low : Out(1)
        It may have more; it should.
    line : Out(58)
    inside : Out(1)
        The block is one of the extent; otherwise ``lines`` means nothing.
    lines : Out(range(LINES + 1))
        How many consecutive blocks may be read, if there is ``room``.
    """

    def __init__(self, params: CardParams):
        self.params = params
        count = range(params.cache_entries + 1)
        most = range(2 * params.cache_entries + 1)
        super().__init__({
            "block": In(params.block_bits), "base": In(58), "size": In(extent_member(params)),
            "ahead": In(range(LINES + 2)), "free": In(count), "cached": In(count),
            "depth": In(most), "watermark": In(most), "room": Out(1), "low": Out(1),
            "line": Out(58), "inside": Out(1), "lines": Out(range(LINES + 1)),
        })

    def elaborate(self, platform):
        m = Module()
        p, offset = self.params, split(self.params, self.block)[1]
        within = Signal(extent_member(p))       # blocks to the end of the extent
        room, listed, left, spare, page = (Signal(range(LINES + 1), name=name)
                                           for name in ("lines_of_room", "listed", "left", "spare", "page"))
        m.d.comb += [
            self.line.eq(self.base + offset), within.eq(self.size - offset),
            # The last two numbers are no blocks.
            self.inside.eq((offset < self.size) & ~self.block[1:].all()),
            self.room.eq(self.cached < self.depth), self.low.eq(self.cached < self.watermark),
            room.eq(at_most(LINES, (self.depth - self.cached)[:len(self.depth)])),
            listed.eq(at_most(LINES, self.ahead)),
            left.eq(at_most(LINES, within)), page.eq(to_overflow(LINES, self.line[:exact_log2(abi.PAGE_LINES)])),
            spare.eq(Mux(above(self.free, reserve(p)), at_most(LINES, self.free - reserve(p)), 1)),
            self.lines.eq(height(steps_of_least(LINES, room, listed, left, spare, page))),
        ]
        return m


class ListBreak(wiring.Component):
    """Ends a list, reports why, and has the QP stopped: one after the other, each when it is taken.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    start, reason : In
        The list breaks.
    qpn, generation : In
        Whose it is, from the next cycle until ``done``.
    end, end_ready : Out(1), In(1)
        The table of the nodes ahead is asked to end it.
    o_report : Out(stream.Signature(Report))
        Kind QP_ERROR.
    o_qp_error : Out(stream.Signature(24))
    done : Out(1)
    """

    def __init__(self, params: CardParams):
        super().__init__({
            "start": In(1), "reason": In(8), "qpn": In(params.qpn_width), "generation": In(8),
            "end": Out(1), "end_ready": In(1),
            "o_report": Out(stream.Signature(Report)), "o_qp_error": Out(stream.Signature(24)), "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        event, reason = Signal(REPORT_EVENT), Signal.like(self.reason)
        m.d.comb += [
            event.kind.eq(abi.ReportKind.QP_ERROR.value), event.reason.eq(reason), event.qpn.eq(self.qpn),
            event.generation.eq(self.generation), self.o_report.p.entry.eq(event),
            self.o_qp_error.payload.eq(self.qpn),
        ]
        with m.FSM():
            with m.State("IDLE"):  # waits for a list that breaks
                m.d.sync += reason.eq(self.reason)
                with m.If(self.start):
                    m.next = "END"
            with m.State("END"):  # waits for the table
                m.d.comb += self.end.eq(1)
                with m.If(self.end_ready):
                    m.next = "REPORT"
            with m.State("REPORT"):  # waits for the report queue
                m.d.comb += self.o_report.valid.eq(1)
                with m.If(self.o_report.ready):
                    m.next = "STOP_QP"
            with m.State("STOP_QP"):  # waits for the command processor
                m.d.comb += [self.o_qp_error.valid.eq(1), self.done.eq(self.o_qp_error.ready)]
                with m.If(self.o_qp_error.ready):
                    m.next = "IDLE"
        return m
