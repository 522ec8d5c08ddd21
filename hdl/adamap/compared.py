"""What a comparison with each entry said, kept for the header that it was made for."""

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


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
    filled, node : In(width), In(1)
        Entries that are filled just now, and what comparing with that node says.
    bits : Out(width)
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"look_en": In(1), "entries": In(width), "filled": In(width), "node": In(1),
                          "bits": Out(width)})

    def elaborate(self, platform):
        m = Module()
        for k in range(self.width):
            with m.If(self.look_en | self.filled[k]):
                m.d.sync += self.bits[k].eq(Mux(self.filled[k], self.node, self.entries[k]))
        return m
