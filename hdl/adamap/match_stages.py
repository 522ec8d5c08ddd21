"""The stages of the matcher behind the choice of a header: compare, look up, resolve, mark."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data

from ..part.layouts import QpRef
from ..part.logic import above
from .cached import index_width
from .chooser import Source, chosen_header
from .fate import Fate
from .mark_lane import judged_header
from .passing import Passing
from .wait_queue import MatchItem

DEMANDS = 8     # QPs that the prefetcher has yet to hear of
# A header without a node: its list, and the head of that if there is one. And, there or not, of which list to tell the
# prefetcher: it `retired` a node, or there is `space` to tell of the header's own.
MISSED = data.StructLayout({
    "valid": 1, "head": 1, "head_rsn": 24, "qp": QpRef, "retired": 1, "told_qpn": 24, "space": 1})


def look_layout(params):
    """What is looked up."""
    return data.StructLayout({"valid": 1, "chosen": chosen_header(params)})


def resolve_layout(params):
    """A header that was looked up."""
    return data.StructLayout({
        "valid": 1, "item": MatchItem, "source": Source, "place": range(params.match_queue), "older": 1,
        "hit": 1, "index": index_width(params), "head": 1, "behind": 1})


def compare_stage(m, matcher, waits, chosen, look, free, short):
    """Second stage: the header is compared with all nodes, and how far it passes over is subtracted."""
    cache, choice, beyond = matcher.cache, chosen.p, Signal(24)
    m.d.comb += [
        beyond.eq(Mux(choice.item.probe, 0, short)),
        chosen.ready.eq(free), cache.look_en.eq(chosen.ready), waits.ask_en.eq(chosen.ready),
        waits.ask_qpn.eq(choice.item.qpn), waits.ask_queued.eq(choice.source == Source.WAITING),
        cache.qpn.eq(choice.item.qpn), cache.generation.eq(choice.item.generation), cache.rsn.eq(choice.item.rsn),
        cache.reach.passed_rsn.eq(choice.item.rsn - beyond),
        cache.reach.is_header.eq(choice.source != Source.FORCE), cache.reach.any_head.eq(choice.any_head),
    ]
    with m.If(chosen.ready):
        m.d.sync += [look.valid.eq(chosen.valid), look.chosen.eq(choice)]


def look_up_stage(m, matcher, waits, lane, space, look, looked, free, resolve, newest, quiet):
    """Third stage: find the header's node; take the list's head out if it is finished or passed over."""
    m.submodules.passing = passing = Passing()
    cache, item, source = matcher.cache, look.chosen.item, look.chosen.source
    is_header, older, retires = source != Source.FORCE, Signal(), passing.retires
    m.d.comb += [
        matcher.row_en.eq(look.valid), matcher.row_index.eq(item.qpn), older.eq(waits.older & is_header),
        # A header of the same QP that may join or leave the queue right now is waited for.
        passing.held_up.eq(resolve.valid & (resolve.item.qpn == item.qpn) & is_header
                           & (~resolve.hit | (resolve.source == Source.WAITING))),
        passing.valid.eq(look.valid), passing.is_header.eq(is_header), passing.passed.eq(cache.passed),
        passing.settles.eq(cache.settles),
        passing.older.eq(older), passing.space.eq(space),
        passing.follows.eq(cache.hit & cache.next & ~item.probe), looked.eq(passing.looked), free.eq(passing.free),
        cache.retire_head.eq(passing.retire_head),
        passing.ripe.eq(cache.ripe & ~quiet), cache.retire_ripe.eq(passing.retire_ripe),
        lane.op_en.eq(cache.retire_head | cache.retire_ripe),
    ]
    m.d.comb += [lane.op.index.eq(Mux(retires, cache.head_index, cache.ripe_index)), lane.op.ticket.eq(newest)]
    m.d.sync += [
        resolve.valid.eq(looked & is_header), resolve.item.eq(item), resolve.source.eq(source),
        resolve.place.eq(look.chosen.place), resolve.older.eq(older),
        resolve.hit.eq(cache.hit & ~item.probe & ~older), resolve.index.eq(cache.index),
        resolve.head.eq(cache.head), resolve.behind.eq(cache.behind),
    ]


def resolve_stage(m, matcher, waits, lane, demands, resolve, force, done):
    """Fourth stage: the header goes on to its node, waits, or is refused. Reads the node."""
    m.submodules.fate = fate = Fate()
    cache, item = matcher.cache, resolve.item
    judge = Signal(judged_header(matcher.params))
    new = resolve.source == Source.NEW
    missed, full, tell = Signal(MISSED), Signal(), Signal()
    m.d.comb += [
        cache.read_en.eq(resolve.valid), cache.read_index.eq(resolve.index),
        fate.valid.eq(resolve.valid), fate.new.eq(new), fate.older.eq(resolve.older), fate.live.eq(matcher.list.live),
        fate.list_generation.eq(matcher.list.generation), fate.generation.eq(item.generation),
        fate.hit.eq(resolve.hit), fate.head.eq(resolve.head), fate.behind.eq(resolve.behind),
        fate.more.eq(matcher.list.more), fate.probe.eq(item.probe),
        matcher.count_cache_hits.eq(fate.hits & new), matcher.count_cache_misses.eq(fate.insert & ~item.probe),
        done.eq(fate.ends),
    ]
    m.d.sync += [judge.valid.eq(fate.ends & ~item.probe), judge.hit.eq(fate.hits), judge.reason.eq(fate.reason),
                 judge.index.eq(resolve.index)]
    m.d.sync += [missed.valid.eq(fate.misses), missed.retired.eq(lane.left), missed.head.eq(resolve.head),
                 missed.space.eq(~lane.left & ~above(demands.level, DEMANDS - 2)),
                 missed.told_qpn.eq(Mux(lane.left, lane.left_qpn, item.qpn)), missed.qp.qpn.eq(item.qpn),
                 missed.qp.generation.eq(item.generation), missed.head_rsn.eq(cache.head_rsn)]
    # The head that was seen must go, no other: it may have left already. Then the header tries again.
    m.d.comb += [
        cache.depth.eq(matcher.prefetch_depth), full.eq(missed.head & cache.full),
        tell.eq(missed.valid & ~full & missed.space),
        demands.i.valid.eq(missed.retired | tell), demands.i.payload.eq(missed.told_qpn),
        force.valid.eq(missed.valid & full), force.qp.eq(missed.qp), force.rsn.eq(missed.head_rsn),
    ]
    # The match queue hears of it a cycle later: what it says of older headers counts that.
    m.d.comb += [waits.place_next.eq(resolve.place), waits.qpn_next.eq(item.qpn),
                 waits.insert_awake.eq(~tell), waits.sleep.eq(tell)]
    m.d.sync += [
        waits.insert_en.eq(fate.insert), waits.put_back_en.eq(fate.put_back), waits.remove_en.eq(fate.ends & ~new),
        waits.item.eq(item),
    ]
    return judge, missed.valid


def mark_stage(m, matcher, lane, marks, coming, judge):
    """Last stages: the node that was read is marked, and whoever still reads it hears of that."""
    cache = matcher.cache
    m.d.comb += [
        marks.base.eq(cache.read_base), marks.slot.eq(coming.rsn - cache.read_node.rsn), marks.psn.eq(coming.psn),
        marks.i.eq(judge), marks.node.eq(cache.node), marks.pending.eq(cache.pending),
        cache.mark_bitmap.eq(marks.mark_bitmap), matcher.judged.eq(marks.judged),
        matcher.refuse.stb.eq(marks.refuse.stb), matcher.refuse.reason.eq(marks.refuse.reason),
    ]
    for sink in (cache, lane):
        m.d.comb += [sink.mark_en.eq(marks.mark_en), sink.mark_index.eq(marks.mark_index),
                     sink.mark.eq(marks.mark)]
