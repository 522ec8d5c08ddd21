"""Prefetcher: fetches the nodes of every list ahead of the matcher."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.counter_ports import count_outputs
from ...part.layouts import LineData, LineRequest, QpRef, Report
from ...part.logic import greater_than, saturate
from ...table.kinds import QP_STATES
from ..cache.cached import extent_member, fill_port
from ..window.control import ControlKind, ControlOp
from .ahead import AheadKind, ahead_row, ahead_update
from .evict import Evict
from .fetches import LINES, Fetches, fetch_slots
from .fill import Fill
from .list_state import ListBreak, ListState, ListStateUse, ReadBudget, reserve
from .work_list import WorkList


class Prefetch(wiring.Component):
    """Watermark prefetcher: follows the pointers of many lists concurrently, one read in flight per list.

    It has no state per list: the next block and the number of nodes linked ahead are in :class:`AheadTable`, RSNs and
    the number of cached nodes in the cache. A node must go on where its list ends in the cache; the first one of an
    empty list may have any RSN. A list whose last node was fetched continues at the block of the next doorbell. A last
    node that got a successor after it was read is read again, for its pointer.

    Where a list's nodes are in consecutive blocks (marked in the predecessor), a read fetches up
    to 4 of them, as far as they are linked and there is space; a block that is not the successor is discarded.

    The cache is shared by need. The first node of a list may have any entry, and further ones leave an eighth of the
    cache free, unless a header waits for them. A read needs no entry: its blocks are kept beside the cache until the
    list may have one, usually when the list's head retires; so the successor of every head is at hand, although heads
    alone may fill the cache. Kept blocks are discarded, and read again later, when their slot is needed for a list with
    a waiting header or without a node. For such a list the untouched tail node of another list may be evicted, too,
    unless it is also that list's head.

    Independent of QP control state. A list is examined after a doorbell, a request of the matcher, or a completed
    read: :class:`~weft.hdl.adamap.prefetch.list_state.ListState` reads its state. That takes 5 cycles and
    one more if a read is issued, a completed read 6 and 4 per further block
    (:class:`~weft.hdl.adamap.prefetch.fill.Fill`), a kept one 8, and then its list is examined again.
    When a list with a waiting header finds no entry, or one without a node, an entry of another list is evicted:
    :class:`~weft.hdl.adamap.prefetch.evict.Evict`.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    post_stb, post_qpn : In
        Nodes were linked.
    i_demand : In(stream.Signature(24))
    i_control : In(stream.Signature(ControlOp))
        DESTROY ends when no fetch of the QP is in flight.
    query_ahead, query_cached : Out(32)
        Nodes linked and not fetched; nodes in the cache.
    cache : Out(fill_port(params))
    row_en, row_index : Out
        Reads ``ahead`` (a cycle later).
    ahead : In(ahead_row(params))
        Nodes linked and not fetched, and the first of them.
    step : Out(stream.Signature(ahead_step(params)))
        One was fetched, or is fetched again, or the list ends. The QP has been stable for a cycle.
    qp : Out(QP_STATES.read_port(params))
        For the QP's generation.
    extent_base, extent_lines : arrays of In
        Extents; ``lines`` 0: empty.
    prefetch_depth, prefetch_watermark : In(32)
    wake_stb, wake_qpn : Out
        A list changed.
    waiting_qpn, waiting : Out, In
    exclusive, granted : Out(1), In(1)
        As for :class:`~weft.hdl.adamap.match.matcher.Matcher`.
    o_force : Out(stream.Signature(QpRef))
    o_line, i_line
    o_report : Out(stream.Signature(Report))
        Kind QP_ERROR.
    o_qp_error : Out(stream.Signature(24))
    count_prefetches : Out(1)
        Reads issued.
    idle : Out(1)
    """

    COUNTS = {"prefetches": 1}

    def __init__(self, params: CardParams):
        self.params = params
        width = params.qpn_width
        super().__init__({
            "post_stb": In(1), "post_qpn": In(width),
            "i_demand": In(stream.Signature(24)),
            "i_control": In(stream.Signature(ControlOp)),
            "query_ahead": Out(32), "query_cached": Out(32),
            "cache": Out(fill_port(params)),
            "row_en": Out(1), "row_index": Out(width), "ahead": In(ahead_row(params)),
            "step": Out(stream.Signature(ahead_update(params))), "qp": Out(QP_STATES.read_port(params)),
            "extent_base": In(58).array(params.knit_extents),
            "extent_lines": In(extent_member(params)).array(params.knit_extents),
            "prefetch_depth": In(32), "prefetch_watermark": In(32),
            "wake_stb": Out(1), "wake_qpn": Out(24),
            "waiting_qpn": Out(24), "waiting": In(1),
            "exclusive": Out(1), "granted": In(1),
            "o_force": Out(stream.Signature(QpRef)),
            "o_line": Out(stream.Signature(LineRequest)), "i_line": In(stream.Signature(LineData)),
            "o_report": Out(stream.Signature(Report)), "o_qp_error": Out(stream.Signature(24)),
            **count_outputs(self.COUNTS), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        self._make_blocks(m)
        self._connect_row(m)
        self._connect_budget(m)
        self._connect_fill(m)
        self._connect_eviction(m)
        self._connect_fetches(m)
        step = self.step
        # A wake is two cycles late: by then all state has changed. The end of a list is visible a cycle later.
        waked, waked_qpn, ended = Signal(), Signal.like(self._qpn), Signal()
        m.d.sync += [ended.eq(step.valid & step.ready & (step.p.kind == AheadKind.END)),
                     waked.eq(self._fill.fills | ended), waked_qpn.eq(self._qpn),
                     self.wake_stb.eq(waked), self.wake_qpn.eq(waked_qpn)]
        # IDLE chooses a list; ROW reads its row; then follows the state of its use (`ListStateUse`), and IDLE again.
        destroying = Signal()    # the QP being destroyed has no list any more; some of its fetches are in flight
        with m.FSM():
            self._choose_list(m, destroying)
            self._control_list(m, destroying)
            self._look_at_list(m)
            self._fill_cache(m)
            self._evict(m)
            self._finish(m)
        return m

    def _make_blocks(self, m):
        """Add the blocks, and the signals that the states share."""
        p = self.params
        m.submodules.work = self._work = WorkList(p)
        m.submodules.row = self._row = ListState(p)
        m.submodules.budget = self._budget = ReadBudget(p)
        m.submodules.fetches = self._fetches = Fetches(p)
        m.submodules.fill = self._fill = Fill(p)
        m.submodules.evict = self._eviction = Evict(p)
        m.submodules.broken = self._broken = ListBreak(p)
        # The selected list, and the use of its row; only QPNs of the card occur.
        self._qpn, self._job = Signal(p.qpn_width), Signal(ListStateUse, name="job")
        self._filling = Signal(name="filling")      # fetch until the depth is reached
        # blocks to read, and their address
        self._lines, self._line = Signal(range(LINES + 1)), Signal(58, name="line")
        self._slot = Signal(range(fetch_slots(p)), name="slot")       # the read that is being handled
        # The list has few cached nodes; it needs another one.
        self._few, self._wanted = Signal(), Signal(name="wanted")

    def _connect_row(self, m):
        """Connect the row of a list, doorbells and waiting headers."""
        row, qpn = self._row, self._qpn
        m.d.comb += [
            row.qpn.eq(qpn), row.post_stb.eq(self.post_stb), row.post_qpn.eq(self.post_qpn),
            self.row_en.eq(row.row_en), self.row_index.eq(row.row_index), row.ahead.eq(self.ahead),
            self.waiting_qpn.eq(Mux(row.kept, qpn, self.cache.peek.qpn)), row.waiting.eq(self.waiting),
            *[a.eq(b) for a, b in zip(row.extent_base, self.extent_base, strict=True)],
            *[a.eq(b) for a, b in zip(row.extent_lines, self.extent_lines, strict=True)],
        ]
        wiring.connect(m, row.qp, wiring.flipped(self.qp))

    def _connect_budget(self, m):
        """Connect the size of the next read, limited by free entries and the driver's settings."""
        cache, budget, row, most = self.cache, self._budget, self._row, 2 * self.params.cache_entries
        m.d.comb += [
            budget.block.eq(row.o.block), budget.base.eq(row.base), budget.size.eq(row.size),
            budget.ahead.eq(row.o.ahead),
            budget.cached.eq(cache.cached), budget.free.eq(cache.free_count),
        ]
        m.d.sync += [budget.depth.eq(saturate(most, self.prefetch_depth)),
                     budget.watermark.eq(saturate(most, self.prefetch_watermark))]

    def _connect_fill(self, m):
        """Connect the fill of the cache."""
        cache, fill, fetches, row = self.cache, self._fill, self._fetches, self._row
        m.d.comb += [
            fill.list.eq(row.o), fill.posted.eq(row.posted),
            row.on_fill.eq(fill.fills), row.block.eq(fill.found),
            fill.fetch.eq(fetches.fetch), fill.pointed.eq(fetches.pointed), fill.verdict.eq(fetches.verdict),
            fill.error.eq(fetches.error),
            fill.may_take.eq(cache.free & (self._few | greater_than(cache.free_count, reserve(self.params)))),
            fill.free_index.eq(cache.free_index), cache.reserve_en.eq(fill.reserve_en),
            fill.follows.eq(cache.follows), fill.fill_ready.eq(cache.fill_ready),
            fill.step_ready.eq(self.step.ready),
            cache.fill_en.eq(fill.fills), cache.fill_index.eq(fill.entry), cache.fill_node.eq(fetches.node),
            cache.fill_block.eq(row.o.block),
        ]

    def _connect_eviction(self, m):
        """Connect the eviction."""
        cache, eviction, fill, row = self.cache, self._eviction, self._fill, self._row
        m.d.comb += [
            eviction.no_entry.eq(fill.no_entry), eviction.demand.eq(row.o.waiting),
            eviction.none.eq(cache.none), eviction.qpn.eq(self._qpn), eviction.filled.eq(fill.fills),
            eviction.candidate.eq(cache.candidate), eviction.candidate_index.eq(cache.candidate_index),
            cache.peek_index.eq(eviction.peek_index), eviction.peek.eq(cache.peek),
            eviction.peek_valid.eq(cache.peek_valid), eviction.peek_touched.eq(cache.peek_touched),
            eviction.peek_last.eq(cache.peek_last), eviction.waiting.eq(self.waiting),
            eviction.goes_on.eq(row.o.live & (~self._fetches.of_qpn[0] | self._fetches.kept)),
            self.exclusive.eq(eviction.exclusive), eviction.granted.eq(self.granted),
            eviction.back_ready.eq(self.step.ready),
            cache.release_en.eq(eviction.release_en | fill.release_en),
            cache.release_index.eq(Mux(eviction.exclusive, eviction.peek_index, fill.entry)),
        ]
        wiring.connect(m, eviction.o_force, wiring.flipped(self.o_force))

    def _connect_fetches(self, m):
        """Connect reads, the work list, and the needs of a list."""
        fetches, row, budget, fill, work, broken = (
            self._fetches, self._row, self._budget, self._fill, self._work, self._broken)
        cache, step, qpn, lines, view = self.cache, self.step, self._qpn, self._lines, row.o
        m.d.comb += [
            *[a.eq(b) for a, b in zip(fetches.extent_base, self.extent_base, strict=True)],
            *[a.eq(b) for a, b in zip(fetches.extent_lines, self.extent_lines, strict=True)],
            fetches.slot.eq(self._slot), fetches.part.eq(fill.part), fetches.qpn[0].eq(qpn),
            fetches.qpn[1].eq(self.i_control.p.qpn),
            fetches.start.qpn.eq(qpn), fetches.start.generation.eq(view.generation),
            fetches.start.block.eq(view.block), fetches.start.lines.eq(lines),
            fetches.start.all.eq(lines == view.ahead),
            fetches.keep_en.eq(fill.no_entry), fetches.keep_loose.eq(~view.waiting),
            self.o_line.p.line.eq(self._line), self.o_line.p.count.eq(lines),
            self.o_line.p.tag.eq(fetches.free_slot),
            work.post_stb.eq(self.post_stb), work.post_qpn.eq(self.post_qpn),
            work.i[1].payload.eq(self.i_demand.payload), work.i[1].valid.eq(self.i_demand.valid),
            self.i_demand.ready.eq(work.i[1].ready), work.i[0].payload.eq(qpn),
            broken.qpn.eq(qpn), broken.generation.eq(view.generation), broken.end_ready.eq(step.ready),
            broken.reason.eq(abi.Reason.BAD_POINTER.value),
            cache.qpn.eq(qpn), step.p.qpn.eq(qpn), step.p.kind.eq(AheadKind.END),
            self._few.eq(view.waiting | cache.none),
            self._wanted.eq(view.live & ~fetches.of_qpn[0] & (view.ahead != 0) & budget.below_depth
                             & (view.waiting | self._filling | budget.below_watermark)),
        ]
        wiring.connect(m, wiring.flipped(self.i_line), fetches.i_line)
        wiring.connect(m, broken.o_report, wiring.flipped(self.o_report))
        wiring.connect(m, broken.o_qp_error, wiring.flipped(self.o_qp_error))
        m.d.sync += self._line.eq(budget.line)

    def _choose_list(self, m, destroying):
        """Build the states that choose a list, and read its row."""
        work, row, fetches, fill, eviction = self._work, self._row, self._fetches, self._fill, self._eviction
        qpn, op = self._qpn, self.i_control.p
        with m.State("IDLE"):  # waits for a control operation, a node, or a list to examine
            m.d.comb += [eviction.at_rest.eq(1), self.idle.eq(
                fetches.quiet & work.empty & ~self.i_demand.valid & ~self.post_stb & ~work.i[0].valid
            )]
            m.d.sync += self._filling.eq(0)
            with m.If(self.i_control.valid & ~(destroying & fetches.of_qpn[1])):
                m.d.comb += row.start.eq(1)
                m.d.sync += [qpn.eq(op.qpn), self._job.eq(ListStateUse.CONTROL)]
                m.next = "ROW"
            with m.Elif(fetches.done):
                m.d.comb += row.start.eq(1)
                m.d.sync += [qpn.eq(fetches.done_qpn), self._slot.eq(fetches.done_slot),
                             self._job.eq(ListStateUse.FILL)]
                m.next = "ROW"
            with m.Elif(work.o.valid):
                m.d.comb += [row.start.eq(1), work.o.ready.eq(1)]
                m.d.sync += [qpn.eq(work.o.payload), self._job.eq(ListStateUse.LOOK)]
                m.next = "ROW"
        with m.State("ROW"):  # waits for the row of the list
            m.d.comb += [fill.start.eq(row.soon & (self._job == ListStateUse.FILL)),
                         eviction.read.eq(row.kept & (self._job == ListStateUse.EVICT))]
            with m.If(row.kept):
                with m.Switch(self._job):
                    for case in ListStateUse:
                        with m.Case(case):
                            m.next = case.name

    def _control_list(self, m, destroying):
        """Build the state that executes a control operation."""
        work, fetches, step, op = self._work, self._fetches, self.step, self.i_control.p
        with m.State("CONTROL"):  # creates, destroys or queries a list
            m.d.comb += self.i_control.ready.eq(1)
            m.next = "IDLE"
            with m.Switch(op.kind):
                with m.Case(ControlKind.CREATE):
                    m.d.comb += [work.forget_en.eq(1), work.forget_qpn.eq(self._qpn)]
                with m.Case(ControlKind.QUERY):
                    m.d.sync += [self.query_ahead.eq(self.ahead.count), self.query_cached.eq(self.cache.cached)]
                with m.Default():
                    m.d.comb += [step.valid.eq(1), self.i_control.ready.eq(step.ready & ~fetches.of_qpn[1])]
                    m.d.sync += [destroying.eq(fetches.of_qpn[1]), self._slot.eq(fetches.kept_slot)]
                    with m.If(~step.ready):
                        m.next = "CONTROL"
                    with m.Elif(fetches.kept):
                        m.next = "FORGET"

    def _look_at_list(self, m):
        """Build the states that issue a read for the list, if it needs one."""
        row, budget, fetches, fill, broken = self._row, self._budget, self._fetches, self._fill, self._broken
        view, few, wanted = row.o, self._few, self._wanted
        with m.State("LOOK"):  # issues a read if the list needs one and there is a slot and space for it
            m.next = "IDLE"
            with m.If(fetches.kept):
                m.d.comb += fill.start.eq(1)
                m.d.sync += self._slot.eq(fetches.kept_slot)
                m.next = "FILL"
            with m.Elif(wanted & ~budget.inside):
                m.d.comb += broken.start.eq(1)
                m.next = "BREAK"
            with m.Elif(wanted & fetches.free):
                m.d.sync += self._lines.eq(Mux(view.adjacent, budget.lines, 1))
                m.next = "ISSUE"
            with m.Elif(wanted & few & fetches.loose):
                m.d.sync += self._slot.eq(fetches.loose_slot)
                m.next = "MAKE_PLACE"
            with m.Elif(wanted & (view.waiting | ~fetches.quiet)):
                m.next = "AGAIN"
        with m.State("MAKE_PLACE"):  # discards the kept blocks of another list
            m.d.comb += fetches.finish_en.eq(1)
            m.next = "AGAIN"
        with m.State("FORGET"):  # discards the kept blocks of a destroyed list
            m.d.comb += fetches.finish_en.eq(1)
            m.next = "IDLE"
        with m.State("ISSUE"):  # waits for the read engine
            m.d.comb += self.o_line.valid.eq(1)
            with m.If(self.o_line.ready):
                m.d.comb += [self.count_prefetches.eq(1), fetches.start_en.eq(1)]
                m.next = "IDLE"

    def _fill_cache(self, m):
        """Build the state that fills the cache with the blocks of a read."""
        row, fetches, fill, broken, step = self._row, self._fetches, self._fill, self._broken, self.step
        with m.State("FILL"):  # waits for the blocks of a read to be filled; then the list may need more
            m.d.comb += [
                step.valid.eq(fill.fill_request), step.p.kind.eq(AheadKind.FILL), step.p.block.eq(fill.found),
                step.p.adjacent.eq(fetches.node.next_adjacent), fetches.finish_en.eq(fill.finished),
                broken.reason.eq(fill.reason),
            ]
            with m.If(fill.no_entry):
                m.next = "IDLE"
                with m.If(self._eviction.starts):
                    m.next = "EVICT"
            with m.If(fill.finished):
                m.d.sync += [self._filling.eq(1), self._job.eq(ListStateUse.LOOK)]
                with m.If(fill.destroyed):
                    m.next = "IDLE"
                with m.Elif(fill.reason != 0):
                    m.d.comb += broken.start.eq(1)
                    m.next = "BREAK"
                with m.Else():
                    m.d.comb += row.start.eq(1)
                    m.next = "ROW"

    def _evict(self, m):
        """Build the states that evict an entry of another list."""
        row, fetches, eviction, qpn, step = self._row, self._fetches, self._eviction, self._qpn, self.step
        again = self._work.i[0]
        with m.State("EVICT"):  # waits for an entry of another list
            m.d.comb += [
                step.valid.eq(eviction.back), step.p.kind.eq(AheadKind.BACK), step.p.block.eq(self.cache.peek_block),
                fetches.finish_en.eq(eviction.release_en & fetches.kept),   # discard kept blocks after the evicted node
            ]
            m.d.sync += self._slot.eq(fetches.kept_slot)
            with m.If(eviction.reads):
                m.d.comb += row.start.eq(1)
                m.d.sync += [qpn.eq(eviction.list_qpn), self._job.eq(ListStateUse.EVICT)]
                m.next = "ROW"
            with m.If(eviction.release_en):
                m.next = "READ_AGAIN"
            with m.Elif(eviction.ends):
                m.d.sync += qpn.eq(eviction.requester)
                m.next = "AGAIN"
                with m.If(eviction.given_up):
                    m.next = "IDLE"
        with m.State("READ_AGAIN"):  # waits for space in the work list, to add the list of the evicted node
            m.d.comb += again.valid.eq(1)
            with m.If(again.ready):
                m.d.sync += qpn.eq(eviction.requester)
                m.next = "AGAIN"

    def _finish(self, m):
        """Build the states that end a broken list, or queue a list again."""
        broken, again = self._broken, self._work.i[0]
        with m.State("BREAK"):  # waits for the list to end, and for its reports
            m.d.comb += self.step.valid.eq(broken.end)
            with m.If(broken.done):
                m.next = "IDLE"
        with m.State("AGAIN"):  # waits for space in the work list
            m.d.comb += again.valid.eq(1)
            with m.If(again.ready):
                m.next = "IDLE"
