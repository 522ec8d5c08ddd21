"""Proofs of the pacer: no QP and no descriptor is lost, and none leaves early."""

from amaranth.hdl import Array, Cat, Mux, Signal, Value, signed

from weft.hdl.contract.abi import PACE_SCALE, WorkOpcode
from weft.hdl.contract.params import preset
from weft.hdl.pacing.engine import Engine
from weft.hdl.pacing.pool import Pool
from weft.hdl.pacing.scan import TIMES
from weft.hdl.pacing.wheel import SLOT_LOG2, TIME_BITS, Wheel, slots_of
from weft.tb.verify.proof.faulty import faulty
from weft.tb.verify.proof.specification import Spec

SLOTS = 4
PACE = 3        # cycles of a slot, at least
NUMBER = 29     # of the first slot: the numbers start again
APART = 3       # cycles from one entry of the engine to the next one, at least


def two_slots(params):
    """Return the number of slots of the wheel of a small engine."""
    return 2


class WheelSpec(Spec):
    """Wheel with two QPs, four slots of three cycles or more, and an engine that enters a QP every third cycle."""

    name = "pacer_wheel"
    block = Wheel
    proof = {"kind": "bounded", "bound": 22, "seconds": 300}
    params = preset("test").with_(qps=2)
    slot_bits = 5

    def specify(self, m):
        m.submodules.dut = dut = self.block(self.params, SLOTS, self.slot_bits)
        self.free_members(dut, "now", "slot")
        now, pace = Signal(self.slot_bits, init=NUMBER), Signal(range(PACE))
        away = self.free(signed(4), "away")     # of the slot of the QP to enter
        m.d.comb += dut.slot.eq(now + away)
        passes = self.free(1, "passes")
        m.d.comb += dut.now.eq(now)
        m.d.sync += [now.eq(now + (passes & (pace == 0))), pace.eq(Mux(pace == 0, passes * (PACE - 1), pace - 1))]
        inside = Array(Signal(name=f"inside{k}") for k in range(self.params.qps))
        followed = self.constant(m, self.params.qpn_width, "followed")
        slot, free, mine = Signal(self.slot_bits), Signal(), Signal()      # of the followed QP
        rests = Signal(range(APART))
        ahead, past, entered, leaves = Signal(self.slot_bits), Signal(), Signal(), Signal()
        m.d.comb += [
            mine.eq(dut.qpn == followed), ahead.eq(dut.slot - now), past.eq(ahead[-1]),
            entered.eq(dut.stb & ~dut.far), leaves.eq(dut.o.valid & dut.o.ready),
        ]
        self.assume(~dut.stb | (dut.ready & ~inside[dut.qpn] & (rests == 0)))
        m.d.sync += rests.eq(Mux(dut.stb, APART - 1, Mux(rests == 0, 0, rests - 1)))
        with m.If(leaves):
            m.d.sync += inside[dut.o.payload].eq(0)
        with m.If(entered):
            m.d.sync += inside[dut.qpn].eq(1)
            with m.If(mine):
                m.d.sync += [slot.eq(dut.slot), free.eq(dut.at_once)]
        since = Signal(self.slot_bits)
        m.d.comb += since.eq(now - slot)
        due = Signal()
        m.d.comb += due.eq(inside[followed] & (free | (~since[-1] & (since != 0))))
        offered = dut.o.valid & (dut.o.payload == followed)
        queued = self.inside("dut.due.queue.w_en", 1) & (self.inside("dut.due.queue.w_data", 1) == followed)
        idle = self.cycles(m, due & ~dut.o.valid & ~dut.stb, 15)

        self.check("only QPs that are inside leave", ~dut.o.valid | inside[dut.o.payload])
        self.check("none leaves its slot early", ~queued | due | (mine & entered & (past | dut.at_once)),
                   kind="bounded", bound=18, seconds=300)
        self.check("none is lost: a due QP, or one before it, leaves within 7 cycles", idle < 7)
        self.check("a QP within reach is entered", ~dut.stb | ~dut.far | (
            ~past & ~dut.at_once & (ahead + 3 >= SLOTS)))
        again = self.once(m, entered & mine & past)
        self.cover("two QPs of a slot leave", self.once(m, leaves & ~dut.stb & offered & (slot == NUMBER + 1))
                   & leaves & (slot == NUMBER + 1))
        self.cover("a QP leaves the last slot that is in reach",
                   offered & ~free & (slot == (NUMBER + SLOTS - 1) % (1 << self.slot_bits)))
        self.cover("a QP leaves, is entered again and leaves", again & offered & ~free)


