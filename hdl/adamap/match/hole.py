"""Comparison of a PSN with the hole in a slot of a node, and the index of its open bit."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...part.logic import sum_of_three
from ..cache.cached import COUNT_WIDTH, NODE_BASE, CachedNode


class HoleMatch(wiring.Component):
    """Combines the hole checks of all encodings. Combinational.

    Kept as a block: folded into :class:`HoleCheck`, the estimated path of the matcher becomes 3.00 instead of 2.74 ns.

    Members
    -------
    equal, chosen : In(LIST_HOLES)
        Holes of a LIST that are equal to the PSN; the one in the slot.
    inside, prefix, wanted : In, arrays of In
        Runs that contain the PSN, the number of holes before each, and the number required for this slot.
    in_bitmap : In(1)
    o : Out(1)
    """

    def __init__(self):
        count = In(COUNT_WIDTH).array(abi.RUNS_MAX)
        super().__init__({"equal": In(abi.LIST_HOLES), "chosen": In(abi.LIST_HOLES),
                          "inside": In(abi.RUNS_MAX), "prefix": count, "wanted": count, "in_bitmap": In(1),
                          "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        in_runs = Cat(inside & (prefix == wanted)
                      for inside, prefix, wanted in zip(self.inside, self.prefix, self.wanted, strict=True))
        m.d.comb += self.o.eq((self.equal & self.chosen).any() | in_runs.any() | self.in_bitmap)
        return m


class HoleCheck(wiring.Component):
    """Compares PSN and slot with the hole there. Latency 2, one check per cycle.

    The slot is ignored for a BITMAP: every PSN within its span matches; the open bits of the body decide whether it
    is a hole.

    Members
    -------
    base, slot, psn : In(NODE_BASE), In(9), In(32)
    node : In(CachedNode)
        A cycle after them.
    bit : Out(9)
        Index of the hole's bit in the open holes; in the cycle of ``node``, too.
    matches : Out(1)
        A cycle after that.
    """

    def __init__(self):
        super().__init__({"base": In(NODE_BASE), "slot": In(COUNT_WIDTH), "psn": In(32), "node": In(CachedNode),
                          "bit": Out(COUNT_WIDTH), "matches": Out(1)})

    def elaborate(self, platform):
        m = Module()
        node, slot, offset, ahead_of_base = self.node, Signal(COUNT_WIDTH), Signal(32), Signal(32)
        m.d.comb += ahead_of_base.eq(self.psn - self.base.base_psn)
        m.d.sync += [slot.eq(self.slot), offset.eq(ahead_of_base),
                     self.bit.eq(Mux(self.base.encoding == abi.Encoding.BITMAP.value, ahead_of_base, self.slot))]
        is_list, is_runs, is_bitmap = (Signal(name=f"is_{e.name.lower()}") for e in abi.Encoding)
        m.submodules.together = together = HoleMatch()
        m.d.comb += [kind.eq(node.encoding == encoding.value)
                     for kind, encoding in zip((is_list, is_runs, is_bitmap), abi.Encoding, strict=True)]
        m.d.comb += self.matches.eq(together.o)
        m.d.sync += [
            together.equal.eq(Cat(node.body.word_select(k, abi.OFFSET_BITS) == offset for k in range(abi.LIST_HOLES))),
            together.chosen.eq(Cat((slot == k) & is_list for k in range(abi.LIST_HOLES))),
            together.in_bitmap.eq(is_bitmap & (offset < abi.NODE_BODY_BITS)),
        ]

        # Hole `into` of a run is hole `behind + into` of the node: compared without that sum.
        runs = [node.body.word_select(k, 2 * abi.OFFSET_BITS) for k in range(abi.RUNS_MAX)]
        behind = _behind(m, [run[abi.OFFSET_BITS:][:COUNT_WIDTH] for run in runs])
        reach = abi.OFFSET_BITS + 1     # bits of the offset at which a run may end
        near = Signal()
        m.d.comb += near.eq(is_runs & ~offset[reach:].any())
        for k, (run, before) in enumerate(zip(runs, behind, strict=True)):
            first, length = run[:abi.OFFSET_BITS], run[abi.OFFSET_BITS:]
            # `ahead`: holes after this one
            begun, ahead = Signal(name=f"begun{k}"), Signal(reach + 1, name=f"ahead{k}")
            m.d.comb += [begun.eq(offset[:reach] >= first),
                         ahead.eq(sum_of_three(reach + 1, first, length, ~Cat(offset[:reach], Const(0, 1))))]
            m.d.sync += [together.prefix[k].eq(before), together.inside[k].eq(near & begun & ~ahead[-1]),
                         together.wanted[k].eq(sum_of_three(COUNT_WIDTH, slot, first[:COUNT_WIDTH],
                                                            ~offset[:COUNT_WIDTH], one=1))]
        return m


def _behind(m, lengths):
    """Return the number of holes in the runs before each: at most two carry chains in series."""
    threes = [Signal(COUNT_WIDTH, name=f"three{k}") for k in range(len(lengths) // 3)]
    m.d.comb += [three.eq(sum_of_three(COUNT_WIDTH, *lengths[3 * k:3 * k + 3])) for k, three in enumerate(threes)]
    behind = [Signal(COUNT_WIDTH, name=f"behind{k}") for k in range(len(lengths))]
    for k, holes in enumerate(behind):
        rest = Signal(COUNT_WIDTH, name=f"rest{k}")
        m.d.comb += rest.eq(sum(lengths[k - k % 3:k], Const(0)))
        parts = [*threes[:k // 3], *([rest] if k % 3 else [])]
        m.d.comb += holes.eq(sum_of_three(COUNT_WIDTH, *parts) if len(parts) == 3 else sum(parts, Const(0)))
    return behind
