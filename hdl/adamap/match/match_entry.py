"""Entry of the matcher: headers take a place in the match queue, or are left to the driver."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract.params import CardParams
from ...part.layouts import MatchRequest
from ...part.logic import above, choose
from ...part.select import Among, OneOf
from ...part.stream import Fifo
from ...part.ticket import EXTENDED_TICKET_WIDTH, extended
from .wait_queue import MatchItem

SLACK_MAX = 1 << 22     # with more, headers pass nothing over


def passed(params):
    """Every RSN before ``rsn`` was sent again; ``ticket`` is that of the packet that says so."""
    return data.StructLayout({
        "valid": 1, "qpn": params.qpn_width, "generation": 8, "rsn": 24, "ticket": EXTENDED_TICKET_WIDTH})


class Unmatched(wiring.Component):
    """Lists that are matched by the driver for now.

    When the match queue has no place for a header, the packet is placed all the same and the driver is told of it. The
    card then only has to retire the nodes such headers pass over: one order per list, behind the headers of the list
    that wait, which every further header replaces by a later one. While a list has its order here, all its headers go
    to the driver, or they would overtake the order.

    With more such lists than ``params.unmatched_lists``, some nodes stay until a later header or a probe passes them
    over.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(MatchItem)
    i_stb : In(1)
        A header without a place. Its order is there two cycles later; until then an older one of the list may be taken.
    slack : In(24)
        How far a header has to be beyond a node to retire it, at least 1, of the cycle before. With 1 it need not be
        beyond.
    known : Out(1)
        The list of ``i`` has an order here; combinational.
    waiting_qpn, waiting : Out(24), In(1)
        Headers of that QP wait in the match queue; a cycle later.
    due, o : Out(1), Out(MatchItem)
        An order, as a probe; both may change from cycle to cycle.
    taken : In(1)
        Of the cycle in which it is shown.
    empty, full : Out(1)
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(MatchItem), "i_stb": In(1), "slack": In(24), "known": Out(1),
            "waiting_qpn": Out(24), "waiting": In(1),
            "due": Out(1), "o": Out(MatchItem), "taken": In(1),
            "empty": Out(1), "full": Out(1),
        })

    def elaborate(self, platform):
        m, n = Module(), self.params.unmatched_lists
        entries = [Signal(passed(self.params), name=f"passed{k}") for k in range(n)]
        valid = Cat(entry.valid for entry in entries)
        m.submodules.owing = owing = Among(self.params.qpn_width + 8, n)
        # First stage: of which list is it, how far does it reach? The second one writes that into its place.
        came, coming, end = Signal(name="came"), Signal(MatchItem, name="coming"), Signal(24, name="end")
        own, free, place = (Signal(n, name=name) for name in ("own", "free", "place"))     # of `coming`
        known, same, held = Signal(), Signal(), Signal(n)       # `held`: not to be given to another list
        beyond, far = Signal(24, name="beyond", init=1), Signal(name="far")     # what `slack` says
        m.d.comb += [
            known.eq(own.any()), place.eq(Mux(came, Mux(known, own, free), 0)),
            held.eq(valid | Mux(came, own | free, 0)),
            same.eq(came & (own | free).any() & (self._whose(coming) == self._whose(self.i))),
            self.empty.eq(~valid.any() & ~came), self.full.eq(held.all()),
            self.known.eq(owing.any | same), owing.i.eq(self._whose(self.i)), owing.present.eq(valid),
            *[number.eq(self._whose(entry)) for number, entry in zip(owing.numbers, entries, strict=True)],
        ]
        # A probe speaks of what is older than its RSN; a header passes a node over from a distance, or ends it: no
        # other will come for it then. From further than that nothing is passed over, however old the header is.
        m.d.sync += [
            beyond.eq(Mux(self.slack == 1, 1, 1 - self.slack)), far.eq(self.slack >= SLACK_MAX),
            came.eq(self.i_stb & (self.i.probe | ~far)), coming.eq(self.i),
            end.eq(self.i.rsn + Mux(self.i.probe, 0, beyond)),
            own.eq(owing.bits | Mux(same, place, 0)), free.eq(~held & (held + 1)),
        ]
        self._show(m, entries)
        for k, entry in enumerate(entries):
            ahead = Signal(24, name=f"ahead{k}")
            m.d.comb += ahead.eq(end - entry.rsn)
            with m.If(place[k]):        # also in the cycle in which its order is taken
                m.d.sync += [entry.valid.eq(1), entry.qpn.eq(coming.qpn), entry.generation.eq(coming.generation),
                             entry.ticket.eq(coming.ticket)]
            with m.If(place[k] & (~known | ~ahead[-1])):
                m.d.sync += entry.rsn.eq(end)
        return m

    def _show(self, m, entries):
        """An order after the other, each until it is taken or has to wait."""
        n = self.params.unmatched_lists
        m.submodules.shown_qpn = shown_qpn = OneOf(self.params.qpn_width, n)
        shown, order = Signal(n, init=1, name="shown"), Signal(passed(self.params), name="order")
        asking, asked = Signal(name="asking"), Signal(name="asked")     # `waiting_qpn`, `waiting` speak of its QP
        moves = Signal()
        m.d.comb += [
            order.eq(choose(shown, entries)), shown_qpn.chosen.eq(shown),
            *[value.eq(entry.qpn) for value, entry in zip(shown_qpn.values, entries, strict=True)],
            self.due.eq(order.valid & ~self.waiting & asked), self.o.probe.eq(1),
            self.o.qpn.eq(order.qpn), self.o.generation.eq(order.generation), self.o.rsn.eq(order.rsn),
            self.o.ticket.eq(order.ticket),
        ]
        m.d.comb += moves.eq(Mux(asked, ~self.due | self.taken, ~asking & ~order.valid))
        m.d.sync += [self.waiting_qpn.eq(shown_qpn.o), asking.eq(~moves), asked.eq(asking & ~moves)]
        with m.If(moves):
            m.d.sync += shown.eq(shown.rotate_left(1))
        for k, entry in enumerate(entries):
            with m.If(shown[k] & self.taken):
                m.d.sync += entry.valid.eq(0)

    def _whose(self, it):
        """Which list a header or an order is of; there are no other QPs than those of the card."""
        return Cat(it.qpn[:self.params.qpn_width], it.generation)


SHARE = 3       # waiting headers of one QP to free places


class MatchEntry(wiring.Component):
    """Gives each header its place in the match queue, which it holds until it is done; or an order in its stead.

    Takes a header per cycle, latency 1. An order of :class:`~weft.hdl.adamap.match.match_entry.Unmatched` comes in when
    no header does and another place stays free.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i, space, unmatched, share : In, Out, In, Out
        As :class:`~weft.hdl.adamap.match.matcher.Matcher` has them.
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
