"""Matches retransmissions against the nodes of their QP's list, and retires nodes."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part.counting import Refusal, count_outputs, merged, pass_counts
from ..part.layouts import MatchRequest, QpRef
from ..part.logic import above
from ..part.stream import Fifo
from ..part.ticket import EXTENDED_TICKET_WIDTH
from .cache_ports import match_port, retire_port
from .chooser import Chooser
from .control import ControlKind, ControlOp
from .hold import LongReport
from .mark_lane import MarkLane
from .match_entry import MatchEntry
from .match_stages import DEMANDS, compare_stage, look_layout, look_up_stage, mark_stage, resolve_layout, resolve_stage
from .newest import Newest
from .retire import RetireLane
from .wait_queue import WaitQueue


class ListView(data.Struct):
    """What the matcher knows of a QP's list."""

    live: 1
    generation: 8
    more: 1     # nodes were linked that are not cached yet


class Matcher(wiring.Component):
    """Level-2 control path: one subtraction, one compare, one bit.

    One header per cycle, latency 6 cycles, whatever the list's length, its encoding, or that a node ends there: a
    header whose node is cached passes, and the heads it finishes or leaves behind go beside it. Two more cycles only
    for each further node that a header passes over at once; it waits while the report queue is full. A header whose
    node is not cached waits in the match queue, and behind it those of its QP; others go on. The oldest header of a QP
    is tried again when something changed for the QP. If the list has as many nodes in the cache as it may, its head
    goes with its residue, and the header is tried until it is gone.

    Stages: choose; compare with all nodes; look up (retires heads; the point where the order of headers counts);
    resolve (list state: go on, wait or refuse); read, or miss (ask for a node, or for space); mark.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(MatchRequest))
        Taken at once while ``space`` was high for it in the cycle before. ``space`` does not know yet of a header that
        comes in its cycle: headers come every other cycle, or while more than one place is free.
    space : Out(1)
        For the header that ``i`` shows, valid or not.
    unmatched : In(1)
        The header that ``i`` shows, not valid, found no space: :class:`~weft.hdl.adamap.unmatched.Unmatched`.
    share_en, share_index, share : In, In, Out(1)
        Whether a QP may have another header in the queue, a cycle later: its waiting ones take no more than three
        times the places that are free, so that a list that waits for its node leaves space for others.
    i_control : In(stream.Signature(ControlOp))
        CREATE empties the list; DESTROY takes the QP's nodes out of the cache.
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
        Has this QP a waiting header?
    placed : In(24)
        Extended placed ticket.
    o_report : Out(stream.Signature(LongReport))
        Kind RETIRE.
    judged : Out(1)
        The hole of a header was marked or the header refused, 6 cycles after it came if its node was cached.
    refuse : Out(Refusal)
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
            "judged": Out(1), "refuse": Out(Refusal),
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

        m.submodules.chooser = chooser = Chooser(p)
        m.submodules.newest = newest = Newest()
        look, resolve = Signal(look_layout(p)), Signal(resolve_layout(p))
        looked, free = Signal(), Signal()       # the stage is done with its header; it takes another one
        exclusive = Signal()        # a cycle late: what the prefetcher wants decides nothing in its own cycle
        m.d.sync += exclusive.eq(self.exclusive)
        quiet = exclusive | self.i_control.valid
        wiring.connect(m, entry.o, chooser.i)
        wiring.connect(m, wiring.flipped(self.i_force), chooser.i_force)
        m.d.comb += [
            chooser.offered.eq(waits.offered), waits.pick_en.eq(chooser.pick_en), chooser.picked.eq(waits.picked),
            chooser.picked_place.eq(waits.picked_place), chooser.placed.eq(self.placed), chooser.quiet.eq(quiet),
            waits.show_en.eq(chooser.show_en), waits.show_place.eq(chooser.show_place),
            newest.valid.eq(look.valid), newest.ticket.eq(look.chosen.item.ticket), newest.placed.eq(self.placed),
        ]
        compare_stage(m, self, waits, chooser.o, look, free, short)
        look_up_stage(m, self, waits, lane, lane.space & ~above(demands.level, DEMANDS - 3), look, looked, free,
                      resolve, newest.o, quiet)
        judge, misses = resolve_stage(m, self, waits, lane, demands, resolve, chooser.force, done)
        mark_stage(m, self, lane, marks, resolve.item, judge)

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
