"""What is added to a draft, as its body needs it: decoded a cycle ahead."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..part.logic import above, one_hot
from .cached import COUNT_WIDTH
from .draft import LIST_LOW, Counts
from .draft_fit import Sums

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
