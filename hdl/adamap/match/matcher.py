"""Matcher: matches retransmissions with the nodes of their QP's list, and retires nodes."""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract.params import CardParams
from ...part.counter_ports import DropEvent, count_outputs, merged, pass_counts
from ...part.layouts import MatchRequest, QpRef
from ...part.logic import greater_than
from ...part.stream import Fifo
from ...part.ticket import EXTENDED_TICKET_WIDTH
from ..cache.cached import index_width, match_port, retire_port
from ..window.control import ControlKind, ControlOp
from .decisions import Dispatch, HazardCheck, MatchArbiter, NewestTicket, Source, chosen_header
from .mark_lane import MarkLane, judged_header
from .match_entry import MatchEntry
from .retire import LongReport, RetireLane
from .wait_queue import MatchItem, WaitQueue

DEMANDS = 8     # queue of QPs for the prefetcher
# A header without a node: its list, and the head of that if there is one. Independently of that, the QP to report to
# the prefetcher: that of a `retired` node, or, if there is `space`, the header's own.
MISS = data.StructLayout({
    "valid": 1, "head": 1, "head_rsn": 24, "qp": QpRef, "retired": 1, "report_qpn": 24, "space": 1})


def look_layout(params):
    """Return the layout of the lookup stage."""
    return data.StructLayout({"valid": 1, "chosen": chosen_header(params)})


def resolve_layout(params):
    """Return the layout of a header after the lookup."""
    return data.StructLayout({
        "valid": 1, "item": MatchItem, "source": Source, "place": range(params.match_queue), "older": 1,
        "hit": 1, "index": index_width(params), "head": 1, "before_head": 1})


@dataclass(frozen=True)
class _Pipeline:
    """Registers of the third and fourth stage, and the handshake of the third one.

    ``looked``: the third stage is done with its header; ``free``: it takes another one. ``quiet``: nothing new is
    chosen, and no finished head retires.
    """

    look: data.View
    resolve: data.View
    looked: Signal
    free: Signal
    quiet: Value


class ListView(data.Struct):
    """State of a QP's list for the matcher."""

    live: 1
    generation: 8
    more: 1     # nodes were linked that are not cached yet


