"""What is proven of the receive window: every PSN is recorded exactly once (invariant 1)."""

from amaranth.hdl import Array, Mux, Signal, signed
from amaranth.lib import data

from weft.hdl.abi import HOLES_BITS
from weft.hdl.adamap.cum import CUM_BITS
from weft.hdl.adamap.window import Window
from weft.hdl.layouts import Verdict
from weft.hdl.params import preset
from weft.tb.proof.broken import Broken
from weft.tb.proof.specification import Spec

QPS = 2


class WindowSpec(Spec):
    """One PSN of one QP is followed, whichever it is, while anything arrives for both QPs.

    The window starts empty, at any base, and with any past of the PSN followed behind it. Then packets, probes and
    retransmissions of any PSN (24 bit, modulo) arrive, as fast as they can or slower, and hole runs and judgements are
    taken at once or later. In 9 cycles, of which two packets of the same PSN take 6 (see the covers), each packet meets
    what the one before left in the row, slides and waits; what a window may hold after longer runs is where
    :class:`AnyWindowSpec` starts.
    """

    name = "window"
    block = Window
    bits, depth, empty = 64, 9, True

    def specify(self, m):
        m.submodules.dut = dut = self.block(preset("test").with_(qps=QPS, window_bits=self.bits))
        self.free_members(dut, "i__payload", "i_control", "cum", "reorder_distance")
        reorder = self.constant(m, 7, "reorder")
        qpn, start = self.constant(m, 1, "some_qpn"), self.constant(m, 32, "start")
        offset = self.constant(m, 25, "some_offset")        # of the PSN followed, from the base at the start
        m.d.comb += dut.reorder_distance.eq(reorder)

        # The rows; what is not in the bitmap was received before, or is a hole, if it lies behind the base.
        row = data.StructLayout({"base": 32, "bitmap": self.bits - 1, "holes": HOLES_BITS, "owed": 1})
        rows = Array(self.inside(f"dut.rows[{q}]", row) for q in range(QPS))
        received, hole, behind = Signal(name="received"), Signal(name="hole"), offset[-1]
        in_bitmap = (offset >= 1) & (offset < self.bits) & (rows[qpn].bitmap >> (offset - 1)[:6])[0]
        self.start_anywhere("dut.rows", "received", "hole")
        self.assume_first(rows[qpn].base == start)
        self.assume_first(Mux(behind, received != hole, (received == in_bitmap) & ~hole))
        if self.empty:
            self.assume_first(rows[qpn].bitmap == 0)
        m.d.comb += [
            dut.i.p.qpn.eq(self.free(1, "qpn")), dut.i.p.psn.eq(self.free(24, "psn")),
            dut.i.p.rsn.eq(self.free(24, "rsn")), dut.i.p.probe.eq(self.free(1, "probe")),
            dut.i.p.retransmission.eq(self.free(1, "retransmission")), dut.i.p.ack_req.eq(self.free(1, "ack_req")),
            dut.cum.eq(self.free(CUM_BITS, "cum")),
        ]

        # The PSN followed.
        at = Signal(32)
        m.d.comb += at.eq(start + offset.as_signed())
        # Judgements come in the order of requests: whose is this one?
        queue, filled = Signal(8), Signal(4)
        entering = dut.i.valid & dut.i.ready
        fresh = Signal()                   # a judgement not seen yet
        waiting = Signal()
        m.d.sync += waiting.eq(dut.o.valid & ~dut.o.ready)
        m.d.comb += fresh.eq(dut.o.valid & ~waiting)
        rest, level = Signal(8), Signal(4)
        m.d.comb += [rest.eq(Mux(fresh, queue >> 1, queue)), level.eq(filled - fresh)]
        m.d.sync += [queue.eq(rest), filled.eq(level + entering)]
        with m.If(entering):
            m.d.sync += queue.bit_select(level, 1).eq(dut.i.p.qpn[0])
        own = Signal()
        m.d.comb += own.eq(fresh & (queue[0] == qpn) & (filled != 0))
        verdict = dut.o.p.verdict
        this = dut.o.p.psn == at
        last, known = Signal(32), Signal()
        with m.If(own):
            m.d.sync += [last.eq(dut.o.p.base), known.eq(1)]
            with m.If(this & (verdict == Verdict.ACCEPT)):
                m.d.sync += received.eq(1)
        run = dut.o_run
        inside, covers = Signal(), Signal()
        runs = run.valid & run.ready & (run.p.qpn[0] == qpn) & (run.p.length != 0)
        m.d.comb += [inside.eq((at - run.p.psn)[:32] < run.p.length), covers.eq(runs & inside)]
        with m.If(covers):
            m.d.sync += hole.eq(1)
        passed, before = Signal(signed(32)), Signal(signed(32))
        m.d.comb += [passed.eq(dut.o.p.base - at), before.eq(last - at)]
        accepted = own & this & (verdict == Verdict.ACCEPT)
        has = Signal()                     # with this very judgement
        m.d.comb += has.eq(received | accepted)

        bound = {"bound": self.depth, "seconds": 900}
        self.check("received at most once", ~(accepted & received), **bound)
        self.check("never received and a hole", ~(has & hole) & ~(covers & has), **bound)
        self.check("a hole at most once", ~(covers & hole), **bound)
        self.check("behind the base: received or a hole", ~own | (passed <= 0) | has | hole, **bound)
        self.check("ahead of the base: no hole", ~own | (passed > 0) | ~hole, **bound)
        self.check("a duplicate was received", ~(own & this & (verdict == Verdict.DUPLICATE)) | received, **bound)
        self.check("late means behind the base", ~(own & this & (verdict == Verdict.LATE)) | (passed > 0), **bound)
        self.check("the base never goes back", ~(own & known) | ((dut.o.p.base - last)[:32] < 1 << 31), **bound)
        self.check("the base has not been received itself", ~own | (passed != 0) | ~has, **bound)
        self.check("judgements are as many as requests", ~fresh | (filled != 0), **bound)

        accepts = Signal()      # of the PSN followed, in this run
        m.d.sync += accepts.eq(accepts | accepted)
        self.cover("a jump of 2**20 PSNs", covers & (run.p.length == 1 << 20))
        if self.empty:
            self.cover("received out of order, then passed", accepts & own & (passed > 0) & (offset == 2))
            self.cover("a duplicate", accepts & own & this & (verdict == Verdict.DUPLICATE))
            self.cover("a full 32-bit wrap", own & accepts & (passed > 0) & (at < 4) & (start > 0xFFFFFFF0))
        else:
            self.cover("a hole turns out late", hole & own & this & (verdict == Verdict.LATE))
            self.cover("received before, then passed", received & own & (passed > 0) & (offset == 2))


