"""Is a PSN the hole in a certain slot of a node?"""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from .head_cache import COUNT_WIDTH, CachedNode

CHUNK = 32  # bits of the bitmap counted by one adder tree


class HoleCheck(wiring.Component):
    """Compares PSN and slot with the hole there, in any encoding. Latency 1, one check per cycle.

    Members
    -------
    node : In(CachedNode)
    slot : In(9)
    psn : In(32)
    matches : Out(1)
        A cycle later.
    """

    def __init__(self):
        super().__init__({"node": In(CachedNode), "slot": In(COUNT_WIDTH), "psn": In(32), "matches": Out(1)})

    def elaborate(self, platform):
        m = Module()
        node, slot = self.node, self.slot
        offset, slot_q = Signal(32), Signal(COUNT_WIDTH)
        m.d.comb += offset.eq(self.psn - node.base_psn)
        m.d.sync += slot_q.eq(slot)

        in_list, in_runs, in_bitmap = Signal(), Signal(), Signal()
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

        below = Signal(abi.NODE_BODY_BITS)
        inside = offset < abi.NODE_BODY_BITS
        m.d.comb += below.eq(node.body & ((Const(1, 1) << offset[:9]) - 1)[:abi.NODE_BODY_BITS])
        total = Const(0, COUNT_WIDTH)
        for k in range(0, abi.NODE_BODY_BITS, CHUNK):
            ones = Signal(range(CHUNK + 1), name=f"ones{k}")
            m.d.sync += ones.eq(sum(below[k:k + CHUNK]))
            total = total + ones
        marked = Signal()
        m.d.sync += marked.eq((node.encoding == abi.Encoding.BITMAP.value) & inside & (node.body >> offset[:9])[0])
        m.d.comb += in_bitmap.eq(marked & (total == slot_q))

        m.d.comb += self.matches.eq(in_list | in_runs | in_bitmap)
        return m
