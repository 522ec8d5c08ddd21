"""The places of the nodes being built: whose each is, and how old."""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

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
        tag_shape = data.StructLayout({"qpn": self.params.qpn_width, "generation": 8, "since": 32})
        tags = Array(Signal(tag_shape, name=f"tag{k}") for k in range(n))
        # A permutation of the places: the first `used` are taken, oldest first; the others are free.
        order = Array(Signal(range(n), name=f"order{k}", init=k) for k in range(n))
        used = Signal(range(n + 1))
        m.d.comb += [
            self.oldest.eq(order[0]), self.free_slot.eq(order[used[:len(self.oldest)]]),
            self.full.eq(used == n), self.empty.eq(used == 0),
            self.owner_qpn.eq(tags[self.slot].qpn), self.owner_generation.eq(tags[self.slot].generation),
        ]
        # Not right after a place was given back: `oldest` is another one then.
        m.d.sync += self.expired.eq(
            ~self.release_en & (used != 0) & ((self.time_ns[:32] - tags[order[0]].since)[:32] >= self.node_age_ns))
        for k in range(n):
            tag = tags[order[k]]
            with m.If((k < used) & (tag.qpn == self.qpn) & (tag.generation == self.generation)):
                m.d.comb += [self.hit.eq(1), self.hit_slot.eq(order[k])]
        with m.If(self.take_en):
            m.d.sync += used.eq(used + 1)
        with m.If(self.start_en):
            tag = tags[self.slot]
            m.d.sync += [tag.since.eq(self.time_ns), tag.qpn.eq(self.qpn), tag.generation.eq(self.generation)]
        with m.If(self.release_en):     # the place moves to the end of the order
            for k in range(n):
                passed = Signal(name=f"passed{k}")
                m.d.comb += passed.eq(Cat(order[j] == self.slot for j in range(k + 1)).any())
                if k + 1 < n:
                    with m.If(passed):
                        m.d.sync += order[k].eq(order[k + 1])
            m.d.sync += [order[n - 1].eq(self.slot), used.eq(used - 1)]
        return m
