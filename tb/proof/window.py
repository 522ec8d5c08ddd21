"""What is proven of the receive window: every PSN is recorded exactly once (invariant 1)."""

from amaranth.hdl import Mux, Signal, signed

from weft.hdl.adamap.control import ControlKind
from weft.hdl.adamap.cum import CUM_BITS
from weft.hdl.adamap.window import Window
from weft.hdl.layouts import Verdict
from weft.hdl.params import preset
from weft.tb.proof.broken import Broken, mutant
from weft.tb.proof.specification import Spec

QPS = 2


class WindowSpec(Spec):
    """One PSN of one QP is followed, whichever it is, while anything arrives for both QPs.

    One QP is created first, at any PSN; then packets, probes and retransmissions of any PSN (24 bit, modulo)
    arrive, as fast as they can or slower, and hole runs and judgements are taken at once or later.

    Parameters
    ----------
    bits, depth : int
        Width of the window; cycles looked at.
    """

    name = "window"
    block = Window
    loaded = False

    def __init__(self, block=None, *, bits=64, depth=13):
        super().__init__(block)
        self.bits, self.depth = bits, depth

    def specify(self, m):
        m.submodules.dut = dut = self.block(preset("test").with_(qps=QPS, window_bits=self.bits))
        self.free_members(dut, "i__payload", "i_control", "cum", "reorder_distance")
        reorder = self.constant(m, 7, "reorder")
        qpn, start = self.constant(m, 1, "some_qpn"), self.constant(m, 32, "start")
        offset = self.constant(m, 24, "some_offset")        # of the PSN followed, from the first one
        m.d.comb += dut.reorder_distance.eq(reorder)

        # Creates the QP, then packets; the other QP has lived before, and expects PSN 0.
        op = dut.i_control
        created, bitmap = Signal(), Signal(64)
        m.d.comb += [op.valid.eq(~created), op.p.kind.eq(ControlKind.CREATE.value), op.p.qpn.eq(qpn),
                     op.p.psn.eq(start)]
        with m.If(op.valid & op.ready):
            m.d.sync += created.eq(1)
        received, hole = Signal(), Signal()
        if self.loaded:
            m.d.comb += [bitmap.eq(self.constant(m, 64, "bitmap") & ~1), op.p.line.eq(bitmap[:58]),
                         op.p.generation.eq(bitmap[58:])]
            was_received = self.constant(m, 1, "was_received")
            with m.If(~created):
                with m.If(offset[-1]):
                    m.d.sync += [received.eq(was_received), hole.eq(~was_received)]
                with m.Else():
                    m.d.sync += received.eq((offset < 64) & (bitmap >> offset[:6])[0])
        self.assume(~dut.i.valid | created)
        m.d.comb += [
            dut.i.p.qpn.eq(self.free(1, "qpn")), dut.i.p.psn.eq(self.free(24, "psn")),
            dut.i.p.rsn.eq(self.free(24, "rsn")), dut.i.p.probe.eq(self.free(1, "probe")),
            dut.i.p.retransmission.eq(self.free(1, "retransmission")), dut.i.p.ack_req.eq(self.free(1, "ack_req")),
            dut.cum.eq(self.free(CUM_BITS, "cum")),
        ]

        # The PSN followed.
        at = Signal(32)
        m.d.comb += at.eq(start + (offset.as_signed() if self.loaded else offset))
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

        self.cover("a hole that later turns out late", hole & own & this & (verdict == Verdict.LATE))
        self.cover("received out of order, then passed", received & own & (passed > 0) & (offset == 2))
        self.cover("a jump of 2**20 PSNs", covers & (run.p.length == 1 << 20))
        self.cover("a duplicate", own & this & (verdict == Verdict.DUPLICATE))
        self.cover("a full 32-bit wrap", own & received & (passed > 0) & (at < 4) & (start > 0xFFFFFFF0))


class LoadedWindowSpec(WindowSpec):
    """The same from any state of the window: any bitmap, any base, any past of the PSN followed.

    A copy of the block whose CREATE takes the bitmap from bits that it does not use otherwise starts it there.
    """

    name = "window_any_state"
    loaded = True

    def __init__(self, block=None, **options):
        loads = ("result.bitmap.eq(0)", "result.bitmap.eq(Cat(op.line, op.generation))")
        imports = ("import Const, Module", "import Cat, Const, Module")
        super().__init__(mutant(block or Window, imports, loads), **{"depth": 12, **options})


SPECS = [WindowSpec, LoadedWindowSpec]
BOTH = (WindowSpec, LoadedWindowSpec)
BROKEN = [
    Broken(BOTH, "received at most once", ("received.eq(inside & shifted[0])", "received.eq(0)")),
    Broken(WindowSpec, "received at most once", ("marked.eq(row.bitmap | mark)", "marked.eq(row.bitmap)")),
    Broken(BOTH, "never received and a hole",
           ("end = Mux(next_received < limit, next_received, limit)", "end = limit")),
    Broken(BOTH, "a hole at most once", ("run.psn.eq(row.base + step.skip)", "run.psn.eq(row.base - 1)")),
    Broken(BOTH, "behind the base: received or a hole",
           ("with m.If(self.o_run.ready | (step.holes == 0)):", "with m.If(1):")),
    Broken(BOTH, "ahead of the base: no hole", ("step.holes.eq(end - first_missing)", "step.holes.eq(limit)")),
    Broken(BOTH, "a duplicate was received",
           ("received.eq(inside & shifted[0])", "received.eq(inside & (shifted != 0))")),
    Broken(BOTH, "late means behind the base", ("behind.eq(distance < 0)", "behind.eq(distance <= 0)")),
    Broken(BOTH, "the base never goes back",
           ("row.base.eq(row.base + step.advance)", "row.base.eq(row.base - step.advance)")),
    Broken(BOTH, "the base has not been received itself", ("with m.Elif(row.bitmap[0]):", "with m.Elif(0):")),
    Broken(BOTH, "judgements are as many as requests", ("active.eq(next_full)", "active.eq(1)")),
]
