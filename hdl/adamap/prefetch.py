"""Fetches the nodes of every list ahead of the matcher."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import abi
from ..layouts import NODE, REPORT_EVENT, LineData, LineRequest, Report
from ..params import CardParams
from .control import ControlKind, ControlOp, QpRef
from .head_cache import fill_port
from .matcher import ListView
from .posted import Posted
from .work_list import WorkList

FETCHES_MAX = 8
PATIENCE = 128      # looks at a list without a place before a node that is being matched must go, beside 4 per entry


class ListRow(data.Struct):
    """State of a QP's list on the card."""

    live: 1
    generation: 8
    busy: 1          # a fetch is in flight
    filling: 1       # below the watermark: fetch until the depth is reached
    next_line: 58    # block after the last one fetched
    next_rsn: 32     # RSN behind the last node fetched
    fetched: 32


class Fetch(data.Struct):
    """A node read in flight."""

    valid: 1
    done: 1
    error: 1
    qpn: 24
    generation: 8
    line: 58
    entry: 8


class Prefetch(wiring.Component):
    """Watermark prefetcher: pointer chase of many lists at once, one read in flight per list.

    Independent of QP control state. A list is looked at when a doorbell, the matcher or an arriving node gives
    reason to; a look takes 5 cycles, an arriving node 6. Lists that nobody waits for leave a quarter of
    the cache free; a list with a waiting header may take any entry, and turns out an untouched last node of
    another one (which is fetched again later) or, when none is found, has another list's head retired early.

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
    query_linked, query_fetched : Out(32)
    cache : Out(fill_port(params))
    row_en, row_index : Out
        Reads ``linked`` (a cycle later).
    linked : In(Posted)
    view_en, view_index, view : In, In, Out(ListView)
        Read port of the matcher (without ``linked``).
    extent_base, extent_lines : arrays of In
        Where blocks may lie; ``lines`` 0: nowhere.
    prefetch_depth, prefetch_watermark : In(32)
    wake_stb, wake_qpn : Out
        A list changed.
    waiting_qpn, waiting : Out, In
    exclusive, granted : Out(1), In(1)
    o_force : Out(stream.Signature(QpRef))
    o_line, i_line
    o_report : Out(stream.Signature(Report))
        Kind QP_ERROR.
    o_qp_error : Out(stream.Signature(24))
    count_prefetches : Out(3)
    idle : Out(1)
    """

    def __init__(self, params: CardParams):
        self.params = params
        width = params.qpn_width
        super().__init__({
            "post_stb": In(1), "post_qpn": In(width),
            "i_demand": In(stream.Signature(24)),
            "i_control": In(stream.Signature(ControlOp)),
            "query_linked": Out(32), "query_fetched": Out(32),
            "cache": Out(fill_port(params)),
            "row_en": Out(1), "row_index": Out(width), "linked": In(Posted),
            "view_en": In(1), "view_index": In(width), "view": Out(ListView),
            "extent_base": In(58).array(params.knit_extents), "extent_lines": In(32).array(params.knit_extents),
            "prefetch_depth": In(32), "prefetch_watermark": In(32),
            "wake_stb": Out(1), "wake_qpn": Out(24),
            "waiting_qpn": Out(24), "waiting": In(1),
            "exclusive": Out(1), "granted": In(1),
            "o_force": Out(stream.Signature(QpRef)),
            "o_line": Out(stream.Signature(LineRequest)), "i_line": In(stream.Signature(LineData)),
            "o_report": Out(stream.Signature(Report)), "o_qp_error": Out(stream.Signature(24)),
            "count_prefetches": Out(3), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        cache, entries = self.cache, self.params.cache_entries
        m.submodules.rows = rows = Memory(shape=ListRow, depth=self.params.qps, init=[])
        write, read, view = rows.write_port(), rows.read_port(), rows.read_port()
        m.d.comb += [
            view.en.eq(self.view_en), view.addr.eq(self.view_index), self.view.live.eq(view.data.live),
            self.view.generation.eq(view.data.generation), self.view.fetched.eq(view.data.fetched),
        ]
        m.submodules.work = work = WorkList(self.params)
        again = work.i[0]
        m.d.comb += [
            work.post_stb.eq(self.post_stb), work.post_qpn.eq(self.post_qpn),
            work.i[1].payload.eq(self.i_demand.payload), work.i[1].valid.eq(self.i_demand.valid),
            self.i_demand.ready.eq(work.i[1].ready),
        ]

        # Reads in flight; their data lands in a memory until it is looked at.
        count = min(FETCHES_MAX, entries)
        fetches = Array(Signal(Fetch, name=f"fetch{k}") for k in range(count))
        m.submodules.landing = landing = Memory(shape=512, depth=count, init=[])
        land, landed = landing.write_port(), landing.read_port()
        m.d.comb += [
            self.i_line.ready.eq(1),
            land.en.eq(self.i_line.valid),
            land.addr.eq(self.i_line.p.tag),
            land.data.eq(self.i_line.p.data),
        ]
        with m.If(self.i_line.valid):
            m.d.sync += [fetches[land.addr].done.eq(1), fetches[land.addr].error.eq(self.i_line.p.error)]
        slot, done, done_slot = Signal(range(count)), Signal(), Signal(range(count))
        free, free_slot, of_control = Signal(), Signal(range(count)), Signal()
        op = self.i_control.p
        for k in reversed(range(count)):
            with m.If(fetches[k].valid & fetches[k].done):
                m.d.comb += [done.eq(1), done_slot.eq(k)]
            with m.If(~fetches[k].valid):
                m.d.comb += [free.eq(1), free_slot.eq(k)]
            with m.If(fetches[k].valid & (fetches[k].qpn == op.qpn)):
                m.d.comb += of_control.eq(1)

        qpn, row = Signal(24), Signal(ListRow)
        job = Signal(2)                     # what the row is read for
        LOOK, LAND, CONTROL, EVICT = range(4)
        dying = Signal()                    # the QP being destroyed is dead already; its fetches are not all back
        inside, waiting = Signal(), Signal()
        patience = 4 * entries + PATIENCE
        victim, misses = Signal.like(cache.peek_index), Signal(range(patience + 1))
        victim_tag = Signal.like(cache.peek)
        fetch = fetches[slot]
        node = Signal(NODE)
        reason = Signal(8)
        m.d.comb += [
            node.eq(landed.data),
            landed.addr.eq(slot),
            landed.en.eq(1),
            read.addr.eq(qpn),
            write.addr.eq(qpn),
            write.data.eq(row),
            self.row_index.eq(qpn),
            self.waiting_qpn.eq(qpn),
            again.payload.eq(qpn),
            cache.peek_index.eq(victim),
            cache.fill_index.eq(fetch.entry),
            cache.fill_line.eq(fetch.line),
            cache.fill_node.eq(node),
            cache.release_index.eq(fetch.entry),
            self.o_line.p.line.eq(row.next_line),
            self.o_line.p.count.eq(1),
            self.o_line.p.tag.eq(free_slot),
        ]
        wake = Signal()                     # one cycle late: by then rows and tags have changed
        m.d.sync += [self.wake_stb.eq(wake), self.wake_qpn.eq(qpn)]
        ahead, cached = Signal(32), Signal(32)
        m.d.comb += [ahead.eq(self.linked.value - row.fetched), cache.cached_qpn.eq(qpn), cached.eq(cache.cached)]
        wanted = Signal()
        m.d.comb += wanted.eq(
            row.live & ~row.busy & (self.linked.generation == row.generation) & (ahead != 0) & ~ahead[-1]
            & (cached < self.prefetch_depth) & (waiting | row.filling | (cached < self.prefetch_watermark)))
        bad_node = Signal()
        m.d.comb += bad_node.eq(
            (node.qpn != qpn)
            | (node.generation != row.generation)
            | (node.rsn != row.next_rsn)
            | (node.count == 0)
            | (node.count > abi.NODE_HOLES_MAX)
            | (node.encoding == 0)
            | (node.encoding > abi.Encoding.BITMAP.value)
            | ((node.encoding == abi.Encoding.LIST.value) & (node.count > abi.LIST_HOLES))
        )
        slots_taken = Signal()
        m.d.comb += slots_taken.eq(sum(f.valid for f in fetches) != 0)
        m.d.comb += self.idle.eq(0)

        with m.FSM():
            with m.State("IDLE"):  # waits for a control operation, a node, or a list to look at
                m.d.comb += self.idle.eq(
                    ~slots_taken & ~work.o.valid & ~self.i_demand.valid & ~self.post_stb & ~again.valid
                )
                with m.If(self.i_control.valid & ~(dying & of_control)):
                    m.d.sync += [qpn.eq(op.qpn), job.eq(CONTROL)]
                    m.next = "SETTLE"
                with m.Elif(done):
                    m.d.sync += [qpn.eq(fetches[done_slot].qpn), slot.eq(done_slot), job.eq(LAND)]
                    m.next = "SETTLE"
                with m.Elif(work.o.valid):
                    m.d.comb += work.o.ready.eq(1)
                    m.d.sync += [qpn.eq(work.o.payload), job.eq(LOOK)]
                    m.next = "SETTLE"
            with m.State("SETTLE"):  # lets a doorbell of the last cycles come through
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += [read.en.eq(1), self.row_en.eq(1)]
                m.next = "LATCH"
            with m.State("LATCH"):  # checks the pointer
                m.d.sync += [row.eq(read.data), waiting.eq(self.waiting), inside.eq(0)]
                for base, lines in zip(self.extent_base, self.extent_lines, strict=True):
                    with m.If((read.data.next_line >= base) & ((read.data.next_line - base) < lines)):
                        m.d.sync += inside.eq(1)
                with m.Switch(job):
                    with m.Case(LOOK):
                        m.next = "LOOK"
                    with m.Case(LAND):
                        m.next = "LAND"
                    with m.Case(CONTROL):
                        m.next = "CONTROL"
                    with m.Default():
                        m.next = "EVICT"
            with m.State("CONTROL"):  # starts, ends or shows a list
                m.d.comb += self.i_control.ready.eq(1)
                m.next = "IDLE"
                with m.Switch(op.kind):
                    with m.Case(ControlKind.CREATE):
                        m.d.comb += [write.en.eq(1), work.forget_en.eq(1), work.forget_qpn.eq(qpn)]
                        m.d.comb += write.data.eq(ListRow.const({"live": 1}))
                        m.d.comb += [write.data.generation.eq(op.generation), write.data.next_line.eq(op.line)]
                    with m.Case(ControlKind.QUERY):
                        m.d.sync += [self.query_linked.eq(self.linked.value), self.query_fetched.eq(row.fetched)]
                    with m.Default():
                        m.d.comb += [
                            write.en.eq(1),
                            write.data.live.eq(0),
                            wake.eq(1),
                            self.i_control.ready.eq(~of_control),
                        ]
                        m.d.sync += dying.eq(of_control)
            with m.State("LOOK"):  # issues a fetch if the list needs one and everything is there for it
                roomy = cache.free & (waiting | (cache.free_count > entries // 4))
                m.next = "IDLE"
                with m.If(wanted & ~inside):
                    m.d.sync += reason.eq(abi.Reason.BAD_POINTER.value)
                    m.next = "BREAK"
                with m.Elif(wanted & roomy & free):
                    m.next = "ISSUE"
                with m.Elif(wanted & waiting & ~cache.free):
                    m.d.sync += [victim_tag.eq(cache.peek), misses.eq(Mux(misses == patience, misses, misses + 1))]
                    m.next = "CHOOSE"
                with m.Elif(wanted & ~free):
                    m.next = "AGAIN"
            with m.State("ISSUE"):  # waits for the read engine
                m.d.comb += self.o_line.valid.eq(1)
                with m.If(self.o_line.ready):
                    m.d.comb += [
                        cache.reserve_en.eq(1),
                        self.count_prefetches.eq(1),
                        write.en.eq(1),
                        write.data.busy.eq(1),
                        write.data.filling.eq(cached + 1 < self.prefetch_depth),
                    ]
                    fresh = fetches[free_slot]
                    m.d.sync += [
                        fresh.valid.eq(1),
                        fresh.done.eq(0),
                        fresh.qpn.eq(qpn),
                        fresh.generation.eq(row.generation),
                        fresh.line.eq(row.next_line),
                        fresh.entry.eq(cache.free_index),
                        misses.eq(0),
                    ]
                    m.next = "IDLE"
            with m.State("LAND"):  # checks the node
                m.d.sync += fetch.valid.eq(0)
                with m.If(~row.live | (row.generation != fetch.generation)):
                    m.d.comb += cache.release_en.eq(1)
                    m.next = "IDLE"
                with m.Elif(fetch.error | bad_node):
                    m.d.comb += cache.release_en.eq(1)
                    m.d.sync += reason.eq(Mux(fetch.error, abi.Reason.DMA_ERROR.value, abi.Reason.BAD_NODE.value))
                    m.next = "BREAK"
                with m.Else():
                    m.d.comb += [
                        cache.fill_en.eq(1),
                        write.en.eq(1),
                        wake.eq(1),
                        write.data.busy.eq(0),
                        write.data.fetched.eq(row.fetched + 1),
                        write.data.next_line.eq(node.next_line),
                        write.data.next_rsn.eq(row.next_rsn + node.count),
                    ]
                    m.next = "AGAIN"
            with m.State("BREAK"):  # the list is dead
                m.d.comb += [write.en.eq(1), write.data.live.eq(0), write.data.busy.eq(0), wake.eq(1)]
                m.next = "REPORT"
            with m.State("REPORT"):  # waits for the report queue
                event = Signal(REPORT_EVENT)
                m.d.comb += [
                    event.kind.eq(abi.ReportKind.QP_ERROR.value),
                    event.reason.eq(reason),
                    event.qpn.eq(qpn),
                    event.generation.eq(row.generation),
                    self.o_report.p.entry.eq(event),
                    self.o_report.valid.eq(1),
                ]
                with m.If(self.o_report.ready):
                    m.next = "STOP_QP"
            with m.State("STOP_QP"):  # waits for the command processor to stop the QP
                m.d.comb += [self.o_qp_error.valid.eq(1), self.o_qp_error.payload.eq(qpn)]
                with m.If(self.o_qp_error.ready):
                    m.next = "IDLE"
            with m.State("AGAIN"):  # waits for a place in the work list
                m.d.comb += again.valid.eq(1)
                with m.If(again.ready):
                    m.next = "IDLE"
            self._evict(m, write, qpn, row, job, EVICT, victim, victim_tag, misses)
        return m

    def _evict(self, m, write, qpn, row, job, EVICT, victim, tag, misses):
        """States that find another list's node to turn out."""
        cache, patience = self.cache, 4 * self.params.cache_entries + PATIENCE
        hungry = Signal(24)
        m.d.comb += [self.o_force.p.qpn.eq(tag.qpn), self.o_force.p.generation.eq(tag.generation)]
        with m.State("CHOOSE"):  # looks at the next entry
            m.d.sync += [hungry.eq(qpn), victim.eq(victim + 1)]
            m.next = "AGAIN"
            m.d.comb += self.waiting_qpn.eq(tag.qpn)
            with m.If(tag.valid & (misses == patience)):
                m.next = "FORCE"
            with m.Elif(tag.valid & ~self.waiting):
                with m.If(misses >= patience // 2):
                    m.next = "FORCE"
                with m.Elif(~tag.touched):
                    m.d.sync += [victim.eq(victim), qpn.eq(tag.qpn), job.eq(EVICT)]
                    m.next = "SETTLE"
        with m.State("EVICT"):  # waits for a moment between two matches; takes the list's last node back
            last = (
                row.live & ~row.busy & (row.generation == tag.generation) & (row.next_rsn == (tag.rsn + tag.count)[:32])
            )
            m.d.comb += self.exclusive.eq(1)
            with m.If(self.granted):
                m.d.sync += [qpn.eq(hungry), victim.eq(victim + 1)]
                m.next = "AGAIN"
                with m.If(
                    last
                    & cache.peek.valid
                    & ~cache.peek.touched
                    & (cache.peek.rsn == tag.rsn)
                    & (cache.peek.qpn == qpn)
                ):
                    m.d.comb += [
                        cache.release_en.eq(1),
                        cache.release_index.eq(victim),
                        write.en.eq(1),
                        write.data.fetched.eq(row.fetched - 1),
                        write.data.next_rsn.eq(tag.rsn),
                        write.data.next_line.eq(cache.peek_line),
                    ]
        with m.State("FORCE"):  # waits for the matcher to take the order
            m.d.comb += self.o_force.valid.eq(1)
            with m.If(self.o_force.ready):
                m.d.sync += misses.eq(0)
                m.next = "AGAIN"
