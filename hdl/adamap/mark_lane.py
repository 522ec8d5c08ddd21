"""The last stages of the matcher: a header and its node become a mark, or a refusal."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from ..counting import Refusal
from ..logic import choose
from ..params import CardParams
from .cached import COUNT_WIDTH, CachedNode, Pending, index_width
from .hole import HoleCheck
from .is_open import IsOpen


def judged_header(params):
    """A header whose node is being read (``hit``), or that is refused for a reason."""
    return data.StructLayout({
        "valid": 1, "hit": 1, "reason": 8, "psn": 32, "slot": COUNT_WIDTH, "index": index_width(params)})


class MarkForward(wiring.Component):
    """Pending holes as they are, although a mark or two have not reached the memory yet.

    Members
    -------
    index : In
        Entry whose ``read`` value was asked for in the cycle before.
    read : In(Pending)
    mark_en, mark_index, mark : In
        The mark of this cycle; the one of the cycle before is kept here.
    now : Out(Pending)
    last : Out(Pending)
        The mark of the cycle before.
    is_mark, is_last : Out(1)
        ``now`` is the mark of this cycle, or that of the cycle before.
    """

    def __init__(self, params: CardParams):
        index = index_width(params)
        super().__init__({
            "index": In(index), "read": In(Pending),
            "mark_en": In(1), "mark_index": In(index), "mark": In(Pending),
            "now": Out(Pending), "last": Out(Pending), "is_mark": Out(1), "is_last": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        last_index, last_en = Signal.like(self.mark_index), Signal()
        same, as_last = Signal(), Signal()      # `mark_en` comes late
        m.d.sync += [self.last.eq(self.mark), last_index.eq(self.mark_index), last_en.eq(self.mark_en)]
        m.d.comb += [
            same.eq(self.mark_index == self.index), as_last.eq(last_en & (last_index == self.index)),
            self.is_mark.eq(self.mark_en & same), self.is_last.eq(~self.is_mark & as_last),
            self.now.eq(choose((self.is_mark, self.is_last, ~self.is_mark & ~as_last),
                               (self.mark, self.last, self.read))),
        ]
        return m


class MarkLane(wiring.Component):
    """Compares PSN and hole, and clears the hole. One header per cycle, latency 1.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(judged_header(params))
    node, pending : In
        Of the header's cache entry, in the same cycle.
    mark_en, mark_index, mark_bitmap, mark : Out
        To the cache; of the header before.
    judged : Out(1)
        A header was marked or refused.
    refuse : Out(Refusal)
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(judged_header(params)), "node": In(CachedNode), "pending": In(Pending),
            "mark_en": Out(1), "mark_index": Out(index_width(params)), "mark_bitmap": Out(1), "mark": Out(Pending),
            "judged": Out(1), "refuse": Out(Refusal),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = HoleCheck()
        m.submodules.forward = forward = MarkForward(self.params)
        pending, header = Signal(Pending), Signal(judged_header(self.params))
        is_open, matched, bit, is_bitmap = Signal(), Signal(), Signal(COUNT_WIDTH), Signal()
        # Whether the hole is open is looked up in what was read and in both marks at once; `mark_en` comes late.
        sources = (self.pending, forward.last, self.mark)
        is_source, opens = Signal(len(sources)), Signal(len(sources))
        for k, source in enumerate(sources):
            m.submodules[f"open{k}"] = is_it = IsOpen()
            m.d.comb += [is_it.pending.eq(source), is_it.bit.eq(check.bit)]
            m.d.sync += opens[k].eq(is_it.o)
        m.d.comb += [
            check.node.eq(self.node), check.slot.eq(self.i.slot), check.psn.eq(self.i.psn),
            forward.index.eq(self.i.index), forward.read.eq(self.pending),
            forward.mark_en.eq(self.mark_en), forward.mark_index.eq(self.mark_index), forward.mark.eq(self.mark),
            is_open.eq((is_source & opens).any()),
        ]
        m.d.sync += [
            pending.eq(forward.now), header.eq(self.i),
            is_source.eq(Cat(~forward.is_mark & ~forward.is_last, forward.is_last, forward.is_mark)),
            bit.eq(check.bit), is_bitmap.eq(self.node.encoding == abi.Encoding.BITMAP.value),
        ]
        m.d.comb += [
            matched.eq(header.valid & header.hit & check.matches),
            self.mark_bitmap.eq(header.valid & header.hit & is_bitmap),     # early: fills wait for it
            self.mark_en.eq(matched & is_open), self.mark_index.eq(header.index),
            self.mark.open.eq(pending.open & ~(Const(1, 1) << bit)[:abi.NODE_BODY_BITS]),
            self.mark.left.eq(pending.left - 1),
            self.judged.eq(header.valid), self.refuse.stb.eq(header.valid & ~self.mark_en),
            self.refuse.reason.eq(header.reason),
        ]
        with m.If(header.hit):
            m.d.comb += self.refuse.reason.eq(
                Mux(check.matches, abi.Reason.DUPLICATE.value, abi.Reason.NOT_IN_NODE.value))
        return m
