"""An open node: its state, how much of a run fits, and how its body grows."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.logic import greater_than, one_hot, sum_equals
from ..cache.cached import COUNT_WIDTH, ENCODING_WIDTH

SPAN = 1 << abi.OFFSET_BITS
RUN_BITS = 2 * abi.OFFSET_BITS
LIST_LOW = abi.LIST_HOLES.bit_length()      # bits of the index of an entry of a LIST
RUN_LENGTH_BITS = abi.RUNS_HOLES.bit_length()       # bits of the length of a run of RUNS that can be set


class Counts(data.Struct):
    """Counts that decide which encodings can hold an open node."""

    count: range(abi.NODE_HOLES_MAX + 1)
    end: range(SPAN + abi.RUNS_HOLES + 1)   # offset after the last hole
    runs: range(abi.RUNS_MAX + 2)           # saturates at one more than the encoding RUNS can hold


class OpenNode(data.Struct):
    """An open node, in the first encoding that can hold it; the counts determine that encoding."""

    base: 32
    counts: Counts
    body: abi.NODE_BODY_BITS


def fits(params, counts):
    """Return, by name of the encoding, whether it can hold an open node."""
    can = {
        "LIST": ~greater_than(counts.count, abi.LIST_HOLES) & ~greater_than(counts.end, SPAN),
        "RUNS": ~greater_than(counts.count, abi.RUNS_HOLES) & ~greater_than(counts.runs, abi.RUNS_MAX),
        "BITMAP": Const(1, 1),
    }
    return {name: can[name] if name in params.node_encodings else Const(0, 1) for name in can}


def encoding_of(params, counts):
    """Return the first encoding that can hold an open node; undefined if none can."""
    can, found = fits(params, counts), None
    for name in reversed(params.node_encodings):
        code = Const(abi.Encoding[name].value, ENCODING_WIDTH)
        found = code if found is None else Mux(can[name], code, found)
    return found


class Sums(data.Struct):
    """Sums of a run and the open node that it is added to, registered."""

    merge: 1                    # the run continues the last run of the open node
    far: 1                      # it begins beyond the span of a node
    long: 1                     # it is longer than any node; the next two contain its low bits only
    count: COUNT_WIDTH + 1      # number of holes including the whole run
    end: abi.OFFSET_BITS + 1    # offset after the run
    first: abi.OFFSET_BITS      # offset of the run minus the number of holes before: entry i of a list is `first + i`


class Encodings(data.Struct):
    """One-hot encoding."""

    list: 1
    runs: 1
    bitmap: 1


class OpenNodeFit(wiring.Component):
    """Finds how much of a run fits an open node, and in which encoding: the first of those that hold most of it.

    Latency 2: ``sums`` and ``before`` one cycle late, the rest two. One request per cycle.

    There is no comparison of two signals: the capacity of an encoding ends where a sum reaches a constant.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    counts, offset, run_length : In(Counts), In(32), In(24)
        Of the open node, and of the run, which is not empty; held for two cycles.
    sums : Out(Sums)
    before : Out(Encodings)
        Encoding of the body, if it has holes.
    none : Out(1)
        No encoding takes any of the run; the other outputs are valid only if one does.
    whole : Out(1)
        All of the run fits.
    length : Out(9)
        Number of holes that fit.
    encoding : Out(Encodings)
        Of the open node with these holes; no bit is set if there is none.
    changes : Out(1)
        The body has another encoding.
    fills : Out(1)
        With these holes the node is full.
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
        # Free capacity of each encoding, and of the span of a node where that is less.
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
            m.d.sync += by_list.eq(~offset[abi.OFFSET_BITS:].any() & ~greater_than(old.count, abi.LIST_HOLES - 1))
        if "RUNS" in encodings:
            some_left = ~greater_than(old.count, abi.RUNS_HOLES - 1)
            m.d.sync += [
                may_merge.eq(some_left & ~greater_than(old.runs, abi.RUNS_MAX)),
                may_begin.eq(some_left & ~greater_than(old.runs, abi.RUNS_MAX - 1) & ~offset[abi.OFFSET_BITS:].any()),
            ]
        if "BITMAP" in encodings:
            m.d.sync += by_bitmap.eq(~offset[COUNT_WIDTH:].any()
                                     & ~greater_than(offset[:COUNT_WIDTH], abi.NODE_BODY_BITS - 1))

        # `by_*`: the encoding takes some of the run; `*_all`: it takes all.
        by_runs, list_all, runs_all, bitmap_all = (Signal(name=name) for name in (
            "by_runs", "list_all", "runs_all", "bitmap_all"))
        near = ~sums.far & ~sums.long
        if "LIST" in encodings:
            # The end of a run this short exceeds the span in its low bits only.
            beyond = sums.end[abi.OFFSET_BITS] & sums.end[:LIST_LOW].any()
            m.d.comb += list_all.eq(near & ~greater_than(sums.count, abi.LIST_HOLES) & ~beyond)
        if "RUNS" in encodings:
            m.d.comb += [by_runs.eq(Mux(sums.merge, may_merge, may_begin)),
                         runs_all.eq(by_runs & ~sums.long & ~greater_than(sums.count, abi.RUNS_HOLES))]
        if "BITMAP" in encodings:
            m.d.comb += bitmap_all.eq(near & ~greater_than(sums.end, abi.NODE_BODY_BITS))
        # If RUNS takes anything, it takes more than LIST; if `first` is large, BITMAP takes no more.
        whole, most_list, most_runs = Signal(), Signal(), Signal()
        m.d.comb += [
            whole.eq(list_all | runs_all | bitmap_all),
            most_runs.eq(by_runs & (~by_bitmap | greater_than(sums.first, abi.NODE_BODY_BITS - abi.RUNS_HOLES - 1))),
            most_list.eq(by_list & ~by_runs & (
                ~by_bitmap | greater_than(sums.first, abi.NODE_BODY_BITS - abi.LIST_HOLES - 1))),
        ]
        listed = Mux(greater_than(sums.first, SPAN - abi.LIST_HOLES), space, places)
        most = Mux(most_runs, run_places, Mux(most_list, listed, bits))
        as_list, as_runs = list_all | (~whole & most_list), (~list_all & runs_all) | (~whole & most_runs)
        m.d.sync += [
            self.none.eq(~by_list & ~by_runs & ~by_bitmap), self.whole.eq(whole),
            self.length.eq(Mux(whole, low_length, most)),
            self.encoding.list.eq(as_list), self.encoding.runs.eq(as_runs),
            self.encoding.bitmap.eq(by_bitmap & ~as_list & ~as_runs),
            self.changes.eq((before.list & ~as_list) | (before.runs & ~as_runs)),
            self.fills.eq(by_bitmap & (sums.first == 0) & (sums.long | greater_than(sums.end, abi.NODE_HOLES_MAX - 1))),
        ]
        return m


