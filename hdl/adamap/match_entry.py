"""Where headers come into the matcher."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part.layouts import MatchRequest
from ..part.logic import above
from ..part.stream import Fifo
from ..part.ticket import EXTENDED_TICKET_WIDTH, extended
from .unmatched import Unmatched
from .wait_queue import MatchItem

SHARE = 3       # waiting headers of one QP to free places


class MatchEntry(wiring.Component):
    """Gives each header its place in the match queue, which it holds until it is done; or an order in its stead.

    Takes a header per cycle, latency 1. An order of :class:`~weft.hdl.adamap.unmatched.Unmatched` comes in when
    no header does and another place stays free.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i, space, unmatched, share : In, Out, In, Out
        As :class:`~weft.hdl.adamap.matcher.Matcher` has them.
    count : In(range(match_queue + 1))
        Waiting headers of the QP that ``share`` speaks of.
    o : Out(stream.Signature(MatchItem))
        Headers and orders, with extended tickets.
    done : In(1)
        One is done with.
    slack : In(24)
        How far a header has to be beyond a node to retire it, at least 1.
    placed : In(24)
        Extended placed ticket.
    waiting_qpn, waiting : Out(24), In(1)
        Headers of that QP wait in the match queue.
    empty : Out(1)
        No place is held, no order is owed.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(MatchRequest)), "space": Out(1), "unmatched": In(1),
            "count": In(range(params.match_queue + 1)), "share": Out(1),
            "o": Out(stream.Signature(MatchItem)), "done": In(1),
            "slack": In(24), "placed": In(EXTENDED_TICKET_WIDTH),
            "waiting_qpn": Out(24), "waiting": In(1), "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        places = self.params.match_queue
        m.submodules.arrived = arrived = Fifo(MatchItem, places)
        m.submodules.others = others = Unmatched(self.params)
        wiring.connect(m, arrived.o, wiring.flipped(self.o))
        held, limit = Signal(range(places + 1)), Signal(range(SHARE * places + 1), init=SHARE * places)
        header = Signal(MatchItem)
        m.d.comb += [
            others.i.eq(header), others.i_stb.eq(self.unmatched), others.slack.eq(self.slack),
            self.waiting_qpn.eq(others.waiting_qpn),
            # The place that may have been promised to a new header stays free.
            others.taken.eq(others.due & ~self.i.valid & ~above(held, places - 2)),
            *[header[name].eq(self.i.p[name]) for name in ("qpn", "generation", "psn", "rsn", "probe")],
            header.ticket.eq(extended(m, self.placed, self.i.p.ticket, name="ahead_of_placed")),
            arrived.i.payload.eq(Mux(others.taken, others.o.as_value(), header.as_value())),
            arrived.i.valid.eq(self.i.valid | others.taken), self.i.ready.eq(arrived.i.ready),
            self.space.eq((held != places) & ~others.known),
            self.share.eq(self.count < limit),
            self.empty.eq((held == 0) & others.empty),
        ]
        m.d.sync += others.waiting.eq(self.waiting)
        comes = arrived.i.valid & arrived.i.ready       # it and `done` are known late
        for number, step in ((held, 1), (limit, -SHARE)):
            m.d.sync += number.eq(Mux(comes == self.done, number, Mux(comes, number + step, number - step)))
        return m