class EngineSpec(Spec):
    """Engine with two QPs, a pool of four descriptors and a wheel of two slots, whose times begin anywhere.

    A descriptor is followed: how many are before it in its list is counted. The time of the followed QP's next packet
    is observed where the engine stores it; its computation is left to the tests.
    """

    name = "pacer_engine"
    block = Engine
    proof = {"kind": "bounded", "bound": 28, "seconds": 600}
    params = preset("test").with_(qps=2, pace_descriptors=4)
    unused = ()         # inputs that stay zero
    several = True      # QPs

    def __init__(self, block=None, replaced=()):
        super().__init__(block, {slots_of: two_slots, **dict(replaced)})

    def specify(self, m):
        m.submodules.dut = dut = self.block(self.params)
        self.free_members(dut, "now", "i_send__payload", "i_retransmit__payload", "setting", *self.unused)
        # With the burst, the next packet of 98 bytes is due at once, after 20 ns, or after 118 ns.
        gaps, gap = Array((0, 42, 43, 0)), self.free(2, "gap")
        m.d.comb += [dut.setting.gap.eq(gaps[gap] << PACE_SCALE),
                     dut.setting.limited.eq(self.free(1, "limited")),
                     dut.setting.limit.eq(self.free(2, "limit"))]
        began, cycle = self.constant(m, SLOT_LOG2 + 1, "began"), Signal(TIME_BITS)
        m.d.sync += cycle.eq(cycle + 4)
        m.d.comb += dut.now.eq(began + cycle)
        sources = dut.i_send, dut.i_retransmit
        numbers = [Signal(3, name=f"number{k}") for k in range(2)]      # of the next descriptors, in their `dst_mac`
        for k, source in enumerate(sources):
            work = source.p
            m.d.comb += [
                work.opcode.eq(WorkOpcode.WRITE), work.pmtu.eq(1),
                work.sqpn.eq(self.free(1, f"sqpn{k}") if self.several else 0),
                work.length.eq(self.free(1, f"length{k}") * 300), work.psn.eq(0),
                work.dst_mac.eq(Cat(numbers[k], k == 1)),
            ]
            m.d.sync += numbers[k].eq(numbers[k] + (source.valid & source.ready))
        for name in ("i_send", "i_retransmit", "i_flush", "i_rejected"):
            self._stable(m, getattr(dut, name))
        follow = self.constant(m, 4, "follow")       # number of the followed descriptor
        offered, out = Signal(), dut.o.p
        was = Signal()
        m.d.comb += offered.eq(dut.o.valid & ~was)
        m.d.sync += was.eq(dut.o.valid & ~dut.o.ready)
        self._follow(m, dut, sources, follow, offered & ~out.silent)
        if self.several:
            self._time(m, dut, offered & ~out.silent)

    def _stable(self, m, source):
        """Assume that a source of a stream obeys its rules."""
        payload = Value.cast(source.payload)
        waits, was = Signal(), Signal(len(payload))
        m.d.sync += [waits.eq(source.valid & ~source.ready), was.eq(payload)]
        self.assume(~waits | (source.valid & (payload == was)))

    def _follow(self, m, dut, sources, follow, offered):
        """Check that the followed descriptor leaves in its turn, once, and that what is held is counted."""
        out = dut.o.p
        held, kind, qpn, before = Signal(), Signal(), Signal(), Signal(3)
        count = Array(Signal(3, name=f"count{k}") for k in range(4))       # by QP and list
        ends, which = Signal(), Signal(2)
        flushed = Signal(1)
        flushes = (dut.i_flush.valid & dut.i_flush.ready) | (dut.i_rejected.valid & dut.i_rejected.ready)
        m.d.comb += [ends.eq(offered & out.packet.ends), which.eq(Cat(out.packet.ring, out.packet.sqpn[0])),
                     flushed.eq(Mux(dut.i_flush.ready, dut.i_flush.payload, dut.i_rejected.payload))]
        next_count = [Signal(3, name=f"next_count{k}") for k in range(4)]
        for k in range(4):
            m.d.comb += next_count[k].eq(count[k] - (ends & (which == k)))
            m.d.sync += count[k].eq(next_count[k])
        for k, source in enumerate(sources):
            with m.If(source.valid & source.ready & ~dut.refused):
                place = Cat(k == 1, source.p.sqpn[0])
                for each in range(4):
                    with m.If(place == each):
                        m.d.sync += count[each].eq(next_count[each] + 1)
                        with m.If(source.p.dst_mac[:4] == follow):
                            m.d.sync += [held.eq(1), kind.eq(k), qpn.eq(source.p.sqpn[0]),
                                         before.eq(next_count[each])]
        same = Signal()
        m.d.comb += same.eq(held & (out.packet.ring == kind) & (out.packet.sqpn[0] == qpn))
        with m.If(ends & same):
            m.d.sync += before.eq(before - 1)
            with m.If(before == 0):
                m.d.sync += held.eq(0)
        with m.If(flushes):
            for each in range(4):
                with m.If(flushed == each >> 1):
                    m.d.sync += count[each].eq(0)
            with m.If(flushed == qpn):
                m.d.sync += held.eq(0)
        mine = offered & (out.packet.dst_mac[:4] == follow)
        some = Cat(count).any()
        self.check("the followed descriptor leaves in its turn", ~offered | (mine == (same & (before == 0))))
        self.check("a pool with space accepts", ~dut.refused | (sum(count) == self.params.pace_descriptors))
        if not self.several:
            self.cover("a descriptor leaves after another one of its QP", self.once(
                m, ends & ~mine & same & (before == 1)) & mine)
            return
        self.check("an idle pacer holds nothing", ~dut.idle | ~some | dut.o.valid)
        first = self.once(m, mine & ends)
        self.cover("a flush frees a descriptor", flushes & held & (flushed == qpn))
        self.cover("a packet leaves, then its rest", self.once(m, mine & ~ends) & mine)
        self.cover("a descriptor is retransmitted first", first & kind & count[1 ^ 1].any())

    def _time(self, m, dut, offered):
        """Check the time of a QP's packets against the one that the engine stored last."""
        followed = self.constant(m, 1, "followed_qp")
        word = Signal(TIMES)
        late = Signal(TIME_BITS)
        stored = Array(self.inside(f"dut.next_times[{k}]", TIMES) for k in range(2))
        m.d.comb += [word.eq(stored[followed]), late.eq(dut.now - word.next.ns)]
        mine = offered & (dut.o.p.packet.sqpn[0] == followed)
        self.check("no packet leaves early", ~mine | ~word.known | ~late[-1])
        waits = Signal(TIME_BITS)
        m.d.comb += waits.eq(word.next.ns - dut.now)
        self.cover("a packet leaves after a wait in the wheel", mine & self.once(
            m, word.known & ~waits[-1] & (waits != 0)))


