"""How far the retransmissions came whose headers went to the driver."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..logic import choose, sum_of_three
from ..params import CardParams
from ..ticket import EXTENDED_TICKET_WIDTH
from .among import Among
from .one_of import OneOf
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
        A header without a place.
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
        free, shown = Signal(n), Signal(n, init=1)
        m.submodules.owing = owing = Among(self.params.qpn_width + 8, n)
        m.submodules.shown_qpn = shown_qpn = OneOf(self.params.qpn_width, n)
        own = owing.bits
        end = Signal(24)
        beyond, far = Signal(24, name="beyond", init=1), Signal(name="far")     # what `slack` says
        comes, step = Signal(), Signal(24)
        # A probe speaks of what is older than its RSN; a header passes a node over from a distance, or ends it: no
        # other will come for it then. From further than that nothing is passed over, however old the header is.
        m.d.comb += [
            free.eq(~valid & (valid + 1)), self.empty.eq(~valid.any()), self.full.eq(valid.all()),
            self.known.eq(owing.any), owing.i.eq(self._whose(self.i)), owing.present.eq(valid),
            *[number.eq(self._whose(entry)) for number, entry in zip(owing.numbers, entries, strict=True)],
            comes.eq(self.i_stb & (self.i.probe | ~far)), step.eq(Mux(self.i.probe, 0, beyond)),
            end.eq(self.i.rsn + step), self.o.probe.eq(1),
        ]
        m.d.sync += [beyond.eq(Mux(self.slack == 1, 1, 1 - self.slack)), far.eq(self.slack >= SLACK_MAX)]
        order, asked = Signal(passed(self.params)), Signal(name="asked")     # `asked`: `waiting` speaks of its QP
        m.d.comb += [
            order.eq(choose(shown, entries)), self.waiting_qpn.eq(shown_qpn.o), shown_qpn.chosen.eq(shown),
            *[value.eq(entry.qpn) for value, entry in zip(shown_qpn.values, entries, strict=True)],
            self.due.eq(order.valid & ~self.waiting & asked),
            self.o.qpn.eq(order.qpn), self.o.generation.eq(order.generation), self.o.rsn.eq(order.rsn),
            self.o.ticket.eq(order.ticket),
        ]
        m.d.sync += asked.eq(1)
        with m.If(asked & (~self.due | self.taken)):
            m.d.sync += [shown.eq(shown.rotate_left(1)), asked.eq(0)]
        for k, entry in enumerate(entries):
            ahead = Signal(24, name=f"ahead{k}")
            m.d.comb += ahead.eq(sum_of_three(24, self.i.rsn, step, ~entry.rsn, one=1))     # of `end`, not behind it
            with m.If(shown[k] & self.taken):
                m.d.sync += entry.valid.eq(0)
            with m.If(comes & (own[k] | (~self.known & free[k]))):
                m.d.sync += entry.valid.eq(1)
            # A free place takes what is there, whether or not it is for it: that is known late.
            with m.If(~entry.valid):
                m.d.sync += [entry.qpn.eq(self.i.qpn), entry.generation.eq(self.i.generation)]
            with m.If(~entry.valid | (comes & own[k])):
                m.d.sync += entry.ticket.eq(self.i.ticket)
            with m.If(~entry.valid | (comes & own[k] & ~ahead[-1])):
                m.d.sync += entry.rsn.eq(end)
        return m

    def _whose(self, it):
        """Which list a header or an order is of; there are no other QPs than those of the card."""
        return Cat(it.qpn[:self.params.qpn_width], it.generation)
