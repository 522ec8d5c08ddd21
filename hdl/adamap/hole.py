"""Is a PSN the hole in a certain slot of a node, and which bit tells whether it is open?"""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from .head_cache import COUNT_WIDTH, CachedNode


class HoleCheck(wiring.Component):
    """Compares PSN and slot with the hole there. Latency 1, one check per cycle.

    Of a BITMAP the slot is not looked at: every PSN within its span matches, and whether it is a hole the body says,
    which is what is pending.

    Members
    -------
    node : In(CachedNode)
    slot : In(9)
    psn : In(32)
    bit : Out(9)
        Bit of the pending holes that belongs to the hole.
    matches : Out(1)
        A cycle later.
    """

    def __init__(self):
        super().__init__({"node": In(CachedNode), "slot": In(COUNT_WIDTH), "psn": In(32),
                          "bit": Out(COUNT_WIDTH), "matches": Out(1)})

    def elaborate(self, platform):
        m = Module()
        node, slot = self.node, self.slot
        offset, slot_q = Signal(32), Signal(COUNT_WIDTH)
        m.d.comb += offset.eq(self.psn - node.base_psn)
        m.d.sync += slot_q.eq(slot)

        in_list, in_runs, in_bitmap, is_bitmap = Signal(), Signal(), Signal(), Signal()
        entries = Array(node.body.word_select(k, abi.OFFSET_BITS) for k in range(abi.LIST_HOLES))
        m.d.sync += in_list.eq((node.encoding == abi.Encoding.LIST.value) & (slot < abi.LIST_HOLES)
                               & (entries[Mux(slot < abi.LIST_HOLES, slot, 0)] == offset))

        before = Const(0, COUNT_WIDTH)
        hits = Const(0)
        for k in range(abi.RUNS_MAX):
            word = node.body.word_select(k, 2 * abi.OFFSET_BITS)
            first, length = word[:abi.OFFSET_BITS], word[abi.OFFSET_BITS:]
            into, inside, rank = (
                Signal(32, name=f"into{k}"),
                Signal(name=f"inside{k}"),
                Signal(COUNT_WIDTH, name=f"rank{k}"),
            )
            prefix, into_q = Signal(COUNT_WIDTH, name=f"prefix{k}"), Signal(COUNT_WIDTH, name=f"into_q{k}")
            m.d.comb += [into.eq(offset - first), rank.eq(prefix + into_q)]
            m.d.sync += [prefix.eq(before), into_q.eq(into), inside.eq(into < length)]
            hits = hits | (inside & (rank == slot_q))
            before = (before + length)[:COUNT_WIDTH]
        is_runs = Signal()
        m.d.sync += is_runs.eq(node.encoding == abi.Encoding.RUNS.value)
        m.d.comb += in_runs.eq(is_runs & hits)

        m.d.comb += [is_bitmap.eq(node.encoding == abi.Encoding.BITMAP.value),
                     self.bit.eq(Mux(is_bitmap, offset[:COUNT_WIDTH], slot))]
        m.d.sync += in_bitmap.eq(is_bitmap & (offset < abi.NODE_BODY_BITS))

        m.d.comb += self.matches.eq(in_list | in_runs | in_bitmap)
        return m