class EngineOrderSpec(EngineSpec):
    """The same with one QP and without flushes, rejections and doorbells, for more cycles."""

    name = "pacer_order"
    proof = {"kind": "bounded", "bound": 31, "seconds": 600}
    unused, several = ("i_touch", "i_flush", "i_rejected", "all_stb"), False


SPECS = [WheelSpec, EngineSpec, EngineOrderSpec]
FAULTY = [
    *faulty(WheelSpec, [
        ("only QPs that are inside leave", "head_write.data.some.eq(enters)", "head_write.data.some.eq(1)"),
        ("none leaves its slot early", "(cursor != self.now)),", "(cursor != self.now + 1)),"),
        ("none is lost: a due QP, or one before it, leaves within 7 cycles",
         "after_write.data.eq(head.data)", "after_write.data.eq(0)"),
        ("a QP within reach is entered", "ahead[low:].any()", "ahead.any()"),
    ]),
    *faulty((EngineSpec, EngineOrderSpec), [
        ("the followed descriptor leaves in its turn", "packet.ends.eq(r.fits)", "packet.ends.eq(1)"),
    ]),
    *faulty(EngineOrderSpec, [
        ("the followed descriptor leaves in its turn", "list_.head.eq(pool.link)", "list_.head.eq(list_.head)"),
    ]),
    *faulty((EngineSpec, EngineOrderSpec), [
        ("a pool with space accepts", "self.full.eq(fresh[-1] & ~some)", "self.full.eq(fresh[0])", Pool),
    ]),
    *faulty(EngineSpec, [
        ("an idle pacer holds nothing", "active.eq(active + after - r.had)", "active.eq(active - r.had)"),
        ("no packet leaves early", "r.keep.eq(0), r.known.eq(1), r.at_once.eq(0)]",
         "r.keep.eq(0), r.known.eq(1), r.at_once.eq(1)]"),
    ]),
]
