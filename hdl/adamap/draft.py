"""A node being built: how much of a run it takes, in which encoding, and what it becomes."""

from functools import reduce

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from ..params import CardParams
from .head_cache import COUNT_WIDTH, ENCODING_WIDTH

SPAN = 1 << abi.OFFSET_BITS
RUN_BITS = 2 * abi.OFFSET_BITS


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


class Piece(data.Struct):
    """Consecutive holes of a node."""

    offset: abi.OFFSET_BITS + 1
    length: COUNT_WIDTH


def encoding_of(params, counts):
    """The first encoding that can hold a draft, if any can."""
    found = None
    for name in reversed(params.node_encodings):
        fits = {
            "LIST": (counts.count <= abi.LIST_HOLES) & (counts.end <= SPAN),
            "RUNS": (counts.count <= abi.RUNS_HOLES) & (counts.runs <= abi.RUNS_MAX),
            "BITMAP": Const(1),
        }[name]
        code = Const(abi.Encoding[name].value, ENCODING_WIDTH)
        found = code if found is None else Mux(fits, code, found)
    return found


class Growth(wiring.Component):
    """Measures and adds: a piece of a run per two cycles, an entry of an older body per cycle.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    draft : In(Draft)
    run_psn, run_length, measuring : In
    piece : Out(Piece)
        As much of the run as fits the draft, a cycle after ``measuring``; it stays.
    added : In(Piece)
        What the draft is to get; it fits.
    wanted : Out(2)
        The encoding for that, at once.
    encoding : In(2)
        Of the draft's body, and of what it becomes.
    grown : Out(Draft)
        What it becomes, at once.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "draft": In(Draft), "run_psn": In(32), "run_length": In(24), "measuring": In(1), "piece": Out(Piece),
            "added": In(Piece), "wanted": Out(ENCODING_WIDTH), "encoding": In(ENCODING_WIDTH), "grown": Out(Draft),
        })

    def elaborate(self, platform):
        m = Module()
        self._measure(m)
        counts, merge = self._count(m)
        m.d.comb += self.wanted.eq(encoding_of(self.params, counts))
        self._grow(m, counts, merge)
        return m

    def _measure(self, m):
        """As much of the run as fits the draft."""
        base, old = self.draft.base, self.draft.counts
        offset, merge, far = Signal(32), Signal(), Signal()
        fitting = {name: Signal(range(SPAN + 1), name=f"in_{name.lower()}") for name in self.params.node_encodings}
        m.d.comb += [
            offset.eq(self.run_psn - base),
            merge.eq((old.count != 0) & (offset == old.end)),
            far.eq(offset >= SPAN),
        ]
        if "LIST" in fitting:
            places, space = (abi.LIST_HOLES - old.count)[:5], (SPAN - offset)[:17]
            with m.If(~far & (old.count < abi.LIST_HOLES)):
                m.d.comb += fitting["LIST"].eq(Mux(space < places, space, places))
        if "RUNS" in fitting:
            place = Mux(merge, old.runs <= abi.RUNS_MAX, (old.runs < abi.RUNS_MAX) & ~far)
            with m.If(place & (old.count < abi.RUNS_HOLES)):
                m.d.comb += fitting["RUNS"].eq((abi.RUNS_HOLES - old.count)[:7])
        if "BITMAP" in fitting:
            with m.If(offset < abi.NODE_BODY_BITS):
                m.d.comb += fitting["BITMAP"].eq(abi.NODE_BODY_BITS - offset)
        most = reduce(lambda a, b: Mux(a > b, a, b), fitting.values())
        with m.If(self.measuring):
            m.d.sync += [self.piece.offset.eq(offset),
                         self.piece.length.eq(Mux(self.run_length < most, self.run_length, most))]

    def _count(self, m):
        """The counters with what is added, and whether that continues the last run."""
        old, piece = self.draft.counts, self.added
        counts, merge = Signal(Counts), Signal()
        m.d.comb += [
            merge.eq((old.count != 0) & (piece.offset == old.end)),
            counts.count.eq(old.count + piece.length), counts.end.eq(piece.offset + piece.length),
        ]
        with m.If(~merge & (old.runs <= abi.RUNS_MAX)):
            m.d.comb += counts.runs.eq(old.runs + 1)
        with m.Else():
            m.d.comb += counts.runs.eq(old.runs)
        return counts, merge

    def _grow(self, m, counts, merge):
        """The body with what is added."""
        old, before, piece, body = self.draft.counts, self.draft.body, self.added, self.grown.body
        first = (piece.offset - old.count)[:abi.OFFSET_BITS]    # entry i of the list is `first + i`
        m.d.comb += [self.grown.base.eq(self.draft.base), self.grown.counts.eq(counts), body.eq(before)]
        with m.Switch(self.encoding):
            with m.Case(abi.Encoding.LIST.value):
                for k in range(abi.LIST_HOLES):
                    with m.If((k >= old.count) & (k < old.count + piece.length)):
                        m.d.comb += body.word_select(k, abi.OFFSET_BITS).eq(first + k)
            with m.Case(abi.Encoding.RUNS.value):
                for k in range(abi.RUNS_MAX):
                    word, run = body.word_select(k, RUN_BITS), before.word_select(k, RUN_BITS)
                    with m.If(merge & (old.runs == k + 1)):
                        m.d.comb += word[abi.OFFSET_BITS:].eq(run[abi.OFFSET_BITS:] + piece.length)
                    with m.If(~merge & (old.runs == k)):
                        m.d.comb += word.eq(Cat(piece.offset[:abi.OFFSET_BITS], piece.length))
            with m.Default():
                ones = ((Const(1, 1) << piece.length) - 1)[:abi.NODE_BODY_BITS]
                m.d.comb += body.eq(before | (ones << piece.offset[:COUNT_WIDTH]))
