"""Retransmission headers that wait for a node of their QP."""

from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..logic import choose, lowest, total, up_to
from ..params import CardParams
from ..ticket import EXTENDED_TICKET_WIDTH
from .among import Among
from .late_choice import LateChoice
from .older import Elders, Older


class MatchItem(data.Struct):
    """A MatchRequest whose ticket was extended, so that it may wait for long."""

    qpn: 24
    generation: 8
    psn: 32
    rsn: 24
    probe: 1
    ticket: EXTENDED_TICKET_WIDTH


class WaitQueue(wiring.Component):
    """Waiting headers in arrival order; those of a woken QP are offered for another try.

    All waiting headers of a QP are awake or asleep together. A header picked stays in its place until it is
    removed or put back. At most one of ``insert_en``, ``remove_en``, ``put_back_en`` per cycle.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    insert_en, insert_awake, item : In
        A new header at the end. It is awake if ``insert_awake``, or like the others of its QP if there are any.
    place_next, qpn_next : In
        Where the header lies of which a try ends in the next cycle, if one does; whose ``item`` is then.
    remove_en, put_back_en, sleep : In
        The end of a try: the header is gone, or stays; with ``sleep`` its whole QP, that of ``item``, falls asleep.
    wake_stb, wake_qpn : In
        Something changed for a QP: its headers are awake.
    offered : Out(1)
        An awake header exists.
    pick_en : In(1)
        Take the oldest; ``picked`` and ``picked_place`` come a cycle later.
    picked, picked_place : Out
    ask_en, ask_qpn, ask_queued, ask_place : In
        Which header is asked for from the next cycle on.
    older : Out(1)
        Is there an older header of its QP than this one (all, if it is not queued), behind what this cycle does?
    waiting_qpn : In(24).array(2)
    waiting : Out(2)
        A header of each of these QPs waits.
    count_en, count_qpn, count : In, In, Out
        How many headers of that QP wait, a cycle later.
    empty : Out(1)
    """

    def __init__(self, params: CardParams):
        self.params = params
        place = range(params.match_queue)
        super().__init__({
            "insert_en": In(1), "insert_awake": In(1), "item": In(MatchItem),
            "place_next": In(place), "qpn_next": In(24), "remove_en": In(1), "put_back_en": In(1), "sleep": In(1),
            "wake_stb": In(1), "wake_qpn": In(24),
            "offered": Out(1), "pick_en": In(1), "picked": Out(MatchItem), "picked_place": Out(place),
            "ask_en": In(1), "ask_qpn": In(24), "ask_queued": In(1), "ask_place": In(place), "older": Out(1),
            "waiting_qpn": In(24).array(2), "waiting": Out(2),
            "count_en": In(1), "count_qpn": In(params.qpn_width), "count": Out(range(params.match_queue + 1)),
            "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        n, width = self.params.match_queue, self.params.qpn_width
        entry = data.StructLayout({"qpn": width, "awake": 1, "busy": 1, "place": range(n)})
        # In arrival order; behind the first `used`, those of `there`, stand the free places.
        line = [Signal(entry, name=f"line{k}", init={"place": k}) for k in range(n)]
        used = Signal(range(n + 1))
        m.submodules.items = items = Memory(shape=MatchItem, depth=n, init=[])
        write, read = items.write_port(), items.read_port()

        pick_place, picking, free_place = Signal(range(n)), Signal(), Signal(range(n))
        there, mates = (Signal(n, name=name) for name in ("there", "mates"))
        place, here = Signal(range(n), name="place"), Signal(n, name="here", init=1)    # which of the line lies there
        ready, removing, last = (Signal(n, name=name) for name in ("ready", "removing", "last"))
        m.submodules.own = own = Among(len(place), n)
        m.d.comb += [own.i.eq(self.ask_place), own.present.eq(there & self.ask_queued.replicate(n)),
                     *[number.eq(e.place) for number, e in zip(own.numbers, line, strict=True)]]
        for k, qpn in enumerate(self.waiting_qpn):
            m.submodules[f"waiting{k}"] = waits = Among(width, n)
            m.d.comb += [waits.i.eq(qpn), waits.present.eq(there), self.waiting[k].eq(waits.any),
                         *[number.eq(e.qpn) for number, e in zip(waits.numbers, line, strict=True)]]
        m.d.comb += last.eq(~there & Cat(Const(1, 1), there[:-1]))      # where the next one comes
        for k, e in enumerate(line):
            m.d.comb += [
                mates[k].eq(there[k] & (e.qpn == self.item.qpn[:width])),
                removing[k].eq(self.remove_en & there[k] & here[k]),
            ]
        m.submodules.ready_ones = tries = LateChoice(n)
        gone, picks = up_to(m, removing, or_, "gone"), lowest(m, ready, "ready")
        places = [e.place for e in line]
        self._ask(m, line, last, there, own.bits, gone, here)
        comes = [its == self.place_next for its in (*places, place)]
        m.d.sync += [place.eq(self.place_next),
                     here.eq(Cat(Mux(gone[k], comes[k + 1], comes[k]) for k in range(n)))]
        m.d.comb += [
            # No two entries have the same place.
            free_place.eq(choose(last, places)),
            picking.eq(ready.any()), pick_place.eq(choose(picks, places)),
        ]
        # All mates are awake or none is.
        mates_awake = (mates & Cat(e.awake for e in line)).any()
        after = [Signal(entry, name=f"after{k}") for k in range(n)]
        for k, e in enumerate(line):
            m.d.comb += after[k].eq(e)
            with m.If(self.put_back_en & here[k]):
                m.d.comb += after[k].busy.eq(0)
            with m.If(self.put_back_en & self.sleep & mates[k]):
                m.d.comb += after[k].awake.eq(0)
            with m.If(self.wake_stb & (e.qpn == self.wake_qpn[:width])):
                m.d.comb += after[k].awake.eq(1)
            with m.If(self.insert_en & last[k]):
                m.d.comb += [after[k].qpn.eq(self.item.qpn), after[k].busy.eq(0),
                             after[k].awake.eq(Mux(mates.any(), mates_awake, self.insert_awake)
                                               | (self.wake_stb & (self.wake_qpn == self.item.qpn)))]
        grown = there | (last & self.insert_en.replicate(n))
        m.d.sync += there.eq(Mux(gone[n - 1], grown >> 1, grown))
        may, pick = Signal(n), Signal(n)        # which may be tried, but for the one that is picked
        for k in range(n):      # it is known a cycle ahead
            moved = data.View(entry, Mux(gone[k], after[k + 1], after[k]) if k + 1 < n else after[k].as_value())
            stays = Mux(gone[n - 1], grown[k + 1] if k + 1 < n else 0, grown[k])
            m.d.comb += [may[k].eq(stays & moved.awake & ~moved.busy),
                         pick[k].eq(Mux(gone[k], picks[k + 1] if k + 1 < n else 0, picks[k]))]
            m.d.sync += line[k].eq(moved)
            with m.If(self.pick_en & pick[k]):
                m.d.sync += line[k].busy.eq(1)
        m.d.comb += [tries.late_en.eq(self.pick_en), tries.late.eq(may & ~pick), tries.early_en.eq(1),
                     tries.early.eq(may), ready.eq(tries.o)]
        with m.If(gone[n - 1]):
            m.d.sync += line[n - 1].place.eq(place)
        m.d.sync += used.eq(used + self.insert_en - gone[n - 1])
        with m.If(self.pick_en):
            m.d.sync += self.picked_place.eq(pick_place)
        with m.If(self.count_en):
            m.d.sync += self.count.eq(total(t & (e.qpn == self.count_qpn) for t, e in zip(there, line, strict=True)))
        m.d.comb += [
            self.offered.eq(picking), self.empty.eq(~there[0]),
            write.en.eq(self.insert_en), write.addr.eq(free_place), write.data.eq(self.item),
            read.en.eq(self.pick_en), read.addr.eq(pick_place), self.picked.eq(read.data),
        ]
        return m

    def _ask(self, m, line, last, there, own, gone, here):
        """Keep a bit for each header that is older than the one asked for, while headers come and go."""
        n, width = len(line), self.params.qpn_width
        m.submodules.mates = mates = Among(width, n)
        m.submodules.elders = elders = Elders(n)
        m.submodules.older_ones = older = LateChoice(n)
        coming = Signal(2)
        m.submodules.newer = newer = LateChoice(1)      # `item` is of the QP asked for
        asked_qpn, asked_queued = Signal(width), Signal()
        m.submodules.answer = answer = Older(n)
        m.d.comb += [
            mates.i.eq(self.ask_qpn), mates.present.eq(there),
            *[number.eq(e.qpn) for number, e in zip(mates.numbers, line, strict=True)],
            elders.own.eq(own), elders.mates.eq(mates.bits),
            newer.late_en.eq(self.ask_en), newer.early_en.eq(1),
            *[value.eq(~queued & (self.qpn_next[:width] == qpn[:width])) for value, qpn, queued in (
                (newer.early, asked_qpn, asked_queued), (newer.late, self.ask_qpn, self.ask_queued))],
            coming.eq(self.insert_en.replicate(2) & Cat(
                newer.o, ~self.ask_queued & (self.item.qpn[:width] == self.ask_qpn[:width]))),
            answer.i.eq(older.o), answer.remove_en.eq(self.remove_en), answer.here.eq(here),
            answer.coming.eq(coming[0]), self.older.eq(answer.o),
        ]
        with m.If(self.ask_en):
            m.d.sync += [asked_qpn.eq(self.ask_qpn), asked_queued.eq(self.ask_queued)]

        def moved(bits, comes):
            """Of the headers as they lie after this cycle."""
            return Cat(Mux(gone[k], bits[k + 1] if k + 1 < n else 0, bits[k] | (comes & last[k])) for k in range(n))

        m.d.comb += [older.late_en.eq(self.ask_en), older.late.eq(moved(elders.o, coming[1])),
                     older.early_en.eq(1), older.early.eq(moved(older.o, coming[0]))]
