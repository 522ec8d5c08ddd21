"""Is a PSN the hole in a certain slot of a node, and which bit tells whether it is open?"""

from operator import add

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from ..logic import up_to
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
        offset = Signal(32)
        m.d.comb += offset.eq(self.psn - node.base_psn)

        in_list, in_runs, in_bitmap = Signal(), Signal(), Signal()
        is_list, is_runs, is_bitmap = (Signal(name=f"is_{e.name.lower()}") for e in abi.Encoding)
        equal, chosen = Signal(abi.LIST_HOLES), Signal(abi.LIST_HOLES)
        m.d.sync += [
            equal.eq(Cat(node.body.word_select(k, abi.OFFSET_BITS) == offset for k in range(abi.LIST_HOLES))),
            chosen.eq(Cat((slot == k) & is_list for k in range(abi.LIST_HOLES))),
        ]
        m.d.comb += in_list.eq((equal & chosen).any())

        # Hole `into` of a run is number `behind + into` of the node: compared without that sum.
        runs = [node.body.word_select(k, 2 * abi.OFFSET_BITS) for k in range(abi.RUNS_MAX)]
        behind = up_to(m, (run[abi.OFFSET_BITS:][:COUNT_WIDTH] for run in runs), add, "behind")
        hits = Signal(abi.RUNS_MAX)
        for k, (run, before) in enumerate(zip(runs, [Const(0), *behind], strict=False)):
            first, length = run[:abi.OFFSET_BITS], run[abi.OFFSET_BITS:]
            into, inside = Signal(32, name=f"into{k}"), Signal(name=f"inside{k}")
            prefix, wanted = Signal(COUNT_WIDTH, name=f"prefix{k}"), Signal(COUNT_WIDTH, name=f"wanted{k}")
            m.d.comb += [into.eq(offset - first), hits[k].eq(inside & (prefix == wanted))]
            m.d.sync += [prefix.eq(before), wanted.eq((slot + first[:COUNT_WIDTH]) - offset[:COUNT_WIDTH]),
                         inside.eq((into < length) & is_runs)]
        m.d.comb += [in_runs.eq(hits.any()), self.bit.eq(Mux(is_bitmap, offset[:COUNT_WIDTH], slot)),
                     *[kind.eq(node.encoding == encoding.value)
                       for kind, encoding in zip((is_list, is_runs, is_bitmap), abi.Encoding, strict=True)]]
        m.d.sync += in_bitmap.eq(is_bitmap & (offset < abi.NODE_BODY_BITS))

        m.d.comb += self.matches.eq(in_list | in_runs | in_bitmap)
        return m
