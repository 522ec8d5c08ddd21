"""How much of a run a draft takes, and in which encoding."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..contract.params import CardParams
from ..part.logic import above
from .cached import COUNT_WIDTH
from .draft import LIST_LOW, SPAN, Counts, fits


class Sums(data.Struct):
    """Of a run and the draft that it comes to, in registers."""

    merge: 1                    # it goes on where the last run of the draft ends
    far: 1                      # it begins behind the span of a node
    long: 1                     # it is longer than any node; the next two count only its low bits
    count: COUNT_WIDTH + 1      # holes with the whole run
    end: abi.OFFSET_BITS + 1    # offset behind the run
    first: abi.OFFSET_BITS      # where it begins less the holes before: entry i of a list is `first + i`


class Encodings(data.Struct):
    """A bit for each."""

    list: 1
    runs: 1
    bitmap: 1


class DraftFit(wiring.Component):
    """Finds how much of a run fits a draft, and in which encoding that is: the first of those that hold most of it.

    Latency 2: ``sums`` and ``before`` one cycle late, the rest two. One question per cycle.

    No number is compared with another one: what an encoding still holds ends where a sum reaches a constant.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    counts, offset, run_length : In(Counts), In(32), In(24)
        Of the draft, and of the run, which is not empty; they stay for two cycles.
    sums : Out(Sums)
    before : Out(Encodings)
        That of the body, if there are holes in it.
    none : Out(1)
        No encoding takes any of it; the rest counts only if one does.
    whole : Out(1)
        All of it fits.
    length : Out(9)
        So much of it does.
    encoding : Out(Encodings)
        For the draft with that; no bit is set if there is none.
    changes : Out(1)
        Its body has another one.
    fills : Out(1)
        With that it has as many holes as a node may have.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "counts": In(Counts), "offset": In(32), "run_length": In(24), "sums": Out(Sums), "before": Out(Encodings),
            "none": Out(1), "whole": Out(1), "length": Out(COUNT_WIDTH), "encoding": Out(Encodings),
            "changes": Out(1), "fills": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        old, offset, length, encodings = self.counts, self.offset, self.run_length, self.params.node_encodings
        known, sums, before = fits(self.params, old), self.sums, self.before
        low_offset, low_length, some = offset[:abi.OFFSET_BITS], length[:COUNT_WIDTH], old.count != 0
        by_list, by_bitmap, may_merge, may_begin = (Signal(name=name) for name in (
            "by_list", "by_bitmap", "may_merge", "may_begin"))
        # What is left of each encoding's holes, and of the span of a node where little is.
        places, run_places = Signal(range(abi.LIST_HOLES + 1)), Signal(range(abi.RUNS_HOLES + 1))
        bits, space = Signal(COUNT_WIDTH), Signal.like(places)
        m.d.sync += [
            sums.merge.eq(some & (offset == old.end)), sums.far.eq(offset[abi.OFFSET_BITS:].any()),
            sums.long.eq(length[COUNT_WIDTH:].any()), sums.count.eq(old.count + low_length),
            sums.end.eq(low_offset + low_length), sums.first.eq(low_offset - old.count),
            before.list.eq(some & known["LIST"]), before.runs.eq(some & ~known["LIST"] & known["RUNS"]),
            before.bitmap.eq(some & ~known["LIST"] & ~known["RUNS"]),
            places.eq(abi.LIST_HOLES - old.count), run_places.eq(abi.RUNS_HOLES - old.count),
            bits.eq(abi.NODE_BODY_BITS - low_offset), space.eq(-low_offset),
        ]
        if "LIST" in encodings:
            m.d.sync += by_list.eq(~offset[abi.OFFSET_BITS:].any() & ~above(old.count, abi.LIST_HOLES - 1))
        if "RUNS" in encodings:
            some_left = ~above(old.count, abi.RUNS_HOLES - 1)
            m.d.sync += [
                may_merge.eq(some_left & ~above(old.runs, abi.RUNS_MAX)),
                may_begin.eq(some_left & ~above(old.runs, abi.RUNS_MAX - 1) & ~offset[abi.OFFSET_BITS:].any()),
            ]
        if "BITMAP" in encodings:
            m.d.sync += by_bitmap.eq(~offset[COUNT_WIDTH:].any()
                                     & ~above(offset[:COUNT_WIDTH], abi.NODE_BODY_BITS - 1))

        # Whether each takes all of the run; above: whether it takes something.
        by_runs, list_all, runs_all, bitmap_all = (Signal(name=name) for name in (
            "by_runs", "list_all", "runs_all", "bitmap_all"))
        near = ~sums.far & ~sums.long
        if "LIST" in encodings:
            # Of a run as short as that, only low bits can be set behind the span.
            beyond = sums.end[abi.OFFSET_BITS] & sums.end[:LIST_LOW].any()
            m.d.comb += list_all.eq(near & ~above(sums.count, abi.LIST_HOLES) & ~beyond)
        if "RUNS" in encodings:
            m.d.comb += [by_runs.eq(Mux(sums.merge, may_merge, may_begin)),
                         runs_all.eq(by_runs & ~sums.long & ~above(sums.count, abi.RUNS_HOLES))]
        if "BITMAP" in encodings:
            m.d.comb += bitmap_all.eq(near & ~above(sums.end, abi.NODE_BODY_BITS))
        # Where RUNS takes something, that is more than a LIST does; where `first` is large, a BITMAP takes no more.
        whole, most_list, most_runs = Signal(), Signal(), Signal()
        m.d.comb += [
            whole.eq(list_all | runs_all | bitmap_all),
            most_runs.eq(by_runs & (~by_bitmap | above(sums.first, abi.NODE_BODY_BITS - abi.RUNS_HOLES - 1))),
            most_list.eq(by_list & ~by_runs & (
                ~by_bitmap | above(sums.first, abi.NODE_BODY_BITS - abi.LIST_HOLES - 1))),
        ]
        listed = Mux(above(sums.first, SPAN - abi.LIST_HOLES), space, places)
        most = Mux(most_runs, run_places, Mux(most_list, listed, bits))
        as_list, as_runs = list_all | (~whole & most_list), (~list_all & runs_all) | (~whole & most_runs)
        m.d.sync += [
            self.none.eq(~by_list & ~by_runs & ~by_bitmap), self.whole.eq(whole),
            self.length.eq(Mux(whole, low_length, most)),
            self.encoding.list.eq(as_list), self.encoding.runs.eq(as_runs),
            self.encoding.bitmap.eq(by_bitmap & ~as_list & ~as_runs),
            self.changes.eq((before.list & ~as_list) | (before.runs & ~as_runs)),
            self.fills.eq(by_bitmap & (sums.first == 0) & (sums.long | above(sums.end, abi.NODE_HOLES_MAX - 1))),
        ]
        return m