class Matcher(wiring.Component):
    """Matches retransmissions with nodes: one subtraction, one comparison, one bit per header.

    One header per cycle, latency 6 cycles, independent of the list's length and encoding, and of the end of a node: a
    header whose node is cached passes, and the heads that it finishes or passes over retire in parallel. Two more
    cycles only for each further node that a header passes over at once; it waits while the report queue is full. A
    header whose node is not cached waits in the match queue, and later headers of its QP wait after it; others go on.
    The oldest header of a QP is tried again when something changed for the QP. If the list has as many nodes in the
    cache as it may, its head retires with its residue, and the header is tried until that has happened.

    Stages: choose; compare with all nodes; look up (retires heads; from here on the order of headers matters);
    resolve (list state: go on, wait or drop); read, or miss (request a node, or space); mark.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(MatchRequest))
        Accepted at once if ``space`` was high in the cycle before. ``space`` does not include a header that
        comes in its cycle: headers come every other cycle, or while more than one entry is free.
    space : Out(1)
        For the header at ``i``, valid or not.
    unmatched : In(1)
        There was no space for the header at ``i``, not valid:
        :class:`~weft.hdl.adamap.match.match_entry.SoftwareMatched`.
    share_en, share_index, share : In, In, Out(1)
        Whether a QP may have another header in the queue, a cycle later: its waiting headers take at most three
        times the number of free entries, so that a list that waits for its node leaves space for others.
    i_control : In(stream.Signature(ControlOp))
        CREATE empties the list; DESTROY removes the QP's nodes from the cache.
    i_force : In(stream.Signature(QpRef))
        Retire the QP's head with its residue: its cache entry is needed.
    exclusive, granted : In(1), Out(1)
        Once granted, nothing is being matched, and no list ends, until ``exclusive`` falls.
    cache, retire : Out(match_port(params)), Out(retire_port(params))
    row_en, row_index : Out
        Reads ``list`` (a cycle later).
    list : In(ListView)
    extent_base : In(58).array(params.knit_extents)
    prefetch_depth, retransmit_slack : In(32)
    wake_stb, wake_qpn : In
        The list or cache of a QP changed (at most a cycle ago).
    o_demand : Out(stream.Signature(24))
        QPs for which a fetch may have become possible or urgent.
    waiting_qpn, waiting : In(24), Out(1)
        Does this QP have a waiting header?
    placed : In(24)
        Extended placed ticket.
    o_report : Out(stream.Signature(LongReport))
        Kind RETIRE.
    judged : Out(1)
        The hole of a header was marked or the header dropped, 6 cycles after it came if its node was cached.
    drop : Out(DropEvent)
    count_nodes_retired, count_nodes_residue, count_cache_hits, count_cache_misses, count_match_stall_cycles : Out(1)
    idle : Out(1)
    """

    COUNTS = merged(RetireLane.COUNTS, {"cache_hits": 1, "cache_misses": 1, "match_stall_cycles": 1})

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(MatchRequest)), "space": Out(1), "unmatched": In(1),
            "share_en": In(1), "share_index": In(params.qpn_width), "share": Out(1),
            "i_control": In(stream.Signature(ControlOp)),
            "i_force": In(stream.Signature(QpRef)),
            "exclusive": In(1), "granted": Out(1),
            "cache": Out(match_port(params)), "retire": Out(retire_port(params)),
            "row_en": Out(1), "row_index": Out(params.qpn_width), "list": In(ListView),
            "extent_base": In(58).array(params.knit_extents),
            "prefetch_depth": In(32), "retransmit_slack": In(32),
            "wake_stb": In(1), "wake_qpn": In(24),
            "o_demand": Out(stream.Signature(24)),
            "waiting_qpn": In(24), "waiting": Out(1),
            "placed": In(EXTENDED_TICKET_WIDTH),
            "o_report": Out(stream.Signature(LongReport)),
            "judged": Out(1), "drop": Out(DropEvent),
            **count_outputs(self.COUNTS),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p, cache = self.params, self.cache
        m.submodules.waits = waits = WaitQueue(p)
        m.submodules.lane = lane = RetireLane(p)
        m.submodules.demands = demands = Fifo(24, DEMANDS)
        wiring.connect(m, lane.cache, wiring.flipped(self.retire))
        wiring.connect(m, lane.o_report, wiring.flipped(self.o_report))
        wiring.connect(m, demands.o, wiring.flipped(self.o_demand))
        pass_counts(m, (lane,), self)

        m.submodules.entry = entry = MatchEntry(p)
        m.submodules.marks = marks = MarkLane(p)
        slack, short, done = Signal(24), Signal(24), Signal()
        m.d.sync += slack.eq(Mux(self.retransmit_slack[23:].any(), (1 << 23) - 1,
                                 Mux(self.retransmit_slack == 0, 1, self.retransmit_slack)))
        m.d.sync += short.eq(slack - 1)
        wiring.connect(m, wiring.flipped(self.i), entry.i)
        m.d.comb += [
            self.space.eq(entry.space), entry.unmatched.eq(self.unmatched), self.share.eq(entry.share),
            waits.count_en.eq(self.share_en), waits.count_qpn.eq(self.share_index), entry.count.eq(waits.count),
            waits.waiting_qpn[1].eq(entry.waiting_qpn), entry.waiting.eq(waits.waiting[1]),
            entry.slack.eq(slack), entry.placed.eq(self.placed), entry.done.eq(done),
        ]

        m.submodules.chooser = chooser = MatchArbiter(p)
        m.submodules.newest = newest = NewestTicket()
        look, resolve = Signal(look_layout(p)), Signal(resolve_layout(p))
        looked, free = Signal(), Signal()
        exclusive = Signal()        # a cycle late: the prefetcher's request has no effect in its own cycle
        m.d.sync += exclusive.eq(self.exclusive)
        quiet = exclusive | self.i_control.valid
        stages = _Pipeline(look, resolve, looked, free, quiet)
        wiring.connect(m, entry.o, chooser.i)
        wiring.connect(m, wiring.flipped(self.i_force), chooser.i_force)
        m.d.comb += [
            chooser.offered.eq(waits.offered), waits.pick_en.eq(chooser.pick_en), chooser.picked.eq(waits.picked),
            chooser.picked_place.eq(waits.picked_place), chooser.placed.eq(self.placed), chooser.quiet.eq(quiet),
            waits.show_en.eq(chooser.show_en), waits.show_place.eq(chooser.show_place),
            newest.valid.eq(look.valid), newest.ticket.eq(look.chosen.item.ticket), newest.placed.eq(self.placed),
        ]
        self._compare(m, waits, chooser.o, stages, short)
        self._look_up(m, waits, lane, stages, lane.space & ~greater_than(demands.level, DEMANDS - 3), newest.o)
        judge, misses = self._resolve(m, waits, lane, demands, resolve, chooser.force, done)
        self._mark(m, lane, marks, resolve.item, judge)

        busy, ripens = Signal(), Signal()
        m.d.sync += ripens.eq(cache.ripening | marks.judged)     # a mark may be the last one of its node
        m.d.comb += busy.eq(chooser.picking | chooser.o.valid | look.valid | resolve.valid | judge.valid | misses
                            | marks.judged | lane.busy)
        m.d.comb += [
            *[a.eq(b) for a, b in zip(lane.extent_base, self.extent_base, strict=True)],
            waits.wake_stb.eq(self.wake_stb), waits.wake_qpn.eq(self.wake_qpn),
            waits.waiting_qpn[0].eq(self.waiting_qpn), self.waiting.eq(waits.waiting[0]),
            self.count_match_stall_cycles.eq(~waits.empty),
            self.i_control.ready.eq(~busy & ~self.exclusive), self.granted.eq(self.exclusive & exclusive & ~busy),
            self.idle.eq(entry.empty & ~busy & lane.idle & ~chooser.forcing & ~demands.i.valid
                         & ~demands.o.valid & ~ripens),
        ]
        op = self.i_control.p
        m.d.comb += [cache.flush_qpn.eq(op.qpn),
                     cache.flush_en.eq(self.i_control.valid & self.i_control.ready & (op.kind != ControlKind.CREATE))]
        return m

    def _compare(self, m, waits, chosen, stages, short):
        """Build the second stage: compare the header with all nodes; subtract the slack."""
        cache, choice, beyond = self.cache, chosen.p, Signal(24)
        m.d.comb += [
            beyond.eq(Mux(choice.item.probe, 0, short)),
            chosen.ready.eq(stages.free), cache.look_en.eq(chosen.ready), waits.query_en.eq(chosen.ready),
            waits.query_qpn.eq(choice.item.qpn), waits.query_queued.eq(choice.source == Source.WAITING),
            cache.qpn.eq(choice.item.qpn), cache.generation.eq(choice.item.generation), cache.rsn.eq(choice.item.rsn),
            cache.reach.passed_rsn.eq(choice.item.rsn - beyond),
            cache.reach.is_header.eq(choice.source != Source.FORCE), cache.reach.any_head.eq(choice.any_head),
        ]
        with m.If(chosen.ready):
            m.d.sync += [stages.look.valid.eq(chosen.valid), stages.look.chosen.eq(choice)]

    def _look_up(self, m, waits, lane, stages, space, newest):
        """Build the third stage: find the header's node; retire the list's head if it is finished or passed over."""
        m.submodules.hazard_check = hazard = HazardCheck()
        cache, look, resolve = self.cache, stages.look, stages.resolve
        item, source = look.chosen.item, look.chosen.source
        is_header, older, retires = source != Source.FORCE, Signal(), hazard.retires
        m.d.comb += [
            self.row_en.eq(look.valid), self.row_index.eq(item.qpn), older.eq(waits.older & is_header),
            # Wait for a header of the same QP that may enter or leave the queue in this cycle.
            hazard.held_up.eq(resolve.valid & (resolve.item.qpn == item.qpn) & is_header
                               & (~resolve.hit | (resolve.source == Source.WAITING))),
            hazard.valid.eq(look.valid), hazard.is_header.eq(is_header), hazard.passed.eq(cache.passed),
            hazard.settles.eq(cache.settles),
            hazard.older.eq(older), hazard.space.eq(space),
            hazard.follows.eq(cache.hit & cache.next & ~item.probe), stages.looked.eq(hazard.looked),
            stages.free.eq(hazard.free),
            cache.retire_head.eq(hazard.retire_head),
            hazard.ripe.eq(cache.ripe & ~stages.quiet), cache.retire_ripe.eq(hazard.retire_ripe),
            lane.op_en.eq(cache.retire_head | cache.retire_ripe),
        ]
        m.d.comb += [lane.op.index.eq(Mux(retires, cache.head_index, cache.ripe_index)), lane.op.ticket.eq(newest)]
        m.d.sync += [
            resolve.valid.eq(stages.looked & is_header), resolve.item.eq(item), resolve.source.eq(source),
            resolve.place.eq(look.chosen.place), resolve.older.eq(older),
            resolve.hit.eq(cache.hit & ~item.probe & ~older), resolve.index.eq(cache.index),
            resolve.head.eq(cache.head), resolve.before_head.eq(cache.before_head),
        ]

    def _resolve(self, m, waits, lane, demands, resolve, force, done):
        """Build the fourth stage: the header proceeds to its node, waits, or is dropped. Read the node."""
        m.submodules.dispatch = dispatch = Dispatch()
        cache, item = self.cache, resolve.item
        judge = Signal(judged_header(self.params))
        new = resolve.source == Source.NEW
        miss, full, notify = Signal(MISS), Signal(), Signal()
        m.d.comb += [
            cache.read_en.eq(resolve.valid), cache.read_index.eq(resolve.index),
            dispatch.valid.eq(resolve.valid), dispatch.new.eq(new), dispatch.older.eq(resolve.older),
            dispatch.live.eq(self.list.live),
            dispatch.list_generation.eq(self.list.generation), dispatch.generation.eq(item.generation),
            dispatch.hit.eq(resolve.hit), dispatch.head.eq(resolve.head), dispatch.before_head.eq(resolve.before_head),
            dispatch.more.eq(self.list.more), dispatch.probe.eq(item.probe),
            self.count_cache_hits.eq(dispatch.hits & new), self.count_cache_misses.eq(dispatch.insert & ~item.probe),
            done.eq(dispatch.ends),
        ]
        m.d.sync += [judge.valid.eq(dispatch.ends & ~item.probe), judge.hit.eq(dispatch.hits),
                     judge.reason.eq(dispatch.reason),
                     judge.index.eq(resolve.index)]
        m.d.sync += [miss.valid.eq(dispatch.misses), miss.retired.eq(lane.left), miss.head.eq(resolve.head),
                     miss.space.eq(~lane.left & ~greater_than(demands.level, DEMANDS - 2)),
                     miss.report_qpn.eq(Mux(lane.left, lane.left_qpn, item.qpn)), miss.qp.qpn.eq(item.qpn),
                     miss.qp.generation.eq(item.generation), miss.head_rsn.eq(cache.head_rsn)]
        # Only the head that was seen must retire: it may have left already. Then the header is tried again.
        m.d.comb += [
            cache.depth.eq(self.prefetch_depth), full.eq(miss.head & cache.full),
            notify.eq(miss.valid & ~full & miss.space),
            demands.i.valid.eq(miss.retired | notify), demands.i.payload.eq(miss.report_qpn),
            force.valid.eq(miss.valid & full), force.qp.eq(miss.qp), force.rsn.eq(miss.head_rsn),
        ]
        # The match queue is updated a cycle later; its `older` output accounts for that.
        m.d.comb += [waits.place_next.eq(resolve.place), waits.qpn_next.eq(item.qpn),
                     waits.insert_awake.eq(~notify), waits.sleep.eq(notify)]
        m.d.sync += [
            waits.insert_en.eq(dispatch.insert), waits.put_back_en.eq(dispatch.put_back),
            waits.remove_en.eq(dispatch.ends & ~new),
            waits.item.eq(item),
        ]
        return judge, miss.valid

    def _mark(self, m, lane, marks, coming, judge):
        """Build the last stages: mark the node that was read, and forward the mark to pending reads."""
        cache = self.cache
        m.d.comb += [
            marks.base.eq(cache.read_base), marks.slot.eq(coming.rsn - cache.read_node.rsn), marks.psn.eq(coming.psn),
            marks.i.eq(judge), marks.node.eq(cache.node), marks.pending.eq(cache.pending),
            cache.mark_bitmap.eq(marks.mark_bitmap), self.judged.eq(marks.judged),
            self.drop.stb.eq(marks.drop.stb), self.drop.reason.eq(marks.drop.reason),
        ]
        for sink in (cache, lane):
            m.d.comb += [sink.mark_en.eq(marks.mark_en), sink.mark_index.eq(marks.mark_index),
                         sink.mark.eq(marks.mark)]
