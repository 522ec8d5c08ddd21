"""Can a block from host memory be trusted as the next node of a list?"""

from functools import reduce
from operator import or_, xor

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..part.layouts import NODE

WORD_BITS, NIBBLE_BITS = (abi.NODE.by_name[name].width for name in ("check", "next_check"))
POINTER_BITS = abi.NODE.shift_of("qpn")
VERDICT = data.StructLayout({"bad": 1, "ends": 1})


class NodeCheck(wiring.Component):
    """Looks at a block when it comes, with what the card knows of the list. Latency 2, one block per cycle.

    The check word covers all but the first 8 bytes, so any damage within 16 bits is noticed and of wider damage all but
    one in 65536. The pointer there is written again when the list grows, and has a check of 4 bits; a wrong one that
    passes leads to a block that is not the list's next one. Whether its RSN is the next one is not known yet.

    Members
    -------
    node : In(NODE)
    qpn, generation : In
        Whose list it is read for.
    o : Out(VERDICT)
        Two cycles later. ``bad``: it is no node, or not one of that list; ``ends``: it points to no other.
    """

    def __init__(self):
        super().__init__({"node": In(NODE), "qpn": In(24), "generation": In(8), "o": Out(VERDICT)})

    def elaborate(self, platform):
        m = Module()
        node, block = self.node, self.node.as_value()
        pointer, rest = block[:POINTER_BITS], block[POINTER_BITS:]
        damage, astray, illegal = Signal(WORD_BITS), Signal(NIBBLE_BITS), Signal()
        said, listed = (Signal(len(node.qpn) + len(node.generation), name=name) for name in ("said", "listed"))
        null = Signal()         # of its pointer
        legal = reduce(or_, ((node.encoding == encoding.value) & (node.count <= most)
                             for encoding, most in abi.HOLES_MAX.items()))
        m.d.sync += [
            damage.eq(reduce(xor, (rest.word_select(k, WORD_BITS) for k in range(len(rest) // WORD_BITS)))),
            astray.eq(reduce(xor, (pointer.word_select(k, NIBBLE_BITS) for k in range(len(pointer) // NIBBLE_BITS)))),
            illegal.eq((node.count == 0) | ~legal),
            said.eq(Cat(node.qpn, node.generation)), listed.eq(Cat(self.qpn, self.generation)),
            null.eq(node.next_line == 0), self.o.ends.eq(null),
            self.o.bad.eq((damage != 0) | (astray != 0) | illegal | (said != listed)),
        ]
        return m
