"""Which holes of a cached node were not filled yet?"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..part.logic import below
from .cached import COUNT_WIDTH, ENCODING_WIDTH, Pending

# What is kept of a node of which a hole was filled: one bit per hole of LIST or RUNS, and how many are left.
KEPT = data.StructLayout({"open": abi.RUNS_HOLES, "left": COUNT_WIDTH})


class HolesLeft(wiring.Component):
    """Combinational; a block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: the mark waits for it.

    Of an untouched node nothing is kept: all its holes are open. A BITMAP says itself which are.

    Members
    -------
    touched : In(1)
    count, encoding, body : In
        Of the node.
    kept : In(KEPT)
    o : Out(Pending)
    """

    def __init__(self):
        super().__init__({"touched": In(1), "count": In(COUNT_WIDTH), "encoding": In(ENCODING_WIDTH),
                          "body": In(abi.NODE_BODY_BITS), "kept": In(KEPT), "o": Out(Pending)})

    def elaborate(self, platform):
        m = Module()
        all_open = Signal(abi.RUNS_HOLES)
        m.d.comb += [
            all_open.eq(below(m, self.count, abi.RUNS_HOLES, "unfilled")),
            self.o.left.eq(Mux(self.touched, self.kept.left, self.count)),
            self.o.open.eq(Mux(self.encoding == abi.Encoding.BITMAP.value, self.body,
                               Mux(self.touched, self.kept.open, all_open))),
        ]
        return m