class AnyWindowSpec(WindowSpec):
    """The same from any state of the window, any bitmap, too: 6 cycles, in which one packet is judged."""

    name = "window_any_state"
    depth, empty = 6, False


SPECS = [WindowSpec, AnyWindowSpec]
BOTH = (WindowSpec, AnyWindowSpec)
BROKEN = [
    Broken(BOTH, "received at most once", ("received.eq(inside & shifted[0])", "received.eq(0)")),
    Broken(BOTH, "received at most once", ("marked.eq(row.bitmap | mark)", "marked.eq(row.bitmap)")),
    Broken(BOTH, "never received and a hole",
           ("end = Mux(next_received < limit, next_received, limit)", "end = limit")),
    Broken(BOTH, "a hole at most once", ("run.psn.eq(row.base + step.skip)", "run.psn.eq(row.base - 1)")),
    Broken(BOTH, "behind the base: received or a hole",
           ("ones.eq(leading(marked[:RUN_ON], 1))", "ones.eq(leading(marked[:RUN_ON], 1) + 1)")),
    Broken(WindowSpec, "behind the base: received or a hole",
           ("with m.If(self.o_run.ready | (step.holes == 0)):", "with m.If(1):")),
    Broken(BOTH, "ahead of the base: no hole", ("self.o.p.base.eq(result.base)", "self.o.p.base.eq(result.base - 1)")),
    Broken(BOTH, "a duplicate was received",
           ("received.eq(inside & shifted[0])", "received.eq(inside & (shifted != 0))")),
    Broken(BOTH, "late means behind the base", ("behind.eq(distance < 0)", "behind.eq(distance <= 0)")),
    Broken(BOTH, "the base never goes back",
           ("self.o.p.base.eq(result.base)", "self.o.p.base.eq(result.base - request.ack_req)")),
    Broken(BOTH, "the base has not been received itself", ("marked.eq(row.bitmap | mark)", "marked.eq(row.bitmap)")),
    Broken(BOTH, "judgements are as many as requests", ("active.eq(next_full)", "active.eq(1)")),
]
