"""Is a PSN the hole in a certain slot of a node, and which bit tells whether it is open?"""

from operator import add

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from ..logic import up_to
from .cached import COUNT_WIDTH, CachedNode


class Matches(wiring.Component):
    """Puts together what the hole checks of all encodings say. Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: the mark waits for its answer.

    Members
    -------
    equal, chosen : In(LIST_HOLES)
        Holes of a LIST that are the PSN; the one in the slot.
    inside, prefix, wanted : In, arrays of In
        Runs that have the PSN, how many holes come before each, and how many should for this slot.
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

        is_list, is_runs, is_bitmap = (Signal(name=f"is_{e.name.lower()}") for e in abi.Encoding)
        m.submodules.together = together = Matches()
        m.d.comb += [kind.eq(node.encoding == encoding.value)
                     for kind, encoding in zip((is_list, is_runs, is_bitmap), abi.Encoding, strict=True)]
        m.d.comb += [self.bit.eq(Mux(is_bitmap, offset[:COUNT_WIDTH], slot)),
                     self.matches.eq(together.o)]
        m.d.sync += [
            together.equal.eq(Cat(node.body.word_select(k, abi.OFFSET_BITS) == offset for k in range(abi.LIST_HOLES))),
            together.chosen.eq(Cat((slot == k) & is_list for k in range(abi.LIST_HOLES))),
            together.in_bitmap.eq(is_bitmap & (offset < abi.NODE_BODY_BITS)),
        ]

        # Hole `into` of a run is number `behind + into` of the node: compared without that sum.
        runs = [node.body.word_select(k, 2 * abi.OFFSET_BITS) for k in range(abi.RUNS_MAX)]
        behind = up_to(m, (run[abi.OFFSET_BITS:][:COUNT_WIDTH] for run in runs), add, "behind")
        for k, (run, before) in enumerate(zip(runs, [Const(0), *behind], strict=False)):
            first, length = run[:abi.OFFSET_BITS], run[abi.OFFSET_BITS:]
            into = Signal(32, name=f"into{k}")
            m.d.comb += into.eq(offset - first)
            m.d.sync += [together.prefix[k].eq(before), together.inside[k].eq((into < length) & is_runs),
                         together.wanted[k].eq((slot + first[:COUNT_WIDTH]) - offset[:COUNT_WIDTH])]
        return m
