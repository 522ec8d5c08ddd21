"""Fetches the nodes of every list ahead of the matcher."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from ..counting import count_outputs
from ..layouts import REPORT_EVENT, LineData, LineRequest, QpRef, Report
from ..logic import above, at_most
from ..params import CardParams
from ..table.kinds import QP_STATES
from .ahead import AheadKind, ahead_row, ahead_step
from .block import extent_member, in_extent, split
from .cache_ports import fill_port
from .cached import cached_record
from .control import ControlKind, ControlOp
from .fetches import LINES, Fetches, fetch_slots
from .landing import Landing
from .misses import Misses
from .node_check import NodeCheck
from .read_reach import ReadReach, reserve
from .work_list import WorkList

PATIENCE = 128      # looks at a list without a place before a node that is being matched must go, beside 4 per entry


class Prefetch(wiring.Component):
    """Watermark prefetcher: pointer chase of many lists at once, one read in flight per list.

    It keeps nothing of a list: which block comes next and how many nodes are linked ahead stands in
    :class:`AheadTable`, RSNs and the number of nodes in the cache. A node has to go on where its list ends in the
    cache; the first one of an empty list may have any RSN. A list whose last node was fetched goes on where the next
    doorbell says. A last node that another one was linked behind since it was read is read again, for its pointer.

    Where a list's nodes lie in consecutive blocks (the one just fetched says so of its successor), a read fetches up
    to 4 of them, as far as they are linked and there is space; a block that turns out not to be the successor is
    forgotten.

    The cache is shared by need. The first node of a list may have any entry, and further ones leave an eighth of the
    cache free, unless a header waits for them. A read needs no entry: what it brought is kept beside the cache until
    its list may have one, mostly when the list's head retires; so the successor of every head is at hand, although
    heads alone may fill the cache. What is kept is forgotten, and read again later, when its place is needed for a list
    with a waiting header or without a node. For such a list another one's last node is turned out, too, if it is
    untouched and not its first.

    Independent of QP control state. A list is looked at when a doorbell, the matcher or an arriving node gives
    reason to; a look takes 5 cycles and one more if it reads, an arriving read 6 and 4 per further block, one that was
    kept 8, and then its list is looked at once more. When a list with a waiting header finds no entry, it turns out any
    untouched last node of a list without one (which is fetched again later) or, when none is found for some time, has
    another list's head retired early.

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
        Nodes linked and not fetched, and where they begin.
    step : Out(stream.Signature(ahead_step(params)))
        One was fetched, or is fetched again, or the list ends. The QP has stood there for a cycle.
    qp : Out(QP_STATES.read_port(params))
        For the QP's generation.
    extent_base, extent_lines : arrays of In
        Where blocks may lie; ``lines`` 0: nowhere.
    prefetch_depth, prefetch_watermark : In(32)
    wake_stb, wake_qpn : Out
        A list changed.
    waiting_qpn, waiting : Out, In
    exclusive, granted : Out(1), In(1)
        As :class:`~weft.hdl.adamap.matcher.Matcher` has them.
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
            "step": Out(stream.Signature(ahead_step(params))), "qp": Out(QP_STATES.read_port(params)),
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
        p, cache, entries = self.params, self.cache, self.params.cache_entries
        step = self.step
        m.submodules.work = work = WorkList(self.params)
        again = work.i[0]
        m.d.comb += [
            work.post_stb.eq(self.post_stb), work.post_qpn.eq(self.post_qpn),
            work.i[1].payload.eq(self.i_demand.payload), work.i[1].valid.eq(self.i_demand.valid),
            self.i_demand.ready.eq(work.i[1].ready),
        ]

        m.submodules.fetches = fetches = Fetches(p)
        wiring.connect(m, wiring.flipped(self.i_line), fetches.i_line)
        m.d.comb += [*[a.eq(b) for a, b in zip(fetches.extent_base, self.extent_base, strict=True)],
                     *[a.eq(b) for a, b in zip(fetches.extent_lines, self.extent_lines, strict=True)]]
        op = self.i_control.p
        qpn = Signal(p.qpn_width)           # there are no others than those of the card
        block = Signal(p.block_bits)
        generation = Signal(8)
        filling = Signal()                  # go on until the depth is reached
        adjacent = Signal()
        busy, of_control = fetches.of_qpn   # a read of the list, of the QP under control, is in flight
        job = Signal(2)                     # what the row is read for
        LOOK, LAND, CONTROL, EVICT = range(4)
        dying = Signal()                    # the QP being destroyed is dead already; its fetches are not all back
        waiting = Signal()
        m.submodules.reach = reach = ReadReach(p)
        m.submodules.misses = misses = Misses(4 * entries + PATIENCE)
        victim = Signal.like(cache.peek_index)
        sparing = Signal()                  # `victim` is not the first node of its list
        entry, taken = Signal.like(cache.free_index), Signal()      # for the block that is looked at
        # At `victim`; `waiting`: a header of its list does.
        looked_at = Signal(data.StructLayout({"valid": 1, "touched": 1, "waiting": 1, "node": cached_record(p)}))
        latching, evicting = Signal(), Signal()     # in LATCH; in EVICT and TAKE_BACK
        depth, watermark = Signal(range(2 * entries + 1)), Signal(range(2 * entries + 1))
        base, size, line = Signal(58), Signal(extent_member(p)), Signal(58)     # of its extent; where it lies
        fetch, node = fetches.fetch, fetches.node
        slot = Signal(range(fetch_slots(p)))
        part = Signal(range(LINES))         # which block of a read is looked at
        lines = Signal(range(LINES + 1))    # blocks to read
        ahead = Signal(range(LINES + 2))    # nodes that are ahead, or more than a read fetches
        other = Signal()                    # the list does not go on with the block; a cycle late
        outrun = Signal()                   # a doorbell of the QP came since its row was read
        given_up = Signal()                 # what is left of the read is not wanted
        final = Signal()                    # the block is the read's last one
        reason = Signal(8)
        m.d.comb += [
            fetches.slot.eq(slot), fetches.part.eq(part), fetches.qpn[0].eq(qpn), fetches.qpn[1].eq(op.qpn),
            fetches.start.qpn.eq(qpn), fetches.start.generation.eq(generation),
            fetches.start.block.eq(block), fetches.start.lines.eq(lines),
            fetches.start.all.eq(lines == ahead),
            self.row_index.eq(qpn),
            self.qp.index.eq(qpn),
            step.p.qpn.eq(qpn), step.p.kind.eq(AheadKind.END),
            self.waiting_qpn.eq(Mux(latching, qpn, cache.peek.qpn[:len(qpn)])),
            self.exclusive.eq(evicting),
            again.payload.eq(qpn),
            cache.peek_index.eq(victim),
            cache.fill_index.eq(entry),
            cache.fill_block.eq(block),
            cache.fill_node.eq(node),
            cache.release_index.eq(Mux(evicting, victim, entry)),
            self.o_line.p.line.eq(line),
            self.o_line.p.count.eq(lines),
            self.o_line.p.tag.eq(fetches.free_slot),
        ]
        # A wake is two cycles late: by then all has changed. That a list ended is seen a cycle later.
        wake, waked, waked_qpn, ended = Signal(), Signal(), Signal.like(qpn), Signal()
        m.d.sync += [ended.eq(step.valid & step.ready & (step.p.kind == AheadKind.END)), waked.eq(wake | ended),
                     waked_qpn.eq(qpn), self.wake_stb.eq(waked), self.wake_qpn.eq(waked_qpn)]
        live = Signal()
        cached = cache.cached
        m.d.comb += cache.qpn.eq(qpn)
        m.d.sync += [depth.eq(at_most(2 * entries, self.prefetch_depth)),
                     watermark.eq(at_most(2 * entries, self.prefetch_watermark)), latching.eq(0)]
        wanted = Signal()
        m.d.comb += wanted.eq(live & ~busy & (ahead != 0) & reach.room & (waiting | filling | reach.low))
        m.d.comb += [reach.block.eq(block), reach.base.eq(base), reach.size.eq(size), reach.ahead.eq(ahead),
                     reach.cached.eq(cached), reach.depth.eq(depth), reach.watermark.eq(watermark),
                     reach.free.eq(cache.free_count)]
        m.d.sync += line.eq(reach.line)
        # What arrived is looked at a cycle before it is taken.
        m.d.sync += other.eq(~live | (generation != fetch.generation)
                             | (block != (fetch.block + part)[:p.block_bits]))
        found_none, may_take = Signal(), Signal()
        few = waiting | (cached == 0)       # of its nodes are there
        m.d.comb += may_take.eq(cache.free & (few | above(cache.free_count, reserve(p))))
        with m.If(found_none):      # no entry for a node
            m.d.sync += [looked_at.valid.eq(cache.peek_valid), looked_at.touched.eq(cache.peek_touched),
                         looked_at.waiting.eq(self.waiting), looked_at.node.eq(cache.peek)]
            m.d.comb += misses.miss.eq(waiting)
        m.submodules.check = check = NodeCheck()
        found, ends = Signal(p.block_bits), Signal()        # the block behind a node; there is none
        m.d.sync += [found.eq(fetches.pointed), ends.eq(node.next_line == 0)]
        posted, more = Signal(), Signal()       # a doorbell of the QP comes; there is more than this node
        # A node does not land in the cycle of a doorbell of its QP: `step` waits.
        m.d.comb += posted.eq(self.post_stb & (self.post_qpn == qpn))
        m.d.sync += [outrun.eq(outrun | posted), more.eq((ahead != part + 1) | outrun | posted),
                     final.eq(part + 1 == fetch.lines)]
        m.d.comb += [check.node.eq(node), check.qpn.eq(qpn), check.generation.eq(fetch.generation),
                     check.follows.eq(cache.follows)]

        m.submodules.landing = landing = Landing()
        m.d.comb += [
            landing.other.eq(other | given_up), landing.bad.eq(fetches.error | check.bad), landing.ends.eq(ends),
            landing.more.eq(more), landing.taken.eq(taken), landing.fill_ready.eq(cache.fill_ready),
            landing.step_ready.eq(step.ready), step.valid.eq(landing.offers), cache.fill_en.eq(landing.lands),
            cache.release_en.eq(landing.releases),
        ]

        with m.FSM() as fsm:
            with m.State("IDLE"):  # waits for a control operation, a node, or a list to look at
                m.d.comb += self.idle.eq(
                    fetches.quiet & work.empty & ~self.i_demand.valid & ~self.post_stb & ~again.valid
                )
                m.d.sync += [filling.eq(0), sparing.eq(0)]
                with m.If(cache.spare & misses.few):
                    m.d.sync += [victim.eq(cache.spare_index), sparing.eq(1)]
                with m.If(self.i_control.valid & ~(dying & of_control)):
                    m.d.sync += [qpn.eq(op.qpn), job.eq(CONTROL)]
                    m.next = "SETTLE"
                with m.Elif(fetches.done):
                    m.d.sync += [qpn.eq(fetches.done_qpn), slot.eq(fetches.done_slot), job.eq(LAND)]
                    m.next = "SETTLE"
                with m.Elif(work.o.valid):
                    m.d.comb += work.o.ready.eq(1)
                    m.d.sync += [qpn.eq(work.o.payload), job.eq(LOOK)]
                    m.next = "SETTLE"
            with m.State("SETTLE"):  # lets a doorbell of the last cycles come through
                m.d.sync += [part.eq(0), given_up.eq(0)]
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += [self.row_en.eq(1), self.qp.en.eq(1)]
                m.d.sync += [outrun.eq(posted), latching.eq(1)]
                m.next = "LATCH"
            with m.State("LATCH"):  # checks the pointer
                pointed = Signal(p.block_bits)
                m.d.comb += pointed.eq(~self.ahead.inverse)
                # A multiplexer's select is not inverted on its way.
                m.d.sync += [kept.eq(in_extent(p, [*reversed(values)], split(p, self.ahead.inverse)[0]))
                             for kept, values in ((base, self.extent_base), (size, self.extent_lines))]
                m.d.sync += [
                    block.eq(pointed), adjacent.eq(self.ahead.adjacent), live.eq(self.ahead.inverse != 0),
                    generation.eq(self.qp.entry.generation), waiting.eq(self.waiting),
                    ahead.eq(Mux(above(self.ahead.count, LINES), LINES + 1, self.ahead.count)),
                ]
                with m.Switch(job):
                    with m.Case(LOOK):
                        m.next = "LOOK"
                    with m.Case(LAND):
                        m.next = "CHECK_NODE"
                    with m.Case(CONTROL):
                        m.next = "CONTROL"
                    with m.Default():
                        m.d.sync += evicting.eq(1)
                        m.next = "EVICT"
            with m.State("CONTROL"):  # starts, ends or shows a list
                m.d.comb += self.i_control.ready.eq(1)
                m.next = "IDLE"
                with m.Switch(op.kind):
                    with m.Case(ControlKind.CREATE):
                        m.d.comb += [work.forget_en.eq(1), work.forget_qpn.eq(qpn)]
                    with m.Case(ControlKind.QUERY):
                        m.d.sync += [self.query_ahead.eq(self.ahead.count), self.query_cached.eq(cached)]
                    with m.Default():
                        m.d.comb += [step.valid.eq(1), self.i_control.ready.eq(step.ready & ~of_control)]
                        m.d.sync += [dying.eq(of_control), slot.eq(fetches.kept_slot)]
                        with m.If(~step.ready):
                            m.next = "CONTROL"
                        with m.Elif(fetches.kept):
                            m.next = "FORGET"
            with m.State("LOOK"):  # issues a fetch if the list needs one and everything is there for it
                m.next = "IDLE"
                with m.If(fetches.kept):
                    m.d.sync += slot.eq(fetches.kept_slot)
                    m.next = "SETTLE_NODE"
                with m.Elif(wanted & ~reach.inside):
                    m.d.sync += reason.eq(abi.Reason.BAD_POINTER.value)
                    m.next = "BREAK"
                with m.Elif(wanted & fetches.free):
                    m.d.sync += lines.eq(Mux(adjacent, reach.lines, 1))
                    m.next = "ISSUE"
                with m.Elif(wanted & few & fetches.loose):
                    m.d.sync += slot.eq(fetches.loose_slot)
                    m.next = "MAKE_PLACE"
                with m.Elif(wanted & (waiting | ~fetches.quiet)):
                    m.next = "AGAIN"
            with m.State("MAKE_PLACE"):  # forgets what another list's read brought
                m.d.comb += fetches.finish_en.eq(1)
                m.next = "AGAIN"
            with m.State("FORGET"):  # forgets what the last read of a dead list brought
                m.d.comb += fetches.finish_en.eq(1)
                m.next = "IDLE"
            with m.State("ISSUE"):  # waits for the read engine
                m.d.comb += self.o_line.valid.eq(1)
                with m.If(self.o_line.ready):
                    m.d.comb += [self.count_prefetches.eq(1), fetches.start_en.eq(1)]
                    m.next = "IDLE"
            with m.State("LAND"):  # checks a node
                m.d.comb += [step.p.kind.eq(AheadKind.LAND), step.p.block.eq(found),
                             step.p.adjacent.eq(node.next_adjacent)]
                m.next = "NEXT"
                with m.If(landing.other):
                    m.d.sync += given_up.eq(1)
                    with m.If(final):
                        m.next = "LANDED"
                with m.Elif(landing.breaks):
                    m.d.sync += [reason.eq(Mux(fetches.error, abi.Reason.DMA_ERROR.value, abi.Reason.BAD_NODE.value)),
                                 given_up.eq(1)]
                    with m.If(final):
                        m.next = "LANDED"
                with m.Elif(landing.grew):      # if it was the last one when it was read, its pointer has changed since
                    m.d.sync += given_up.eq(1)
                    with m.If(~final | ~fetch.all):
                        m.d.sync += reason.eq(abi.Reason.BAD_POINTER.value)
                    with m.If(final):
                        m.next = "LANDED"
                with m.Elif(~taken & (part != 0)):      # read again when there is space
                    m.d.sync += given_up.eq(1)
                    with m.If(final):
                        m.next = "LANDED"
                with m.Elif(~taken):
                    m.d.comb += [fetches.keep_en.eq(1), fetches.keep_loose.eq(~waiting), found_none.eq(1)]
                    m.next = "IDLE"
                    with m.If(waiting | ((cached == 0) & sparing)):
                        m.next = "CHOOSE"
                with m.Elif(~landing.lands):
                    m.next = "LAND"
                with m.Else():
                    m.d.comb += wake.eq(1)
                    m.d.comb += misses.clear.eq(1)
                    m.d.sync += block.eq(found)
                    with m.If(final):
                        m.next = "LANDED"
            with m.State("NEXT"):  # reads the next block that came
                m.d.sync += part.eq(part + 1)
                m.next = "SETTLE_NODE"
            with m.State("SETTLE_NODE"):
                m.next = "CHECK_NODE"
            with m.State("CHECK_NODE"):  # takes an entry for it
                m.d.comb += cache.reserve_en.eq(may_take)
                m.d.sync += [taken.eq(may_take), entry.eq(cache.free_index)]
                m.next = "LAND"
            with m.State("LANDED"):  # the read is done with: the list may want more
                m.d.comb += fetches.finish_en.eq(1)
                m.d.sync += [filling.eq(1), job.eq(LOOK)]
                m.next = "SETTLE"
                with m.If(~live | (generation != fetch.generation)):
                    m.next = "IDLE"
                with m.Elif(reason != 0):
                    m.next = "BREAK"
            with m.State("BREAK"):  # the list is dead
                m.d.comb += step.valid.eq(1)
                with m.If(step.ready):
                    m.next = "REPORT"
            with m.State("REPORT"):  # waits for the report queue
                event = Signal(REPORT_EVENT)
                m.d.comb += [
                    event.kind.eq(abi.ReportKind.QP_ERROR.value),
                    event.reason.eq(reason),
                    event.qpn.eq(qpn),
                    event.generation.eq(generation),
                    self.o_report.p.entry.eq(event),
                    self.o_report.valid.eq(1),
                ]
                with m.If(self.o_report.ready):
                    m.d.sync += reason.eq(0)
                    m.next = "STOP_QP"
            with m.State("STOP_QP"):  # waits for the command processor to stop the QP
                m.d.comb += [self.o_qp_error.valid.eq(1), self.o_qp_error.payload.eq(qpn)]
                with m.If(self.o_qp_error.ready):
                    m.next = "IDLE"
            with m.State("AGAIN"):  # waits for a place in the work list
                m.d.comb += again.valid.eq(1)
                with m.If(again.ready):
                    m.next = "IDLE"
            self._evict(m, qpn, live & (~busy | fetches.kept), job, EVICT, evicting, victim, looked_at,
                        misses, waiting, fetches, slot, again)
        m.d.comb += landing.here.eq(fsm.ongoing("LAND"))
        return m

    def _evict(self, m, qpn, at_rest, job, EVICT, evicting, victim, tag, misses, urgent, fetches, slot, again):
        """States that find another list's node to turn out; what was read behind it is forgotten, too."""
        cache, hungry, last, node = self.cache, Signal.like(qpn), Signal(), tag.node
        m.d.comb += [self.o_force.p.qpn.eq(node.qpn), self.o_force.p.generation.eq(node.generation)]
        with m.State("CHOOSE"):  # looks at the next entry
            m.d.sync += [hungry.eq(qpn), victim.eq(victim + 1)]
            m.next = "AGAIN"
            with m.If(~urgent):
                m.next = "IDLE"
            with m.If(tag.valid & urgent & misses.all):
                m.next = "FORCE"
            with m.Elif(tag.valid & ~tag.waiting):
                with m.If(urgent & misses.half):
                    m.next = "FORCE"
                with m.Elif(~tag.touched):
                    m.d.sync += [victim.eq(victim), qpn.eq(node.qpn), job.eq(EVICT)]
                    m.next = "SETTLE"
        with m.State("EVICT"):  # waits for a moment between two matches
            m.d.sync += slot.eq(fetches.kept_slot)
            m.d.sync += last.eq(at_rest & cache.peek_last & cache.peek_valid & ~cache.peek_touched
                                & (cache.peek.rsn == node.rsn) & (cache.peek.qpn[:len(qpn)] == node.qpn[:len(qpn)])
                                & (cache.peek.generation == node.generation))
            with m.If(self.granted):
                m.next = "TAKE_BACK"
        with m.State("TAKE_BACK"):  # takes the list's last node back
            step = self.step
            m.d.comb += [step.valid.eq(last), step.p.kind.eq(AheadKind.BACK), step.p.block.eq(cache.peek_block)]
            with m.If(~last | step.ready):
                m.d.sync += [qpn.eq(Mux(last, qpn, hungry)), victim.eq(victim + 1), evicting.eq(0)]
                m.next = "AGAIN"
                with m.If(last):
                    m.next = "READ_AGAIN"
                    m.d.comb += [
                        cache.release_en.eq(1),
                        fetches.finish_en.eq(fetches.kept),
                    ]
        with m.State("READ_AGAIN"):  # has the list read on from there, to keep it
            m.d.comb += again.valid.eq(1)
            with m.If(again.ready):
                m.d.sync += qpn.eq(hungry)
                m.next = "AGAIN"
        with m.State("FORCE"):  # waits for the matcher to take the order
            m.d.comb += self.o_force.valid.eq(1)
            with m.If(self.o_force.ready):
                m.d.comb += misses.clear.eq(1)
                m.next = "AGAIN"
