"""Can a block from host memory be trusted as the next node of a list?"""

from functools import reduce
from operator import or_, xor

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from ..layouts import NODE

WORD_BITS, NIBBLE_BITS = (abi.NODE.by_name[name].width for name in ("check", "next_check"))
POINTER_BITS = abi.NODE.shift_of("qpn")
NIBBLES = -(-abi.NODE.by_name["next_line"].width // NIBBLE_BITS)
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
        whose = data.StructLayout({"qpn": 24, "generation": 8})
        said, listed = Signal(whose), Signal(whose)     # by the node, and by the list
        points = Signal(NIBBLES)                        # nibbles of its pointer that are not 0
        legal = reduce(or_, ((node.encoding == encoding.value) & (node.count <= most)
                             for encoding, most in abi.HOLES_MAX.items()))
        m.d.sync += [
            damage.eq(reduce(xor, (rest.word_select(k, WORD_BITS) for k in range(len(rest) // WORD_BITS)))),
            astray.eq(reduce(xor, (pointer.word_select(k, NIBBLE_BITS) for k in range(len(pointer) // NIBBLE_BITS)))),
            illegal.eq((node.count == 0) | ~legal),
            *[a[name].eq(b) for name in whose.members for a, b in (
                (said, node[name]), (listed, getattr(self, name)))],
            points.eq(Cat(node.next_line[start:start + NIBBLE_BITS].any()
                          for start in range(0, len(node.next_line), NIBBLE_BITS))),
            self.o.bad.eq((damage != 0) | (astray != 0) | illegal | (said != listed)), self.o.ends.eq(~points.any()),
        ]
        return m
