"""Entry of the matcher: headers get an entry of the match queue, or are left to the driver."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract.params import CardParams
from ...part.layouts import MatchRequest
from ...part.logic import greater_than, one_hot_mux
from ...part.select import OneHotMux, TagCompare
from ...part.stream import Fifo
from ...part.ticket import EXTENDED_TICKET_WIDTH, extended
from .wait_queue import MatchItem

SLACK_MAX = 1 << 22     # with more, headers pass over no node


def passed(params):
    """Return the layout of an order: every RSN before ``rsn`` was retransmitted, according to packet ``ticket``."""
    return data.StructLayout({
        "valid": 1, "qpn": params.qpn_width, "generation": 8, "rsn": 24, "ticket": EXTENDED_TICKET_WIDTH})


class SoftwareMatched(wiring.Component):
    """Lists whose headers the driver matches for now.

    When the match queue has no entry for a header, the packet is placed nevertheless and reported to the driver. The
    card then only has to retire the nodes that such headers pass over: one order per list, after the waiting headers of
    the list; every further header replaces the order by a later one. While a list has an order here, all its headers go
    to the driver, or they would overtake the order.

    With more such lists than ``params.unmatched_lists``, some nodes stay until a later header or a probe passes over
    them.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(MatchItem)
    i_stb : In(1)
        A header without an entry. Its order is valid two cycles later; until then an older one of the list may be
        taken.
    slack : In(24)
        Distance by which a header must be beyond a node to retire it, at least 1, of the cycle before. With 1 it need
        not be beyond.
    known : Out(1)
        The list of ``i`` has an order here; combinational.
    waiting_qpn, waiting : Out(24), In(1)
        Headers of that QP wait in the match queue; a cycle later.
    due, o : Out(1), Out(MatchItem)
        An order, as a probe; both may change from cycle to cycle.
    taken : In(1)
        The order was accepted in the cycle in which it is shown.
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
        m.submodules.owing = owing = TagCompare(self.params.qpn_width + 8, n)
        # First stage: the list of the header, and how far it reaches. The second one writes that into an entry.
        came, coming, end = Signal(name="came"), Signal(MatchItem, name="coming"), Signal(24, name="end")
        own, free, place = (Signal(n, name=name) for name in ("own", "free", "place"))     # of `coming`
        known, same, held = Signal(), Signal(), Signal(n)       # `held`: not available to another list
        beyond, far = Signal(24, name="beyond", init=1), Signal(name="far")     # derived from `slack`
        m.d.comb += [
            known.eq(own.any()), place.eq(Mux(came, Mux(known, own, free), 0)),
            held.eq(valid | Mux(came, own | free, 0)),
            same.eq(came & (own | free).any() & (self._tag(coming) == self._tag(self.i))),
            self.empty.eq(~valid.any() & ~came), self.full.eq(held.all()),
            self.known.eq(owing.any | same), owing.i.eq(self._tag(self.i)), owing.present.eq(valid),
            *[number.eq(self._tag(entry)) for number, entry in zip(owing.numbers, entries, strict=True)],
        ]
        # A probe is about RSNs older than its own; a header passes over a node from a distance, or is the last one for
        # the node: no other will come. Beyond SLACK_MAX nothing is passed over, however old the header is.
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
        """Show one order after the other, each until it is taken or has to wait."""
        n = self.params.unmatched_lists
        m.submodules.shown_qpn = shown_qpn = OneHotMux(self.params.qpn_width, n)
        shown, order = Signal(n, init=1, name="shown"), Signal(passed(self.params), name="order")
        # `waiting_qpn`, `waiting` are of the shown order's QP
        looking, looked_up = Signal(name="looking"), Signal(name="looked_up")
        moves = Signal()
        m.d.comb += [
            order.eq(one_hot_mux(shown, entries)), shown_qpn.chosen.eq(shown),
            *[value.eq(entry.qpn) for value, entry in zip(shown_qpn.values, entries, strict=True)],
            self.due.eq(order.valid & ~self.waiting & looked_up), self.o.probe.eq(1),
            self.o.qpn.eq(order.qpn), self.o.generation.eq(order.generation), self.o.rsn.eq(order.rsn),
            self.o.ticket.eq(order.ticket),
        ]
        m.d.comb += moves.eq(Mux(looked_up, ~self.due | self.taken, ~looking & ~order.valid))
        m.d.sync += [self.waiting_qpn.eq(shown_qpn.o), looking.eq(~moves), looked_up.eq(looking & ~moves)]
        with m.If(moves):
            m.d.sync += shown.eq(shown.rotate_left(1))
        for k, entry in enumerate(entries):
            with m.If(shown[k] & self.taken):
                m.d.sync += entry.valid.eq(0)

    def _tag(self, it):
        """Return the tag of the list of a header or an order; only QPNs of the card occur."""
        return Cat(it.qpn[:self.params.qpn_width], it.generation)


SHARE = 3       # ratio of waiting headers of one QP to free entries


class MatchEntry(wiring.Component):
    """Allocates an entry of the match queue for each header, held until it is finished; or an order to retire instead.

    One header per cycle, latency 1. An order of :class:`~weft.hdl.adamap.match.match_entry.SoftwareMatched` enters when
    there is no header and another entry stays free.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i, space, unmatched, share : In, Out, In, Out
        As for :class:`~weft.hdl.adamap.match.matcher.Matcher`.
    count : In(range(match_queue + 1))
        Waiting headers of the QP of ``share``.
    o : Out(stream.Signature(MatchItem))
        Headers and orders, with extended tickets.
    done : In(1)
        One is finished.
    slack : In(24)
        Distance by which a header must be beyond a node to retire it, at least 1.
    placed : In(24)
        Extended placed ticket.
    waiting_qpn, waiting : Out(24), In(1)
        Headers of that QP wait in the match queue.
    empty : Out(1)
        No entry is held, no order is pending.
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
        m.submodules.others = others = SoftwareMatched(self.params)
        wiring.connect(m, arrived.o, wiring.flipped(self.o))
        held, limit = Signal(range(places + 1)), Signal(range(SHARE * places + 1), init=SHARE * places)
        header = Signal(MatchItem)
        m.d.comb += [
            others.i.eq(header), others.i_stb.eq(self.unmatched), others.slack.eq(self.slack),
            self.waiting_qpn.eq(others.waiting_qpn),
            # The entry that may have been granted to a new header stays free.
            others.taken.eq(others.due & ~self.i.valid & ~greater_than(held, places - 2)),
            *[header[name].eq(self.i.p[name]) for name in ("qpn", "generation", "psn", "rsn", "probe")],
            header.ticket.eq(extended(m, self.placed, self.i.p.ticket, name="ahead_of_placed")),
            arrived.i.payload.eq(Mux(others.taken, others.o.as_value(), header.as_value())),
            arrived.i.valid.eq(self.i.valid | others.taken), self.i.ready.eq(arrived.i.ready),
            self.space.eq((held != places) & ~others.known),
            self.share.eq(self.count < limit),
            self.empty.eq((held == 0) & others.empty),
        ]
        m.d.sync += others.waiting.eq(self.waiting)
        comes = arrived.i.valid & arrived.i.ready       # `comes` and `done` are late
        for number, step in ((held, 1), (limit, -SHARE)):
            m.d.sync += number.eq(Mux(comes == self.done, number, Mux(comes, number + step, number - step)))
        return m
