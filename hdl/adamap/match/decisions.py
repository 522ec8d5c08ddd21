"""Control logic of the matcher's stages: choice of the next header, hazard check, dispatch."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.layouts import QpRef
from ...part.stages import PingPongBuffer
from ...part.ticket import EXTENDED_TICKET_WIDTH
from .wait_queue import MatchItem


class Source(enum.Enum, shape=2):
    """Source of a header in the pipeline."""

    NEW = 0
    WAITING = 1
    FORCE = 2       # no header, but an order to retire the head: a cache entry is needed


FORCE = data.StructLayout({"valid": 1, "qp": QpRef, "rsn": 24})     # order to retire the head with this RSN


def chosen_header(params):
    """Return the layout of a header, or of an order to retire a head.

    ``item.rsn`` of an order is that of the head. With ``any_head`` the head retires whatever its RSN is.
    """
    return data.StructLayout({"any_head": 1, "item": MatchItem, "source": Source, "place": range(params.match_queue)})


class MatchArbiter(wiring.Component):
    """Arbiter of orders to retire a head, waiting headers every other time, and new headers. One per cycle, latency 1.

    A waiting header takes a cycle more, in which its entry is read. The matcher's order to retire the head of a
    full list has priority over one of the prefetcher, and is held until it is granted.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(MatchItem))
        New headers.
    offered, pick_en, picked, picked_place
        Of :class:`~weft.hdl.adamap.match.wait_queue.WaitQueue`.
    i_force : In(stream.Signature(QpRef))
        Order to retire the head of this list.
    force : In(FORCE)
        Order to retire that head, if it is still there; ignored while ``forcing``.
    forcing : Out(1)
    placed : In
        Ticket of an order.
    quiet : In(1)
        Grant nothing.
    picking : Out(1)
        A waiting header has been granted and is not out yet.
    o : Out(stream.Signature(chosen_header(params)))
    show_en, show_place : Out
        ``o`` shows another header from the next cycle on; its entry of the match queue, if it waited.
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
        m.submodules.pair = pair = PingPongBuffer(chosen_header(self.params))
        wiring.connect(m, pair.o, wiring.flipped(self.o))
        turn, force, chosen, choice = Signal(), Signal(FORCE), pair.i, pair.i.p
        m.d.comb += [choice.item.eq(self.i.payload), choice.source.eq(Source.NEW), self.forcing.eq(force.valid),
                     choice.place.eq(self.picked_place), self.show_en.eq(pair.takes),
                     self.show_place.eq(pair.next.place)]
        # Whether a waiting header is offered is the latest signal, and used by the queue only.
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


