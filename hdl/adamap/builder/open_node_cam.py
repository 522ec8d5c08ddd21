"""Slots of the open nodes: the QP and the age of each."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import NS_PER_CYCLE, CardParams, exact_log2
from ...part.logic import greater_than, one_hot
from ...part.select import OneHotEncoder, TagCompare

GROUP = 4


class PrefixOr(wiring.Component):
    """Prefix OR in two steps: within groups of a few bits, then over the groups. Latency 2.

    Parameters
    ----------
    width : int

    Members
    -------
    i, o : In(width), Out(width)
    """

    def __init__(self, width):
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        width = len(self.i)
        groups = [self.i[k:k + GROUP] for k in range(0, width, GROUP)]
        within, some = Signal(width), Signal(len(groups))
        m.d.sync += [
            within.eq(Cat(group[:k + 1].any() for group in groups for k in range(len(group)))),
            some.eq(Cat(group.any() for group in groups)),
            self.o.eq(within | Cat(some[:k // GROUP].any() for k in range(width))),
        ]
        return m


LINE_PART = 8       # slots that are searched in one step
AGE_MAX = abi.NODE_AGE_MAX_NS // NS_PER_CYCLE
# in cycles: twice the largest age, so that a node of that age does not wrap at once
AGE_BITS = exact_log2(AGE_MAX) + 1


class OpenNodeCam(wiring.Component):
    """CAM of the open nodes by QP, and their order by age. One lookup, one allocation or release per cycle.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    next_qpn, next_generation : In
        QP to look up in the next cycle.
    hit, hit_slot : Out
        Slot of the QP of the cycle before. No slot may have been allocated or released in between.
    full, empty : Out(1)
    free_slot : Out
        The slot to be allocated next.
    oldest, expired : Out
        The slot allocated first; its node has reached the age ``node_age_ns``, or ``abi.NODE_AGE_MAX_NS`` (two cycles
        late, never for a released slot, and not in the five cycles after an allocation or release).
    start_en, qpn, generation, slot : In
        Allocate ``slot``, equal to ``free_slot``, for ``qpn``. Not again in the next three cycles.
    release_en : In(1)
        Release ``slot``; the order is updated in the next two cycles. Not in two cycles in a row.
    owner_qpn, owner_generation : Out
        QP of the ``slot`` of the cycle before.
    time_ns, node_age_ns : In
    """

    def __init__(self, params: CardParams):
        self.params = params
        slot = range(params.builder_slots)
        super().__init__({
            "next_qpn": In(24), "next_generation": In(8), "hit": Out(1), "hit_slot": Out(slot),
            "full": Out(1), "empty": Out(1, init=1), "free_slot": Out(slot), "oldest": Out(slot), "expired": Out(1),
            "start_en": In(1), "qpn": In(24), "generation": In(8), "slot": In(slot),
            "release_en": In(1), "owner_qpn": Out(24), "owner_generation": Out(8),
            "time_ns": In(64), "node_age_ns": In(32),
        })

    def elaborate(self, platform):
        m = Module()
        n = self.params.builder_slots
        tag_shape = data.StructLayout({"qpn": self.params.qpn_width, "generation": 8})
        tags = [Signal(tag_shape, name=f"tag{k}") for k in range(n)]
        m.submodules.ages = ages = Memory(shape=AGE_BITS, depth=n, init=[])
        owner = Signal(tag_shape)
        now, limit = self.time_ns[exact_log2(NS_PER_CYCLE):][:AGE_BITS], Signal(AGE_BITS)      # cycles
        begin, since = ages.write_port(), ages.read_port(domain="comb")
        # Slots in the order of allocation; the free ones follow the first `used`.
        line = [Signal(range(n), name=f"line{k}", init=k) for k in range(n)]
        used, taken = Signal(range(n + 1)), Signal(n)
        same_generation, qp = Signal(n), Signal(n)         # matches of generation and of QPN with the QP to look up
        # Release: the slot is found in the order, then those after it move.
        leaving, moving, moved = Signal(), Signal(name="moving"), Signal()
        left = Signal.like(self.slot)
        # The slot after the used ones is found in two steps: in each part of the order, then among the parts.
        parts = [line[k:k + LINE_PART] for k in range(0, n, LINE_PART)]
        nth = [Signal.like(self.slot, name=f"nth{k}") for k in range(len(parts))]
        m.submodules.place, m.submodules.hit = place, hit = TagCompare(len(self.slot), n), OneHotEncoder(n)
        m.submodules.passed = passed = PrefixOr(n)
        m.d.sync += [
            same_generation.eq(taken & Cat(tag.generation == self.next_generation for tag in tags)),
            qp.eq(Cat(tag.qpn == self.next_qpn for tag in tags)),
            owner.eq(Array(tag.as_value() for tag in tags)[self.slot]),
            leaving.eq(self.release_en), moving.eq(leaving), moved.eq(moving),
            *[one.eq(Array(part)[used[:exact_log2(len(part))]]) for one, part in zip(nth, parts, strict=True)],
        ]
        m.d.comb += [
            place.i.eq(self.slot), place.present.eq((1 << n) - 1), passed.i.eq(place.bits),
            *[number.eq(each) for number, each in zip(place.numbers, line, strict=True)],
            hit.i.eq(same_generation), hit.among.eq(qp), self.hit.eq(hit.found), self.hit_slot.eq(hit.index),
            self.oldest.eq(line[0]),
            begin.en.eq(self.start_en), begin.addr.eq(self.slot), begin.data.eq(now),
            self.owner_qpn.eq(owner.qpn), self.owner_generation.eq(owner.generation), since.addr.eq(self.oldest),
        ]
        # Pipeline: time of allocation of the oldest slot, its age, comparison with the limit. Results in flight are
        # ignored when another slot becomes the oldest.
        began, age, old = Signal(AGE_BITS), Signal(AGE_BITS), Signal()
        changed, unsettled = Signal(4), Signal()
        m.d.sync += [
            limit.eq(Mux(greater_than(self.node_age_ns, abi.NODE_AGE_MAX_NS), AGE_MAX,
                         (self.node_age_ns + (NS_PER_CYCLE - 1))[exact_log2(NS_PER_CYCLE):])),
            began.eq(since.data), age.eq(now - began), old.eq(~self.empty & (age >= limit)),
            changed.eq(Cat(self.release_en | self.start_en, changed)), unsettled.eq(changed.any()),
        ]
        m.d.comb += self.expired.eq(old & ~changed[0] & ~unsettled)
        with m.If(self.start_en):
            m.d.sync += [used.eq(used + 1), self.full.eq(used == n - 1), self.empty.eq(0),
                         taken.eq(taken | one_hot(1, self.slot, n))]
        for k, tag in enumerate(tags):
            with m.If(self.start_en & (self.slot == k)):
                m.d.sync += [tag.qpn.eq(self.qpn), tag.generation.eq(self.generation)]
        with m.If(self.release_en):
            m.d.sync += [taken.eq(taken & ~one_hot(1, self.slot, n)), left.eq(self.slot)]
        with m.If(leaving):
            m.d.sync += [used.eq(used - 1), self.full.eq(0), self.empty.eq(used == 1)]
            with m.If(self.full):       # otherwise the first free slot stays the same
                m.d.sync += self.free_slot.eq(left)
        with m.Elif(moving):            # the slot moves to the end
            for k, each in enumerate(line[:-1]):
                with m.If(passed.o[k]):
                    m.d.sync += each.eq(line[k + 1])
            m.d.sync += line[-1].eq(left)
        with m.Elif(~moved):
            m.d.sync += self.free_slot.eq(Array(nth)[used[exact_log2(len(parts[0])):len(self.slot)]])
        return m
