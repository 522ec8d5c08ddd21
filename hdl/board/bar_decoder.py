"""BAR decoder: two register blocks at one hard block."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..part.axis import axis_signature
from ..part.layouts import BEAT_BITS
from ..pcie.cq import CC_USER_WIDTH, CQ_USER_WIDTH, HostDescriptor
from ..pcie.tlp import DWORD_BITS

BOARD_BAR = 2
FORWARD = ("tdata", "tkeep", "tlast", "tuser")


def cq_signature():
    """Return the signature of requests of the host, seen from the hard block."""
    return axis_signature(data_width=BEAT_BITS, user_width=CQ_USER_WIDTH, keep_lane_width=DWORD_BITS)


def cc_signature():
    """Return the signature of completions for them, seen from the completer."""
    return axis_signature(data_width=BEAT_BITS, user_width=CC_USER_WIDTH, keep_lane_width=DWORD_BITS)


class BarDecoder(wiring.Component):
    """Routes the host's requests to the card or to the board's registers.

    Memory requests to BAR 2 go to the board, with BAR 0 in their descriptor, since both are served by a
    :class:`~weft.hdl.pcie.cq.RegisterShim`; all others go to the card. Combinational; completions are single beats.

    Members
    -------
    s_axis_cq, card_cq, board_cq : In/Out(AXI stream)
    m_axis_cc, card_cc, board_cc : Out/In(AXI stream)
    """

    s_axis_cq: In(cq_signature())
    m_axis_cc: Out(cc_signature())
    card_cq: Out(cq_signature())
    card_cc: In(cc_signature())
    board_cq: Out(cq_signature())
    board_cc: In(cc_signature())

    def elaborate(self, platform):
        m = Module()
        self._requests(m)
        self._answers(m)
        return m

    def _requests(self, m):
        cq = self.s_axis_cq
        head, inside, board_q, board = Signal(HostDescriptor), Signal(), Signal(), Signal()
        size = HostDescriptor.as_shape().size
        m.d.comb += [
            head.eq(cq.tdata[:size]),
            board.eq(Mux(inside, board_q, (head.bar == BOARD_BAR) & ~head.kind[3])),
            cq.tready.eq(Mux(board, self.board_cq.tready, self.card_cq.tready)),
            self.card_cq.tvalid.eq(cq.tvalid & ~board), self.board_cq.tvalid.eq(cq.tvalid & board),
        ]
        for target in (self.card_cq, self.board_cq):
            m.d.comb += [getattr(target, name).eq(getattr(cq, name)) for name in FORWARD]
        with m.If(~inside):
            first = Signal(HostDescriptor)
            m.d.comb += [first.eq(head), first.bar.eq(0), self.board_cq.tdata[:size].eq(first)]
        with m.If(cq.tvalid & cq.tready):
            m.d.sync += [inside.eq(~cq.tlast), board_q.eq(board)]

    def _answers(self, m):
        cc, card, board = self.m_axis_cc, self.card_cc, self.board_cc
        # A completion that was offered stays offered.
        waits, board_q, select = Signal(), Signal(), Signal()
        m.d.comb += [
            select.eq(Mux(waits, board_q, ~card.tvalid)),
            cc.tvalid.eq(Mux(select, board.tvalid, card.tvalid)),
            card.tready.eq(cc.tready & ~select), board.tready.eq(cc.tready & select),
            *[getattr(cc, name).eq(Mux(select, getattr(board, name), getattr(card, name))) for name in FORWARD],
        ]
        m.d.sync += [waits.eq(cc.tvalid & ~cc.tready), board_q.eq(select)]
