"""What the body of a draft becomes."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from .draft import LIST_LOW, RUN_LENGTH_BITS
from .draft_addition import ROWS, STEPS, Addition
from .draft_fit import Encodings


class DraftGrowth(wiring.Component):
    """Adds consecutive holes to a body. Combinational; a block of its own, as
    :class:`~weft.hdl.adamap.index_of.IndexOf` is.

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