class HazardCheck(wiring.Component):
    """Hazard check of a looked-up header, and retirement of the head of its list. Combinational.

    Kept as a block: folded into the matcher it costs nothing there (docs/development.md, "Size and longest paths"), but
    the paths of its outputs continue in the head cache.

    Members
    -------
    valid, held_up : In(1)
        There is a header; it must wait for another one in the pipeline.
    is_header : In(1)
        Otherwise it is an order to retire the head.
    passed, settles : In(1)
        The head must be retired (passed over, or named by the order); retirement is delayed by one cycle because
        another head of the list retired in the previous one.
    older : In(1)
        An older header of the list waits.
    follows : In(1)
        The header's node follows the head.
    space : In(1)
        For a retirement.
    ripe : In(1)
        A head of any list has no open holes: it may retire instead.
    retires : Out(1)
        The head must retire: it retires if there is space.
    retire_head, retire_ripe : Out(1)
        The head retires; the head without open holes retires.
    looked, free : Out(1)
        The header leaves this stage, which can take another one.
    """

    def __init__(self):
        super().__init__({
            "valid": In(1), "held_up": In(1), "is_header": In(1), "passed": In(1), "settles": In(1), "older": In(1),
            "follows": In(1), "space": In(1), "ripe": In(1),
            "retires": Out(1), "retire_head": Out(1), "retire_ripe": Out(1), "looked": Out(1), "free": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        go = self.valid & ~self.held_up & ~(self.passed & self.settles)
        m.d.comb += [
            self.retires.eq(go & ~self.older & self.passed),
            # A header may pass together with the one retiring head if its node is the new head.
            self.looked.eq(go & (~self.retires | (self.space & (self.follows | ~self.is_header)))),
            self.retire_head.eq(self.retires & self.space), self.retire_ripe.eq(~self.retires & self.ripe & self.space),
            self.free.eq(~self.valid | self.looked),
        ]
        return m


class NewestTicket(wiring.Component):
    """The newest ticket of all headers so far and of the placed one: a retirement waits for it.

    Members
    -------
    valid, ticket : In
        A header.
    placed : In
    o : Out
        Including the header of this cycle.
    """

    def __init__(self):
        ticket = EXTENDED_TICKET_WIDTH
        super().__init__({"valid": In(1), "ticket": In(ticket), "placed": In(ticket), "o": Out(ticket)})

    def elaborate(self, platform):
        m = Module()
        newest, behind, comes, left = Signal.like(self.o), Signal.like(self.o), Signal(), Signal(2)
        # Both candidates are compared with the placed ticket in parallel.
        for k, ticket in enumerate((newest, self.ticket)):
            ahead = Signal.like(self.o, name=f"ahead{k}")
            m.d.comb += [ahead.eq(ticket - self.placed), left[k].eq(ahead[-1])]
        m.d.comb += [behind.eq(newest - self.ticket), comes.eq(self.valid & behind[-1]),
                     self.o.eq(Mux(comes, self.ticket, newest))]
        m.d.sync += newest.eq(Mux(Mux(comes, left[1], left[0]), self.placed, self.o))
        return m


class Dispatch(wiring.Component):
    """Dispatch of a header when the state of its list has been read. Combinational.

    Kept as a block: folded into the matcher it costs nothing there (docs/development.md, "Size and longest paths"), but
    the paths of its inputs begin in the head cache.

    Members
    -------
    valid, new : In(1)
        There is a header; it does not come from the match queue.
    older : In(1)
        An older header of its list waits.
    live, list_generation, generation : In(1), In(8), In(8)
        The list exists, and its generation; the generation of the header.
    hit, head, before_head : In(1)
        Its node is cached; the list has a cached node; the header is before that.
    more : In(1)
        Nodes are linked that are not cached.
    probe : In(1)
    ends : Out(1)
        The header is finished: it marks its node (``hits``), or is dropped for ``reason``.
    hits, reason : Out(1), Out(8)
    misses : Out(1)
        It waits for a node that is not cached.
    insert, put_back : Out(1)
        It enters the match queue, or stays there.
    """

    def __init__(self):
        super().__init__({
            "valid": In(1), "new": In(1), "older": In(1), "live": In(1), "list_generation": In(8),
            "generation": In(8), "hit": In(1), "head": In(1), "before_head": In(1), "more": In(1), "probe": In(1),
            "ends": Out(1), "hits": Out(1), "reason": Out(8), "misses": Out(1), "insert": Out(1), "put_back": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        waits = self.older | self.misses
        judged, current, absent = self.valid & ~self.older, Signal(), Signal()
        m.d.comb += [
            current.eq(self.live & (self.list_generation == self.generation)),
            absent.eq(self.more & ~self.hit & ~self.before_head & ~(self.probe & self.head)),
            # Separate from `reason`: the match queue waits for it.
            self.ends.eq(judged & ~(current & absent)), self.misses.eq(judged & current & absent),
            self.hits.eq(judged & current & self.hit),
        ]
        with m.If(~current):
            m.d.comb += self.reason.eq(abi.Reason.STALE_GENERATION.value)
        with m.Elif(self.hit):
            m.d.comb += self.reason.eq(abi.Reason.OK.value)
        with m.Elif(self.before_head | ~(self.head | self.more)):
            m.d.comb += self.reason.eq(abi.Reason.STALE_RSN.value)
        with m.Else():
            m.d.comb += self.reason.eq(abi.Reason.NOT_IN_NODE.value)
        m.d.comb += [
            self.insert.eq(self.valid & waits & self.new), self.put_back.eq(self.valid & waits & ~self.new),
        ]
        return m