STEPS = 16                          # bits of a row
ROWS = abi.NODE_BODY_BITS // STEPS


class BitmapThermometer(data.Struct):
    """Thermometer code over the bits of a BITMAP, by rows.

    ``begun``: rows that begin below the number, whose first ``steps`` bits are set; ``whole``: rows that end below it,
    all of whose bits are set.
    """

    steps: STEPS
    begun: ROWS
    whole: ROWS


def bitmap_thermometer(number):
    """Return the :class:`BitmapThermometer` of a number; all bits if it is beyond the last row."""
    low, high = number[:STEPS.bit_length() - 1], number[STEPS.bit_length() - 1:]
    return Cat(Cat(greater_than(low, k) for k in range(STEPS)), Cat(greater_than(high, row - 1) for row in range(ROWS)),
               Cat(greater_than(high, row) for row in range(ROWS)))


class Addition(data.Struct):
    """Consecutive holes to add."""

    offset: abi.OFFSET_BITS
    merge: 1                        # the holes continue the ones before
    runs: abi.RUNS_MAX + 1          # number of runs before them, one-hot
    skipped: BitmapThermometer                  # bits of a BITMAP before them; `passed`: before their end
    passed: BitmapThermometer
    endless: 1                      # their end is beyond the BITMAP
    listed: abi.LIST_HOLES          # their entries of a LIST
    # low bits of each entry, and whether its high bits are `next`
    entries: data.ArrayLayout(LIST_LOW + 1, abi.LIST_HOLES)
    high: abi.OFFSET_BITS - LIST_LOW
    next: abi.OFFSET_BITS - LIST_LOW


class OpenNodeAddition(wiring.Component):
    """Decodes an addition: the part of a run that fits, or an entry of the body to convert. Latency 1.

    Members
    -------
    counts, offset, sums : In(Counts), In(32), In(Sums)
        Of the open node, and of the run.
    entry_en, entry_first : In(1)
        Decode an entry; the first one, if no entry was decoded before it.
    entry_offset, entry_end, entry_merge : In
        Of :class:`OpenNodeEntries`.
    o : Out(Addition)
        The fields for a LIST are undefined for an entry.
    """

    def __init__(self):
        super().__init__({
            "counts": In(Counts), "offset": In(32), "sums": In(Sums), "entry_en": In(1), "entry_first": In(1),
            "entry_offset": In(abi.OFFSET_BITS), "entry_end": In(COUNT_WIDTH), "entry_merge": In(1),
            "o": Out(Addition),
        })

    def elaborate(self, platform):
        m = Module()
        counts, sums, o = self.counts, self.sums, self.o
        offset, end = Signal(abi.OFFSET_BITS), Signal(COUNT_WIDTH)
        low, high = sums.first[:LIST_LOW], sums.first[LIST_LOW:]
        m.d.comb += [
            offset.eq(Mux(self.entry_en, self.entry_offset, self.offset)),
            end.eq(Mux(self.entry_en, self.entry_end, sums.end[:COUNT_WIDTH])),
        ]
        m.d.sync += [
            o.offset.eq(offset), o.skipped.eq(bitmap_thermometer(offset[:COUNT_WIDTH])),
            o.passed.eq(bitmap_thermometer(end)),
            o.endless.eq(~self.entry_en & (sums.long | sums.end[COUNT_WIDTH:].any())),
            o.high.eq(high), o.next.eq(high + 1),
            *[o.entries[k].eq(low + k) for k in range(abi.LIST_HOLES)],
            o.listed.eq(Cat(~greater_than(counts.count, k) & (sums.long | greater_than(sums.count, k))
                            & ~(high.all() & greater_than(low,
                                                          (1 << LIST_LOW) - 1 - k)) for k in range(abi.LIST_HOLES))),
        ]
        with m.If(~self.entry_en):
            m.d.sync += [o.merge.eq(sums.merge), o.runs.eq(one_hot(1, counts.runs, len(o.runs)))]
        with m.Elif(self.entry_first):
            m.d.sync += [o.merge.eq(0), o.runs.eq(1)]
        with m.Else():
            m.d.sync += o.merge.eq(self.entry_merge)
            with m.If(~o.merge):
                m.d.sync += o.runs.eq(o.runs << 1)
        return m


