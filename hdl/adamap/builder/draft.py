"""A node being built: its state, how much of a run fits it, and how its body grows."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.logic import above, one_hot, sums_to
from ..cache.cached import COUNT_WIDTH, ENCODING_WIDTH

SPAN = 1 << abi.OFFSET_BITS
RUN_BITS = 2 * abi.OFFSET_BITS
LIST_LOW = abi.LIST_HOLES.bit_length()      # bits of the number of an entry of a LIST
RUN_LENGTH_BITS = abi.RUNS_HOLES.bit_length()       # that are ever set of the length of a run of RUNS


class Counts(data.Struct):
    """What tells which encodings can hold a draft."""

    count: range(abi.NODE_HOLES_MAX + 1)
    end: range(SPAN + abi.RUNS_HOLES + 1)   # offset behind the last hole
    runs: range(abi.RUNS_MAX + 2)           # stays at one more than the encoding RUNS can hold


class Draft(data.Struct):
    """A node being built, in the first encoding that can hold it; the counters say which one that is."""

    base: 32
    counts: Counts
    body: abi.NODE_BODY_BITS


def fits(params, counts):
    """By name of the encoding: whether it can hold a draft."""
    can = {
        "LIST": ~above(counts.count, abi.LIST_HOLES) & ~above(counts.end, SPAN),
        "RUNS": ~above(counts.count, abi.RUNS_HOLES) & ~above(counts.runs, abi.RUNS_MAX),
        "BITMAP": Const(1, 1),
    }
    return {name: can[name] if name in params.node_encodings else Const(0, 1) for name in can}


def encoding_of(params, counts):
    """The first encoding that can hold a draft, if any can."""
    can, found = fits(params, counts), None
    for name in reversed(params.node_encodings):
        code = Const(abi.Encoding[name].value, ENCODING_WIDTH)
        found = code if found is None else Mux(can[name], code, found)
    return found


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


STEPS = 16                          # bits of a row
ROWS = abi.NODE_BODY_BITS // STEPS


class Reach(data.Struct):
    """Which bits of a BITMAP are below a number, row by row: in rows that begin below it the first steps are, in those
    that end below it all."""

    steps: STEPS
    begun: ROWS
    whole: ROWS


def reach_of(number):
    """:class:`Reach` of a number; beyond the last row it is all."""
    low, high = number[:STEPS.bit_length() - 1], number[STEPS.bit_length() - 1:]
    return Cat(Cat(above(low, k) for k in range(STEPS)), Cat(above(high, row - 1) for row in range(ROWS)),
               Cat(above(high, row) for row in range(ROWS)))


class Addition(data.Struct):
    """Consecutive holes."""

    offset: abi.OFFSET_BITS
    merge: 1                        # they go on where the ones before end
    runs: abi.RUNS_MAX + 1          # one-hot: how many runs are before them
    skipped: Reach                  # of a BITMAP
    passed: Reach
    endless: 1                      # all bits are passed
    listed: abi.LIST_HOLES          # which entries of a LIST are theirs
    entries: data.ArrayLayout(LIST_LOW + 1, abi.LIST_HOLES)     # their low bits, and whether the high ones are `next`
    high: abi.OFFSET_BITS - LIST_LOW
    next: abi.OFFSET_BITS - LIST_LOW


class DraftAddition(wiring.Component):
    """Decodes what is to be added: the piece of a run that fits, or an entry of an older body. Latency 1.

    Members
    -------
    counts, offset, sums : In(Counts), In(32), In(Sums)
        Of the draft, and of the run.
    entry_en, entry_first : In(1)
        It is an entry; the first one, if there is none behind it.
    entry_offset, entry_end, entry_merge : In
        As :class:`DraftEntries` has them.
    o : Out(Addition)
        Of an entry without what is said of a LIST.
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
            o.offset.eq(offset), o.skipped.eq(reach_of(offset[:COUNT_WIDTH])), o.passed.eq(reach_of(end)),
            o.endless.eq(~self.entry_en & (sums.long | sums.end[COUNT_WIDTH:].any())),
            o.high.eq(high), o.next.eq(high + 1),
            *[o.entries[k].eq(low + k) for k in range(abi.LIST_HOLES)],
            o.listed.eq(Cat(~above(counts.count, k) & (sums.long | above(sums.count, k))
                            & ~(high.all() & above(low, (1 << LIST_LOW) - 1 - k)) for k in range(abi.LIST_HOLES))),
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


class DraftEntries(wiring.Component):
    """Entries of a body of LIST or RUNS: the first one two cycles after ``body_en``, then one per cycle.

    Members
    -------
    body, body_en : In(320), In(1)
    of_list : In(1)
        The body is a LIST; it counts from the cycle after ``body_en`` on.
    offset, end : Out(16), Out(9)
        Of an entry; ``end`` is that behind it, if it is one of a BITMAP.
    merge : Out(1)
        The entry begins where the one before it ended, of a LIST; not to be looked at with the first one.
    """

    def __init__(self):
        super().__init__({
            "body": In(abi.NODE_BODY_BITS), "body_en": In(1), "of_list": In(1),
            "offset": Out(abi.OFFSET_BITS), "end": Out(COUNT_WIDTH), "merge": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        left = Signal(abi.NODE_BODY_BITS)       # from the next one on
        offset, length = left[:abi.OFFSET_BITS], left[abi.OFFSET_BITS:][:RUN_LENGTH_BITS]
        m.d.sync += [
            left.eq(Mux(self.body_en, self.body, Mux(self.of_list, left >> abi.OFFSET_BITS, left >> RUN_BITS))),
            self.offset.eq(offset), self.end.eq(offset + Mux(self.of_list, 1, length)),
            self.merge.eq(sums_to(self.offset, Const(1, 1), offset)),
        ]
        return m


class DraftGrowth(wiring.Component):
    """Adds consecutive holes to a body. Combinational; a block of its own, as
    :class:`~weft.hdl.part.select.IndexOf` is.

    Behind its entries a body is zero, so what is new is OR-ed to it; only the length of the last run is added to.

    Members
    -------
    before : In(320)
        The body so far.
    added, length : In(Addition), In(7)
        They fit; ``length`` is looked at for RUNS.
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
        begun, ended = Signal(abi.RUNS_MAX), Signal(abi.RUNS_MAX)   # the run that is new, or longer than it was
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
