"""Last stages of the matcher: a header and its node become a mark, or the header is dropped."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.counter_ports import DropEvent
from ..cache.cached import COUNT_WIDTH, NODE_BASE, CachedNode, Pending, index_width
from .hole import HoleCheck


class HoleOpen(wiring.Component):
    """Selects the open bit of a hole. Combinational.

    Members
    -------
    open : In(NODE_BODY_BITS)
        Of :class:`~weft.hdl.adamap.cache.cached.Pending`.
    bit : In(9)
        Index.
    o : Out(1)
    """

    def __init__(self):
        super().__init__({"open": In(abi.NODE_BODY_BITS), "bit": In(COUNT_WIDTH), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.open.bit_select(self.bit, 1))
        return m


def judged_header(params):
    """Return the layout of a header whose node is being read (``hit``), or that is dropped for a reason."""
    return data.StructLayout({"valid": 1, "hit": 1, "reason": 8, "index": index_width(params)})


class MarkBypass(wiring.Component):
    """Bypass of the open holes: adds marks that have not reached the memory yet. Latency 1.

    Members
    -------
    index : In
        Entry whose ``read`` value was requested in the cycle before.
    read : In(Pending)
    mark_en, mark_index, mark : In
        The mark of this cycle; the one of the cycle before is held here.
    now : Out(Pending)
        A cycle later, with both marks.
    same, is_last : Out(1)
        ``mark_index`` is ``index``; the mark of the cycle before was of this entry, too.
    last : Out(Pending)
        The mark of the cycle before.
    """

    def __init__(self, params: CardParams):
        index = index_width(params)
        super().__init__({
            "index": In(index), "read": In(Pending),
            "mark_en": In(1), "mark_index": In(index), "mark": In(Pending),
            "now": Out(Pending), "same": Out(1), "is_last": Out(1), "last": Out(Pending),
        })

    def elaborate(self, platform):
        m = Module()
        last_index, last_en = Signal.like(self.mark_index), Signal()
        before, was_mark = Signal(Pending), Signal()    # `mark_en` is late: it drives a single bit
        m.d.sync += [
            self.last.eq(self.mark), last_index.eq(self.mark_index), last_en.eq(self.mark_en),
            before.eq(Mux(self.is_last, self.last.as_value(), self.read.as_value())),
            was_mark.eq(self.mark_en & self.same),
        ]
        m.d.comb += [
            self.same.eq(self.mark_index == self.index), self.is_last.eq(last_en & (last_index == self.index)),
            self.now.eq(Mux(was_mark, self.last.as_value(), before.as_value())),
        ]
        return m


class MarkLane(wiring.Component):
    """Compares PSN and hole, and clears the hole. One header per cycle, latency 1.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    base, slot, psn : In(NODE_BASE), In(9), In(32)
        Of the header of the next cycle.
    i : In(judged_header(params))
    node, pending : In
        Of the header's cache entry, in the same cycle.
    mark_en, mark_index, mark_bitmap, mark : Out
        To the cache; of the header before. If count and body of a node differ, the count decides when it is done.
    judged : Out(1)
        A header was marked or dropped.
    drop : Out(DropEvent)
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "base": In(NODE_BASE), "slot": In(COUNT_WIDTH), "psn": In(32),
            "i": In(judged_header(params)), "node": In(CachedNode), "pending": In(Pending),
            "mark_en": Out(1), "mark_index": Out(index_width(params)), "mark_bitmap": Out(1), "mark": Out(Pending),
            "judged": Out(1), "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = HoleCheck()
        m.submodules.forward = forward = MarkBypass(self.params)
        m.submodules.is_open = is_open = HoleOpen()
        pending, header = forward.now, Signal(judged_header(self.params))
        matched, open_before, open_now, is_bitmap = Signal(), Signal(), Signal(), Signal()
        bit, last_bit = Signal(COUNT_WIDTH), Signal(COUNT_WIDTH)
        m.d.comb += [
            check.base.eq(self.base), check.slot.eq(self.slot), check.psn.eq(self.psn), check.node.eq(self.node),
            forward.index.eq(self.i.index), forward.read.eq(self.pending),
            forward.mark_en.eq(self.mark_en), forward.mark_index.eq(self.mark_index), forward.mark.eq(self.mark),
            is_open.open.eq(self.pending.open), is_open.bit.eq(check.bit),
            # A mark that is not in the read value has closed its own hole, and no other.
            open_before.eq(is_open.o & ~(forward.is_last & (last_bit == check.bit))),
        ]
        left = Mux(forward.is_last, forward.last.left, self.pending.left)
        m.d.sync += [
            header.eq(self.i), bit.eq(check.bit), last_bit.eq(bit),
            open_now.eq(open_before & Mux(self.mark_en & forward.same,
                                          (bit != check.bit) & (pending.left != 1), left != 0)),
            is_bitmap.eq(self.node.encoding == abi.Encoding.BITMAP.value),
        ]
        m.d.comb += [
            matched.eq(header.valid & header.hit & check.matches),
            self.mark_bitmap.eq(header.valid & header.hit & is_bitmap),     # early: fills wait for it
            self.mark_en.eq(matched & open_now), self.mark_index.eq(header.index),
            self.mark.open.eq(pending.open & ~(Const(1, 1) << bit)[:abi.NODE_BODY_BITS]),
            self.mark.left.eq(pending.left - 1),
            self.judged.eq(header.valid), self.drop.stb.eq(header.valid & ~self.mark_en),
            self.drop.reason.eq(header.reason),
        ]
        with m.If(header.hit):
            m.d.comb += self.drop.reason.eq(
                Mux(check.matches, abi.Reason.DUPLICATE.value, abi.Reason.NOT_IN_NODE.value))
        return m
