"""What the card knows of a list when it looks at it."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part.logic import above
from ..table.kinds import QP_STATES
from .ahead import ahead_row
from .block import extent_member, in_extent, split
from .fetches import LINES


def list_view(params):
    """A list: is it ``live``; ``block``, with which it goes on, and whether nodes behind each other may lie there;
    nodes ``ahead``, or more than a read fetches; is a header ``waiting`` for one."""
    return data.StructLayout({
        "generation": 8, "live": 1, "block": params.block_bits, "adjacent": 1, "ahead": range(LINES + 2), "waiting": 1})


class Job(enum.Enum, shape=2):
    """What the row of a list is read for."""

    LOOK = 0        # does it want more nodes?
    LAND = 1        # a read of it came back
    CONTROL = 2
    TURN_OUT = 3    # its last node may have to go


class ListRow(wiring.Component):
    """Reads the row of a list in three cycles: it waits for what doorbells of the last cycles told, reads, and keeps.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    start : In(1)
    qpn : In
        From the next cycle on, as long as ``o`` counts.
    post_stb, post_qpn : In
        Nodes were linked.
    row_en, row_index, ahead, qp
        As :class:`~weft.hdl.adamap.prefetch.Prefetch` has them.
    waiting : In(1)
        A header waits for a node of ``qpn``, when ``kept`` is high.
    extent_base, extent_lines : arrays of In
    soon, kept : Out(1)
        Third cycle after ``start``, in which the row is there; and the one before.
    o, base, size : Out
        The list, and the extent in which its block is said to lie; a cycle after ``kept``.
    on_lands, block : In
        A node landed: the list goes on with this block.
    posted : Out(1)
        More nodes were linked since the row was read; a cycle late.
    """

    def __init__(self, params: CardParams):
        self.params = params
        width = params.qpn_width
        super().__init__({
            "start": In(1), "qpn": In(width), "post_stb": In(1), "post_qpn": In(width),
            "row_en": Out(1), "row_index": Out(width), "ahead": In(ahead_row(params)),
            "qp": Out(QP_STATES.read_port(params)), "waiting": In(1),
            "extent_base": In(58).array(params.knit_extents),
            "extent_lines": In(extent_member(params)).array(params.knit_extents),
            "soon": Out(1), "kept": Out(1),
            "o": Out(list_view(params)), "base": Out(58), "size": Out(extent_member(params)),
            "on_lands": In(1), "block": In(params.block_bits), "posted": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        row, o = self.ahead, self.o
        coming = Signal()
        m.d.comb += [
            coming.eq(self.post_stb & (self.post_qpn == self.qpn)),
            self.row_en.eq(self.soon), self.qp.en.eq(self.soon), self.row_index.eq(self.qpn),
            self.qp.index.eq(self.qpn),
        ]
        settling = Signal()
        m.d.sync += [settling.eq(self.start), self.soon.eq(settling), self.kept.eq(self.soon),
                     self.posted.eq(coming | (self.posted & ~self.soon))]
        with m.If(self.kept):
            # A multiplexer's select is not inverted on its way.
            m.d.sync += [part.eq(in_extent(self.params, [*reversed(values)], split(self.params, row.inverse)[0]))
                         for part, values in ((self.base, self.extent_base), (self.size, self.extent_lines))]
            m.d.sync += [
                o.generation.eq(self.qp.entry.generation), o.live.eq(row.inverse != 0), o.block.eq(~row.inverse),
                o.adjacent.eq(row.adjacent), o.ahead.eq(Mux(above(row.count, LINES), LINES + 1, row.count)),
                o.waiting.eq(self.waiting),
            ]
        with m.Elif(self.on_lands):
            m.d.sync += o.block.eq(self.block)
        return m
