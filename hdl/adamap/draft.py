"""A node being built: how much of a run it takes, in which encoding, and what it becomes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from ..logic import above, below
from ..params import CardParams
from .cached import COUNT_WIDTH, ENCODING_WIDTH

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
            "LIST": ~above(counts.count, abi.LIST_HOLES) & ~above(counts.end, SPAN),
            "RUNS": ~above(counts.count, abi.RUNS_HOLES) & ~above(counts.runs, abi.RUNS_MAX),
            "BITMAP": Const(1),
        }[name]
        code = Const(abi.Encoding[name].value, ENCODING_WIDTH)
        found = code if found is None else Mux(fits, code, found)
    return found


class Measure(wiring.Component):
    """Finds how much of a run fits a draft. A block of its own: its many levels are not for its surroundings.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    counts : In(Counts)
        Of the draft.
    offset, run_length, measuring, piece
        As :class:`Growth` has them.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "counts": In(Counts), "offset": In(32), "run_length": In(24), "measuring": In(1), "piece": Out(Piece),
        })

    def elaborate(self, platform):
        m = Module()
        old, offset, encodings = self.counts, self.offset, self.params.node_encodings
        merge, far = Signal(), Signal()
        m.d.comb += [merge.eq((old.count != 0) & (offset == old.end)), far.eq(offset[abi.OFFSET_BITS:].any())]
        in_list, in_runs, in_bitmap = (Signal(range(most + 1), name=name) for name, most in (
            ("in_list", abi.LIST_HOLES), ("in_runs", abi.RUNS_HOLES), ("in_bitmap", abi.NODE_HOLES_MAX)))
        by_runs, in_either = Signal(), Signal(in_runs.shape())
        if "LIST" in encodings:
            bits = len(in_list)
            places, space = (abi.LIST_HOLES - old.count)[:bits], ((1 << bits) - offset[:bits])[:bits + 1]
            with m.If(~far & (old.count < abi.LIST_HOLES)):
                # `space` is that to the end of the span, where it is short.
                m.d.comb += in_list.eq(Mux(offset[bits:abi.OFFSET_BITS].all() & (space < places), space, places))
        if "RUNS" in encodings:
            m.d.comb += [
                by_runs.eq(Mux(merge, old.runs <= abi.RUNS_MAX, (old.runs < abi.RUNS_MAX) & ~far)
                           & (old.count < abi.RUNS_HOLES)),
                in_runs.eq(abi.RUNS_HOLES - old.count),
            ]
        if "BITMAP" in encodings:
            near = offset[:COUNT_WIDTH]
            with m.If(~offset[COUNT_WIDTH:].any() & ~above(near, abi.NODE_BODY_BITS - 1)):
                m.d.comb += in_bitmap.eq(abi.NODE_BODY_BITS - near)
        # The most that one of them holds. Where RUNS can hold something, that is more than a LIST holds.
        m.d.comb += in_either.eq(Mux(by_runs, in_runs, in_list))
        whole = (self.run_length <= in_either) | (self.run_length <= in_bitmap)
        most = Mux(in_either > in_bitmap, in_either, in_bitmap)
        with m.If(self.measuring):
            m.d.sync += [self.piece.offset.eq(offset), self.piece.length.eq(Mux(whole, self.run_length, most))]
        return m


class Growth(wiring.Component):
    """Measures and adds: a piece of a run per two cycles, an entry of an older body per cycle.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    draft : In(Draft)
    offset, run_length, measuring : In(32), In(24), In(1)
        Of the run: the offset in the draft of its first hole.
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
            "draft": In(Draft), "offset": In(32), "run_length": In(24), "measuring": In(1), "piece": Out(Piece),
            "added": In(Piece), "wanted": Out(ENCODING_WIDTH), "encoding": In(ENCODING_WIDTH), "grown": Out(Draft),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.measure = measure = Measure(self.params)
        m.d.comb += [
            measure.counts.eq(self.draft.counts), measure.offset.eq(self.offset),
            measure.run_length.eq(self.run_length), measure.measuring.eq(self.measuring), self.piece.eq(measure.piece),
        ]
        counts, merge = self._count(m)
        m.d.comb += self.wanted.eq(encoding_of(self.params, counts))
        self._grow(m, counts, merge)
        return m

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
        skipped = below(m, piece.offset[:COUNT_WIDTH], abi.NODE_BODY_BITS, "skipped")
        passed = below(m, piece.offset[:COUNT_WIDTH] + piece.length, abi.NODE_BODY_BITS, "passed")
        first = (piece.offset - old.count)[:abi.OFFSET_BITS]    # entry i of the list is `first + i`
        m.d.comb += [self.grown.base.eq(self.draft.base), self.grown.counts.eq(counts), body.eq(before)]
        there, then = (below(m, number, abi.LIST_HOLES, name)
                       for number, name in ((old.count, "there"), (counts.count, "then")))
        with m.Switch(self.encoding):
            with m.Case(abi.Encoding.LIST.value):
                for k in range(abi.LIST_HOLES):
                    with m.If(~there[k] & then[k]):
                        m.d.comb += body.word_select(k, abi.OFFSET_BITS).eq(first + k)
            with m.Case(abi.Encoding.RUNS.value):
                for k in range(abi.RUNS_MAX):
                    word, run = body.word_select(k, RUN_BITS), before.word_select(k, RUN_BITS)
                    with m.If(merge & (old.runs == k + 1)):
                        m.d.comb += word[abi.OFFSET_BITS:].eq(run[abi.OFFSET_BITS:] + piece.length)
                    with m.If(~merge & (old.runs == k)):
                        m.d.comb += word.eq(Cat(piece.offset[:abi.OFFSET_BITS], piece.length))
            with m.Default():
                m.d.comb += body.eq(before | (passed & ~skipped))
