"""Can a block from host memory be trusted as the next node of a list?"""

from functools import reduce
from operator import or_, xor

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from ..layouts import NODE

WORD_BITS, NIBBLE_BITS = (abi.NODE.by_name[name].width for name in ("check", "next_check"))
POINTER_BITS = abi.NODE.shift_of("qpn")


class BlockCheck(wiring.Component):
    """Tells a block that is no node, whosever it may be. Latency 2, one block per cycle.

    The check word covers all but the first 8 bytes, so any damage within 16 bits is noticed and of wider damage all but
    one in 65536. The pointer there is written again when the list grows, and has a check of 4 bits; a wrong one that
    passes leads to a block that is not the list's next one.

    Members
    -------
    node : In(NODE)
    unsound : Out(1)
        Two cycles later.
    """

    def __init__(self):
        super().__init__({"node": In(NODE), "unsound": Out(1)})

    def elaborate(self, platform):
        m = Module()
        node, block = self.node, self.node.as_value()
        pointer, rest = block[:POINTER_BITS], block[POINTER_BITS:]
        damage, astray, illegal = Signal(WORD_BITS), Signal(NIBBLE_BITS), Signal()
        legal = reduce(or_, ((node.encoding == encoding.value) & (node.count <= most)
                             for encoding, most in abi.HOLES_MAX.items()))
        m.d.sync += [
            damage.eq(reduce(xor, (rest.word_select(k, WORD_BITS) for k in range(len(rest) // WORD_BITS)))),
            astray.eq(reduce(xor, (pointer.word_select(k, NIBBLE_BITS) for k in range(len(pointer) // NIBBLE_BITS)))),
            illegal.eq((node.count == 0) | ~legal), self.unsound.eq((damage != 0) | (astray != 0) | illegal),
        ]
        return m


class NodeCheck(wiring.Component):
    """Compares a block with what the card knows of the list. Latency 1, one block per cycle.

    Members
    -------
    node, unsound : In(NODE), In(1)
        The block, and what :class:`BlockCheck` says of it.
    qpn, generation : In
        Whose list it is read for.
    follows : In(1)
        Its RSN is the one that comes next in the list.
    bad : Out(1)
        A cycle later.
    """

    def __init__(self):
        super().__init__({"node": In(NODE), "unsound": In(1), "qpn": In(24), "generation": In(8), "follows": In(1),
                          "bad": Out(1)})

    def elaborate(self, platform):
        m = Module()
        wrong, follows = Signal(), Signal()     # whether it follows is known late
        m.d.sync += [follows.eq(self.follows), wrong.eq(
            self.unsound | (self.node.qpn != self.qpn) | (self.node.generation != self.generation))]
        m.d.comb += self.bad.eq(wrong | ~follows)
        return m