class OpenNodeEntries(wiring.Component):
    """Entries of a LIST or RUNS body: the first one two cycles after ``body_en``, then one per cycle.

    Members
    -------
    body, body_en : In(320), In(1)
    of_list : In(1)
        The body is a LIST; valid from the cycle after ``body_en`` on.
    offset, end : Out(16), Out(9)
        Of an entry; ``end`` is the offset after it, valid if the entry fits a BITMAP.
    merge : Out(1)
        The entry, of a LIST, begins where the one before it ended; undefined for the first one.
    """

    def __init__(self):
        super().__init__({
            "body": In(abi.NODE_BODY_BITS), "body_en": In(1), "of_list": In(1),
            "offset": Out(abi.OFFSET_BITS), "end": Out(COUNT_WIDTH), "merge": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        left = Signal(abi.NODE_BODY_BITS)       # entries from the next one on
        offset, length = left[:abi.OFFSET_BITS], left[abi.OFFSET_BITS:][:RUN_LENGTH_BITS]
        m.d.sync += [
            left.eq(Mux(self.body_en, self.body, Mux(self.of_list, left >> abi.OFFSET_BITS, left >> RUN_BITS))),
            self.offset.eq(offset), self.end.eq(offset + Mux(self.of_list, 1, length)),
            self.merge.eq(sum_equals(self.offset, Const(1, 1), offset)),
        ]
        return m


class OpenNodeGrowth(wiring.Component):
    """Adds consecutive holes to a body. Combinational.

    Kept as a block because per-module mapping trades depth for area: see "Size and longest paths" in
    docs/development.md.

    A body is zero after its entries, so a new one is OR-ed to it; only the length of the last run is an addition.

    Members
    -------
    before : In(320)
        The body so far.
    added, length : In(Addition), In(7)
        Holes that fit; ``length`` is used for RUNS.
    encoding : In(Encodings)
        Of the body.
    body : Out(320)
    """

    def __init__(self):
        super().__init__({"before": In(abi.NODE_BODY_BITS), "added": In(Addition), "length": In(RUN_LENGTH_BITS),
                          "encoding": In(Encodings), "body": Out(abi.NODE_BODY_BITS)})

    def elaborate(self, platform):
        m = Module()
        added, encoding = self.added, self.encoding
        begun, ended = Signal(abi.RUNS_MAX), Signal(abi.RUNS_MAX)   # the run that begins, or grows
        skipped, passed = added.skipped, added.passed
        m.d.comb += [
            begun.eq(added.runs[:-1] & (encoding.runs & ~added.merge).replicate(len(begun))),
            ended.eq(added.runs[1:] & (encoding.runs & added.merge).replicate(len(ended))),
        ]
        for k in range(ROWS):
            word, new = self.before.word_select(k, STEPS), Signal(STEPS, name=f"new{k}")
            some, listed, run = Signal(name=f"some{k}"), Signal(name=f"listed{k}"), k // 2
            m.d.comb += [some.eq(encoding.bitmap & (passed.begun[k] | added.endless) & ~skipped.whole[k]),
                         listed.eq(encoding.list & added.listed[k])]
            of_bitmap = (some.replicate(STEPS) & (passed.steps | (passed.whole[k] | added.endless).replicate(STEPS))
                         & ~(skipped.steps & skipped.begun[k].replicate(STEPS)))
            entry = added.entries[k]
            of_list = listed.replicate(STEPS) & Cat(entry[:LIST_LOW], Mux(entry[LIST_LOW], added.next, added.high))
            if k % 2:       # the length of a run, whose high bits are zero
                longer = Mux(begun[run] | ended[run], self.length, 0)
                word = Cat((word[:RUN_LENGTH_BITS] + longer)[:RUN_LENGTH_BITS], word[RUN_LENGTH_BITS:])
                m.d.comb += new.eq(of_bitmap | of_list)
            else:
                m.d.comb += new.eq(of_bitmap | of_list | (begun[run].replicate(STEPS) & added.offset))
            m.d.comb += self.body.word_select(k, STEPS).eq(word | new)
        return m
