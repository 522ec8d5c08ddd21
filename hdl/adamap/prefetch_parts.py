"""The blocks of the prefetcher, wired with each other and with its ports."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import wiring

from ..contract import abi
from ..part.logic import above, at_most
from .ahead import AheadKind
from .arrival import Arrival
from .fetches import LINES, Fetches, fetch_slots
from .list_break import ListBreak
from .list_row import Job, ListRow
from .read_reach import ReadReach, reserve
from .turn_out import TurnOut
from .work_list import WorkList


class PrefetchParts:
    """Makes the blocks in the module ``m`` of a :class:`~weft.hdl.adamap.prefetch.Prefetch`.

    Attributes
    ----------
    work, row, reach, fetches, arrival, turn_out, broken
        The blocks.
    qpn, job : Signal
        The list whose turn it is, and what its row is read for.
    slot, lines : Signal
        The read that is looked at; how many blocks the next one asks for.
    filling : Signal
        Go on until the depth is reached.
    few, wanted : Signal
        Of its nodes are there; another one is.
    of_control : Signal
        A read of the QP under control is in flight.
    """

    def __init__(self, m, prefetch):
        p, cache, step, op = prefetch.params, prefetch.cache, prefetch.step, prefetch.i_control.p
        m.submodules.work = self.work = work = WorkList(p)
        m.submodules.row = self.row = row = ListRow(p)
        m.submodules.reach = self.reach = reach = ReadReach(p)
        m.submodules.fetches = self.fetches = fetches = Fetches(p)
        m.submodules.arrival = self.arrival = arrival = Arrival(p)
        m.submodules.turn_out = self.turn_out = turn_out = TurnOut(p)
        m.submodules.broken = self.broken = broken = ListBreak(p)
        qpn, job = Signal(p.qpn_width), Signal(Job)     # there are no others than those of the card
        view = row.o
        busy, of_control = fetches.of_qpn       # a read of the list, of the QP under control, is in flight
        filling = Signal()
        lines, line = Signal(range(LINES + 1)), Signal(58)      # blocks to read, and where
        slot = Signal(range(fetch_slots(p)))
        few, wanted = Signal(), Signal()
        self.qpn, self.job, self.slot, self.lines, self.filling = qpn, job, slot, lines, filling
        self.few, self.wanted, self.of_control = few, wanted, of_control
        _connect_row(m, prefetch, row, qpn)
        _connect_reach(m, prefetch, reach, row)
        _connect_arrival(m, prefetch, arrival, fetches, row, few)
        _connect_turn_out(m, prefetch, turn_out, arrival, row, qpn, view.live & (~busy | fetches.kept))
        m.d.comb += [
            *[a.eq(b) for a, b in zip(fetches.extent_base, prefetch.extent_base, strict=True)],
            *[a.eq(b) for a, b in zip(fetches.extent_lines, prefetch.extent_lines, strict=True)],
            fetches.slot.eq(slot), fetches.part.eq(arrival.part), fetches.qpn[0].eq(qpn), fetches.qpn[1].eq(op.qpn),
            fetches.start.qpn.eq(qpn), fetches.start.generation.eq(view.generation),
            fetches.start.block.eq(view.block), fetches.start.lines.eq(lines),
            fetches.start.all.eq(lines == view.ahead),
            fetches.keep_en.eq(arrival.homeless), fetches.keep_loose.eq(~view.waiting),
            prefetch.o_line.p.line.eq(line), prefetch.o_line.p.count.eq(lines),
            prefetch.o_line.p.tag.eq(fetches.free_slot),
            work.post_stb.eq(prefetch.post_stb), work.post_qpn.eq(prefetch.post_qpn),
            work.i[1].payload.eq(prefetch.i_demand.payload), work.i[1].valid.eq(prefetch.i_demand.valid),
            prefetch.i_demand.ready.eq(work.i[1].ready), work.i[0].payload.eq(qpn),
            broken.qpn.eq(qpn), broken.generation.eq(view.generation), broken.end_ready.eq(step.ready),
            broken.reason.eq(abi.Reason.BAD_POINTER.value),
            cache.qpn.eq(qpn), step.p.qpn.eq(qpn), step.p.kind.eq(AheadKind.END),
            few.eq(view.waiting | cache.none),
            wanted.eq(view.live & ~busy & (view.ahead != 0) & reach.room & (view.waiting | filling | reach.low)),
        ]
        wiring.connect(m, wiring.flipped(prefetch.i_line), fetches.i_line)
        wiring.connect(m, broken.o_report, wiring.flipped(prefetch.o_report))
        wiring.connect(m, broken.o_qp_error, wiring.flipped(prefetch.o_qp_error))
        m.d.sync += line.eq(reach.line)


def _connect_row(m, prefetch, row, qpn):
    """The row of a list, with what doorbells and headers say of it."""
    m.d.comb += [
        row.qpn.eq(qpn), row.post_stb.eq(prefetch.post_stb), row.post_qpn.eq(prefetch.post_qpn),
        prefetch.row_en.eq(row.row_en), prefetch.row_index.eq(row.row_index), row.ahead.eq(prefetch.ahead),
        prefetch.waiting_qpn.eq(Mux(row.kept, qpn, prefetch.cache.peek.qpn)), row.waiting.eq(prefetch.waiting),
        *[a.eq(b) for a, b in zip(row.extent_base, prefetch.extent_base, strict=True)],
        *[a.eq(b) for a, b in zip(row.extent_lines, prefetch.extent_lines, strict=True)],
    ]
    wiring.connect(m, row.qp, wiring.flipped(prefetch.qp))


def _connect_reach(m, prefetch, reach, row):
    """How far a read may go from where the list goes on, by what is free and by what the driver set."""
    cache, most = prefetch.cache, 2 * prefetch.params.cache_entries
    m.d.comb += [
        reach.block.eq(row.o.block), reach.base.eq(row.base), reach.size.eq(row.size), reach.ahead.eq(row.o.ahead),
        reach.cached.eq(cache.cached), reach.free.eq(cache.free_count),
    ]
    m.d.sync += [reach.depth.eq(at_most(most, prefetch.prefetch_depth)),
                 reach.watermark.eq(at_most(most, prefetch.prefetch_watermark))]


def _connect_arrival(m, prefetch, arrival, fetches, row, few):
    """What a read brought, on its way into the cache."""
    cache = prefetch.cache
    m.d.comb += [
        arrival.list.eq(row.o), arrival.posted.eq(row.posted),
        row.on_lands.eq(arrival.lands), row.block.eq(arrival.found),
        arrival.fetch.eq(fetches.fetch), arrival.pointed.eq(fetches.pointed), arrival.verdict.eq(fetches.verdict),
        arrival.error.eq(fetches.error),
        arrival.may_take.eq(cache.free & (few | above(cache.free_count, reserve(prefetch.params)))),
        arrival.free_index.eq(cache.free_index), cache.reserve_en.eq(arrival.reserve_en),
        arrival.follows.eq(cache.follows), arrival.fill_ready.eq(cache.fill_ready),
        arrival.step_ready.eq(prefetch.step.ready),
        cache.fill_en.eq(arrival.lands), cache.fill_index.eq(arrival.entry), cache.fill_node.eq(fetches.node),
        cache.fill_block.eq(row.o.block),
    ]


def _connect_turn_out(m, prefetch, turn_out, arrival, row, qpn, goes_on):
    """Who finds an entry for what has none."""
    cache = prefetch.cache
    m.d.comb += [
        turn_out.homeless.eq(arrival.homeless), turn_out.urgent.eq(row.o.waiting),
        turn_out.none.eq(cache.none), turn_out.qpn.eq(qpn), turn_out.landed.eq(arrival.lands),
        turn_out.spare.eq(cache.spare), turn_out.spare_index.eq(cache.spare_index),
        cache.peek_index.eq(turn_out.peek_index), turn_out.peek.eq(cache.peek),
        turn_out.peek_valid.eq(cache.peek_valid), turn_out.peek_touched.eq(cache.peek_touched),
        turn_out.peek_last.eq(cache.peek_last), turn_out.waiting.eq(prefetch.waiting), turn_out.goes_on.eq(goes_on),
        prefetch.exclusive.eq(turn_out.exclusive), turn_out.granted.eq(prefetch.granted),
        turn_out.back_ready.eq(prefetch.step.ready),
        cache.release_en.eq(turn_out.release_en | arrival.release_en),
        cache.release_index.eq(Mux(turn_out.exclusive, turn_out.peek_index, arrival.entry)),
    ]
    wiring.connect(m, turn_out.o_force, wiring.flipped(prefetch.o_force))
