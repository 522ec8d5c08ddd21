"""State of the list that the prefetcher works on: its row, the size of its next read, and its end if it breaks."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams, exact_log2
from ...part.layouts import REPORT_EVENT, Report
from ...part.logic import distance_to_overflow, greater_than, saturate, thermometer_count, thermometer_min
from ...table.kinds import QP_STATES
from ..cache.cached import extent_member, in_extent, split
from .ahead import ahead_row
from .fetches import LINES


def list_view(params):
    """Return the layout of a list's state.

    ``live``: the list exists; ``block``: its next node, ``adjacent``: consecutive nodes may follow there; ``ahead``:
    number of linked nodes, saturated at one more than a read fetches; ``waiting``: a header waits for one.
    """
    return data.StructLayout({
        "generation": 8, "live": 1, "block": params.block_bits, "adjacent": 1, "ahead": range(LINES + 2), "waiting": 1})


class ListStateUse(enum.Enum, shape=2):
    """Use of the row of a list."""

    LOOK = 0        # does it need more nodes?
    FILL = 1        # a read of it came back
    CONTROL = 2
    EVICT = 3    # its last node may be evicted


class ListState(wiring.Component):
    """Reads the row of a list in three cycles: wait for doorbells of the last cycles, read, store.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    start : In(1)
    qpn : In
        From the next cycle on, as long as ``o`` is used.
    post_stb, post_qpn : In
        Nodes were linked.
    row_en, row_index, ahead, qp
        As for :class:`~weft.hdl.adamap.prefetch.prefetch.Prefetch`.
    waiting : In(1)
        A header waits for a node of ``qpn``, when ``kept`` is high.
    extent_base, extent_lines : arrays of In
    soon, kept : Out(1)
        The cycle before the row is there; that cycle, the third after ``start``.
    o, base, size : Out
        The list, and the extent of its block; a cycle after ``kept``.
    on_fill, block : In
        A node was filled: the list continues with this block.
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
            "on_fill": In(1), "block": In(params.block_bits), "posted": Out(1),
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
            # Extents in reverse order, so that the select is not inverted.
            m.d.sync += [part.eq(in_extent(self.params, [*reversed(values)], split(self.params, row.inverse)[0]))
                         for part, values in ((self.base, self.extent_base), (self.size, self.extent_lines))]
            m.d.sync += [
                o.generation.eq(self.qp.entry.generation), o.live.eq(row.inverse != 0), o.block.eq(~row.inverse),
                o.adjacent.eq(row.adjacent), o.ahead.eq(Mux(greater_than(row.count, LINES), LINES + 1, row.count)),
                o.waiting.eq(self.waiting),
            ]
        with m.Elif(self.on_fill):
            m.d.sync += o.block.eq(self.block)
        return m


def reserve(params):
    """Return the number of cache entries that a list leaves to others, except for its first nodes."""
    return params.cache_entries // 8


class ReadBudget(wiring.Component):
    """Number of blocks that the next read of a list may fetch. Combinational.

    Kept as a block because per-module mapping trades depth for area (docs/development.md, "Size and longest paths").

    A read stays within the page, the extent, the linked nodes, and the space that the list has in the cache. An
    eighth of the cache is left free, except for one node.

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
        Nodes of the list in the cache; their maximum, and the minimum to aim for.
    free : In(range(cache_entries + 1))
        Free entries.
    below_depth, below_watermark : Out(1)
        The list is below its maximum; below its minimum.
    line : Out(58)
    inside : Out(1)
        The block is within the extent; otherwise ``lines`` is undefined.
    lines : Out(range(LINES + 1))
        Number of consecutive blocks to read, if there is ``below_depth``.
    """

    def __init__(self, params: CardParams):
        self.params = params
        count = range(params.cache_entries + 1)
        most = range(2 * params.cache_entries + 1)
        super().__init__({
            "block": In(params.block_bits), "base": In(58), "size": In(extent_member(params)),
            "ahead": In(range(LINES + 2)), "free": In(count), "cached": In(count),
            "depth": In(most), "watermark": In(most), "below_depth": Out(1), "below_watermark": Out(1),
            "line": Out(58), "inside": Out(1), "lines": Out(range(LINES + 1)),
        })

    def elaborate(self, platform):
        m = Module()
        p, offset = self.params, split(self.params, self.block)[1]
        within = Signal(extent_member(p))       # blocks to the end of the extent
        depth_left, listed, left, spare, page = (Signal(range(LINES + 1), name=name)
                                           for name in ("depth_left", "listed", "left", "spare", "page"))
        m.d.comb += [
            self.line.eq(self.base + offset), within.eq(self.size - offset),
            # The last two numbers are no blocks.
            self.inside.eq((offset < self.size) & ~self.block[1:].all()),
            self.below_depth.eq(self.cached < self.depth), self.below_watermark.eq(self.cached < self.watermark),
            depth_left.eq(saturate(LINES, (self.depth - self.cached)[:len(self.depth)])),
            listed.eq(saturate(LINES, self.ahead)),
            left.eq(saturate(LINES, within)),
            page.eq(distance_to_overflow(LINES, self.line[:exact_log2(abi.PAGE_LINES)])),
            spare.eq(Mux(greater_than(self.free, reserve(p)), saturate(LINES, self.free - reserve(p)), 1)),
            self.lines.eq(thermometer_count(thermometer_min(LINES, depth_left, listed, left, spare, page))),
        ]
        return m


class ListBreak(wiring.Component):
    """Ends a list, reports the reason, and stops the QP: in this order, each step when the one before was accepted.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    start, reason : In
        The list breaks.
    qpn, generation : In
        Of the list, from the next cycle until ``done``.
    end, end_ready : Out(1), In(1)
        Request to the table of the nodes ahead.
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
