"""The places of the nodes being built: whose each is, and how old."""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..logic import one_hot
from ..params import CardParams
from .among import Among
from .index_of import IndexOf
from .up_to import UpTo


class DraftPlaces(wiring.Component):
    """Whose node lies where, the oldest first. One lookup, one place taken or given back per cycle.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    next_qpn, next_generation : In
        Whose place is looked for in the next cycle.
    hit, hit_slot : Out
        That of the cycle before has one. Nothing may have been taken or given back meanwhile.
    full, empty : Out(1)
    free_slot : Out
        The place that is taken next.
    oldest, expired : Out
        The place taken first; its node is as old as ``node_age_ns`` (a cycle late, never of one given back).
    take_en : In(1)
        ``free_slot`` is taken; what is written there, ``start_en`` says.
    start_en, qpn, generation, slot : In
        A node of ``qpn`` begins at ``slot``, now.
    next_slot : In
        ``slot`` of the next cycle.
    release_en : In(1)
        The place ``slot`` is free again. Not in two cycles one after the other.
    owner_qpn, owner_generation : Out
        Whose ``slot`` is; at once.
    time_ns, node_age_ns : In
    """

    def __init__(self, params: CardParams):
        self.params = params
        slot = range(params.builder_slots)
        super().__init__({
            "next_qpn": In(24), "next_generation": In(8), "hit": Out(1), "hit_slot": Out(slot),
            "full": Out(1), "empty": Out(1), "free_slot": Out(slot), "oldest": Out(slot), "expired": Out(1),
            "take_en": In(1), "start_en": In(1), "qpn": In(24), "generation": In(8), "slot": In(slot),
            "next_slot": In(slot), "release_en": In(1), "owner_qpn": Out(24), "owner_generation": Out(8),
            "time_ns": In(64), "node_age_ns": In(32),
        })

    def elaborate(self, platform):
        m = Module()
        n = self.params.builder_slots
        owner = data.StructLayout({"qpn": self.params.qpn_width, "generation": 8})
        tags = [Signal(owner, name=f"tag{k}") for k in range(n)]
        m.submodules.ages = ages = Memory(shape=32, depth=n, init=[])
        whose = data.View(owner, Array(tag.as_value() for tag in tags)[self.slot])
        begin, since = ages.write_port(), ages.read_port(domain="comb")
        # In the order in which they were taken; behind the first `used` stand the free places.
        line = [Signal(range(n), name=f"line{k}", init=k) for k in range(n)]
        used, taken = Signal(range(n + 1)), Signal(n)
        own, here = Signal(n), Signal(n)        # of the QP that is looked for; the one of the line at `slot`
        m.submodules.place, m.submodules.hit = place, hit = Among(len(self.slot), n), IndexOf(n)
        m.submodules.passed = passed = UpTo(n)
        m.d.sync += [
            own.eq(Cat(there & (tag.qpn == self.next_qpn) & (tag.generation == self.next_generation)
                       for there, tag in zip(taken, tags, strict=True))),
            here.eq(place.bits),
        ]
        m.d.comb += [
            place.i.eq(self.next_slot), place.present.eq((1 << n) - 1), passed.i.eq(here),
            *[number.eq(each) for number, each in zip(place.numbers, line, strict=True)],
            hit.i.eq(own), hit.among.eq(own), self.hit.eq(hit.found), self.hit_slot.eq(hit.index),
            self.oldest.eq(line[0]),
            self.full.eq(used == n), self.empty.eq(used == 0),
            begin.en.eq(self.start_en), begin.addr.eq(self.slot), begin.data.eq(self.time_ns),
            self.owner_qpn.eq(whose.qpn), self.owner_generation.eq(whose.generation), since.addr.eq(self.oldest),
        ]
        # Not right after a place was given back: `oldest` is another one then.
        m.d.sync += self.expired.eq(
            ~self.release_en & (used != 0) & ((self.time_ns[:32] - since.data)[:32] >= self.node_age_ns))
        with m.If(self.take_en):
            m.d.sync += [used.eq(used + 1), taken.eq(taken | one_hot(1, self.free_slot, n)),
                         self.free_slot.eq(Cat(line).word_select((used + 1)[:len(self.slot)], len(self.slot)))]
        for k, tag in enumerate(tags):
            with m.If(self.start_en & (self.slot == k)):
                m.d.sync += [tag.qpn.eq(self.qpn), tag.generation.eq(self.generation)]
        with m.If(self.release_en):     # the place moves to the end
            for k, each in enumerate(line[:-1]):
                with m.If(passed.o[k]):
                    m.d.sync += each.eq(line[k + 1])
            with m.If(self.full):       # otherwise the same one is the first that is free
                m.d.sync += self.free_slot.eq(self.slot)
            m.d.sync += [line[-1].eq(self.slot), used.eq(used - 1), taken.eq(taken & ~one_hot(1, self.slot, n))]
        return m
