"""The places of the nodes being built: whose each is, and how old."""

from operator import or_

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..logic import below, choose, up_to
from ..params import CardParams


class DraftPlaces(wiring.Component):
    """Whose node lies where, the oldest first. One lookup, one place taken or given back per cycle.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    qpn, generation : In
        Whose place is looked for.
    hit, hit_slot : Out
        It has one; at once.
    full, empty : Out(1)
    free_slot : Out
        The place that is taken next.
    oldest, expired : Out
        The place taken first; its node is as old as ``node_age_ns`` (a cycle late, never of one given back).
    take_en : In(1)
        ``free_slot`` is taken; what is written there, ``start_en`` says.
    start_en, slot : In
        A node of ``qpn`` begins at ``slot``, now.
    release_en : In(1)
        The place ``slot`` is free again.
    owner_qpn, owner_generation : Out
        Whose ``slot`` is; at once.
    time_ns, node_age_ns : In
    """

    def __init__(self, params: CardParams):
        self.params = params
        slot = range(params.builder_slots)
        super().__init__({
            "qpn": In(24), "generation": In(8), "hit": Out(1), "hit_slot": Out(slot),
            "full": Out(1), "empty": Out(1), "free_slot": Out(slot), "oldest": Out(slot), "expired": Out(1),
            "take_en": In(1), "start_en": In(1), "slot": In(slot), "release_en": In(1),
            "owner_qpn": Out(24), "owner_generation": Out(8),
            "time_ns": In(64), "node_age_ns": In(32),
        })

    def elaborate(self, platform):
        m = Module()
        n = self.params.builder_slots
        shape = data.StructLayout({"slot": range(n), "qpn": self.params.qpn_width, "generation": 8, "since": 32})
        # In the order in which they were taken; behind the first `used` stand the free places.
        line = [Signal(shape, name=f"line{k}", init={"slot": k}) for k in range(n)]
        used = Signal(range(n + 1))
        own, here = Signal(n), Signal(n)        # of the QP that is looked for; the one at `slot`
        for k, (place, there) in enumerate(zip(line, below(m, used, n, "there"), strict=True)):
            m.d.comb += [own[k].eq(there & (place.qpn == self.qpn) & (place.generation == self.generation)),
                         here[k].eq(place.slot == self.slot)]
        slots = [place.slot for place in line]
        m.d.comb += [
            self.hit.eq(own.any()), self.hit_slot.eq(choose(own, slots)),
            self.oldest.eq(line[0].slot), self.free_slot.eq(choose((k == used for k in range(n)), slots)),
            self.full.eq(used == n), self.empty.eq(used == 0),
            self.owner_qpn.eq(choose(here, (place.qpn for place in line))),
            self.owner_generation.eq(choose(here, (place.generation for place in line))),
        ]
        # Not right after a place was given back: `oldest` is another one then.
        m.d.sync += self.expired.eq(
            ~self.release_en & (used != 0) & ((self.time_ns[:32] - line[0].since)[:32] >= self.node_age_ns))
        with m.If(self.take_en):
            m.d.sync += used.eq(used + 1)
        with m.If(self.start_en):
            for k, place in enumerate(line):
                with m.If(here[k]):
                    m.d.sync += [place.since.eq(self.time_ns), place.qpn.eq(self.qpn),
                                 place.generation.eq(self.generation)]
        with m.If(self.release_en):     # the place moves to the end
            passed = up_to(m, here, or_, "passed")
            for k, place in enumerate(line[:-1]):
                with m.If(passed[k]):
                    m.d.sync += place.eq(line[k + 1])
            m.d.sync += [line[-1].slot.eq(self.slot), used.eq(used - 1)]
        return m
