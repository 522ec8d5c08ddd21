"""The first stage of the matcher: which header goes next."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part.layouts import QpRef
from ..part.stages import Pair
from ..part.ticket import EXTENDED_TICKET_WIDTH
from .wait_queue import MatchItem


class Source(enum.Enum, shape=2):
    """Where a header under way came from."""

    NEW = 0
    WAITING = 1
    FORCE = 2       # no header: an entry is wanted, the head must go


FORCE = data.StructLayout({"valid": 1, "qp": QpRef, "rsn": 24})     # the head that must go: the node with this RSN


def chosen_header(params):
    """A header, or an order to retire: then ``item.rsn`` is that of the head meant, unless ``any_head``."""
    return data.StructLayout({"any_head": 1, "item": MatchItem, "source": Source, "place": range(params.match_queue)})


class Chooser(wiring.Component):
    """Takes an order to retire a head, a waiting header every other time, or a new one. One per cycle, latency 1.

    A waiting header takes a cycle more, in which its place is read. An order of the matcher's own, that the head of a
    full list must go, comes before one of the prefetcher, and is kept until it is taken.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(MatchItem))
        New headers.
    offered, pick_en, picked, picked_place
        As :class:`~weft.hdl.adamap.wait_queue.WaitQueue` has them.
    i_force : In(stream.Signature(QpRef))
        The head of this list must go, whichever it is.
    force : In(FORCE)
        That head must go, if it is there still; ignored while ``forcing``.
    forcing : Out(1)
    placed : In
        The ticket that an order goes with.
    quiet : In(1)
        Nothing new is chosen.
    picking : Out(1)
        A waiting header has been chosen and is not out yet.
    o : Out(stream.Signature(chosen_header(params)))
    show_en, show_place : Out
        ``o`` shows another header from the next cycle on; its place, if it is one that waited.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(MatchItem)),
            "offered": In(1), "pick_en": Out(1), "picked": In(MatchItem), "picked_place": In(range(params.match_queue)),
            "i_force": In(stream.Signature(QpRef)), "force": In(FORCE), "forcing": Out(1),
            "placed": In(EXTENDED_TICKET_WIDTH), "quiet": In(1), "picking": Out(1),
            "o": Out(stream.Signature(chosen_header(params))),
            "show_en": Out(1), "show_place": Out(range(params.match_queue)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.pair = pair = Pair(chosen_header(self.params))
        wiring.connect(m, pair.o, wiring.flipped(self.o))
        turn, force, chosen, choice = Signal(), Signal(FORCE), pair.i, pair.i.p
        m.d.comb += [choice.item.eq(self.i.payload), choice.source.eq(Source.NEW), self.forcing.eq(force.valid),
                     choice.place.eq(self.picked_place), self.show_en.eq(pair.takes),
                     self.show_place.eq(pair.next.place)]
        # Whether one is offered is known last, and by the queue itself.
        m.d.comb += self.pick_en.eq(~self.picking & ~self.quiet & ~force.valid & ~self.i_force.valid
                                    & (turn | ~self.i.valid))
        with m.If(self.picking):
            m.d.comb += [chosen.valid.eq(1), choice.item.eq(self.picked),
                         choice.source.eq(Source.WAITING)]
            m.d.sync += self.picking.eq(~chosen.ready)
        with m.Elif(~self.quiet):
            with m.If(force.valid | self.i_force.valid):
                order = Signal(QpRef)
                m.d.comb += [
                    order.eq(Mux(force.valid, force.qp.as_value(), self.i_force.p.as_value())),
                    self.i_force.ready.eq(chosen.ready & ~force.valid),
                    chosen.valid.eq(1), choice.source.eq(Source.FORCE), choice.any_head.eq(~force.valid),
                    choice.item.qpn.eq(order.qpn), choice.item.generation.eq(order.generation),
                    choice.item.rsn.eq(force.rsn), choice.item.ticket.eq(self.placed),
                ]
                with m.If(chosen.ready):
                    m.d.sync += force.valid.eq(0)
            with m.Elif(self.offered & self.pick_en):
                m.d.sync += [self.picking.eq(1), turn.eq(0)]
            with m.Elif(self.i.valid):
                m.d.comb += [chosen.valid.eq(1), self.i.ready.eq(chosen.ready)]
                with m.If(chosen.ready):
                    m.d.sync += turn.eq(1)
        with m.If(self.force.valid & ~force.valid):
            m.d.sync += force.eq(self.force)
        return m
