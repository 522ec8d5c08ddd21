"""A header beside the nodes of the head cache: what a comparison says, and what each said, kept for the header."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

# Whose header it is, and which RSN it has.
WHOSE = data.StructLayout({"qpn": 24, "generation": 8, "rsn": 24})
# What it does to the head of its list. A header passes over a node that ends before `passed_rsn`, which is behind the
# header's own RSN by less than 2^23. Otherwise it is an order to retire the head that has this RSN, or any.
REACH = data.StructLayout({"passed_rsn": 24, "is_header": 1, "any_head": 1})


class Comparison(wiring.Component):
    """A header beside one node. Combinational.

    Parameters
    ----------
    qpn_width : int

    Members
    -------
    header, reach : In(WHOSE), In(REACH)
    qpn, generation, rsn, count : In
        Of the node.
    of_list, holds : Out(1)
        The node is of the header's list; and has its RSN.
    behind, passed : Out(1)
        If the node is the head of the header's list: the header is behind it; the head has to go.
    """

    def __init__(self, qpn_width):
        self.qpn_width = qpn_width
        super().__init__({
            "header": In(WHOSE), "reach": In(REACH),
            "qpn": In(qpn_width), "generation": In(8), "rsn": In(24), "count": In(9),
            "of_list": Out(1), "holds": Out(1), "behind": Out(1), "passed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        header, reach = self.header, self.reach
        slot, past = Signal(24), Signal(24)     # from the node's first RSN on
        beyond, bits = Signal(), len(self.count)
        m.d.comb += [
            slot.eq(header.rsn - self.rsn), past.eq(reach.passed_rsn - self.rsn),
            self.of_list.eq((self.qpn == header.qpn[:self.qpn_width]) & (self.generation == header.generation)),
            self.holds.eq(self.of_list & ~slot[bits:].any() & (slot[:bits] < self.count)), self.behind.eq(slot[23]),
            beyond.eq(~past[23] & (past[bits:23].any() | (past[:bits] >= self.count))),
            self.passed.eq(Mux(reach.is_header, ~slot[23] & beyond, reach.any_head | (slot == 0))),
        ]
        return m


class Compared(wiring.Component):
    """A bit for each entry. Latency 1.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: whether there is another header comes late.

    Parameters
    ----------
    width : int

    Members
    -------
    look_en, entries : In(1), In(width)
        There is another header, and what comparing it with the entries says.
    written, said : In(width), In(1)
        The entry that was written in the cycle before, and what comparing it with the header of now said.
    bits : Out(width)
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"look_en": In(1), "entries": In(width), "written": In(width), "said": In(1),
                          "bits": Out(width)})

    def elaborate(self, platform):
        m = Module()
        for k in range(self.width):
            with m.If(self.look_en):
                m.d.sync += self.bits[k].eq(self.entries[k])
            with m.Elif(self.written[k]):
                m.d.sync += self.bits[k].eq(self.said)
        return m
