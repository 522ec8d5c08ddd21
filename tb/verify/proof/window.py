"""Proof of the receive window: every PSN is recorded exactly once (invariant 1)."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Mux, Signal, Value, signed
from amaranth.lib import data

from weft.hdl.adamap.window.cum import CUM_BITS
from weft.hdl.adamap.window.slide import RUN_ON, STEP, MarkAndSlide, SlideLookahead
from weft.hdl.adamap.window.window import Window
from weft.hdl.contract.abi import HOLES_BITS
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import Verdict, WindowRequest
from weft.hdl.part.logic import thermometer_count
from weft.tb.verify.proof.faulty import faulty, named
from weft.tb.verify.proof.specification import Spec

QPS, BITS = 2, 64
CLASSIFY, EFFECT, CONTROL, SLIDE = range(4)     # states in source order
FURTHEST = 1 << 23      # largest distance of a packet ahead of the base
FORGOTTEN = 0b01        # highest bits of a distance so far ahead of the base that the PSN was passed a lap ago, if ever
NAMED = named(
    Window, "next_full, next_control, control_taken = Signal(), Signal(), Signal()",
    "row_index, row_known = Signal(index_width), Signal()",
    "request, control = [Signal(WindowRequest), Signal()]",
    "distance, moves, moved = Signal(24), Signal(), Signal(32)", "slides = Signal()",
    "verdict, mark, insert = [Signal(Verdict), Signal(bits), Signal()]",
    "psn, position, seal = [Signal(32), Signal(range(bits)), Signal()]")


class WindowSpec(Spec):
    """One PSN of one QP is followed, chosen arbitrarily, while any requests arrive for both QPs.

    The window starts in any state: at any base, with any bitmap, and with any history of the followed PSN if it is
    before the base. Then packets, probes and retransmissions of any PSN (24 bit, modulo) arrive at any rate, with any
    guard; hole runs and verdicts are taken at once or later. When 2^31 PSNs have passed the followed one, its number
    denotes a PSN of the next lap. The checks are proven together: one of them describes the row of the QP, wherever it
    is stored, and another the state of the packet that is being judged.
    """

    name = "window"
    block = NAMED
    proof = {"kind": "induction", "seconds": 300}

    def specify(self, m):
        m.submodules.dut = dut = self.block(preset("test").with_(qps=QPS, window_bits=BITS))
        self.free_members(dut, "i__payload", "i_control", "cum", "reorder_distance")
        reorder = self.constant(m, 7, "reorder")
        qpn, start = self.constant(m, 1, "some_qpn"), self.constant(m, 32, "start")
        offset = self.constant(m, 25, "some_offset")        # of the followed PSN, from the base at the start
        m.d.comb += dut.reorder_distance.eq(reorder)
        self.start_anywhere("dut.reorder")          # the distance is constant since before the first packet
        clamped = self.inside("dut.reorder", range(BITS)) + 1 == Mux(
            reorder > BITS, BITS, Mux(reorder == 0, 1, reorder))
        self.assume_first(clamped)

        # Rows. A PSN that is not in the bitmap was received, or is a hole, if it is before the base.
        row = data.StructLayout({"base": 32, "bitmap": BITS - 1, "holes": HOLES_BITS, "owed": 1})
        rows = Array(self.inside(f"dut.rows[{q}]", row) for q in range(QPS))
        was_received, was_hole, behind = Signal(name="received"), Signal(name="hole"), offset[-1]
        in_bitmap = (offset >= 1) & (offset < BITS) & (rows[qpn].bitmap >> (offset - 1)[:6])[0]
        self.start_anywhere("dut.rows", "received", "hole")
        self.assume_first(rows[qpn].base == start)
        self.assume_first(Mux(behind, was_received != was_hole, (was_received == in_bitmap) & ~was_hole))
        m.d.comb += [
            dut.i.p.qpn.eq(self.free(1, "qpn")), dut.i.p.psn.eq(self.free(24, "psn")),
            dut.i.p.rsn.eq(self.free(24, "rsn")), dut.i.p.probe.eq(self.free(1, "probe")),
            dut.i.p.retransmission.eq(self.free(1, "retransmission")), dut.i.p.ack_req.eq(self.free(1, "ack_req")),
            dut.i.p.psn_guard.eq(self.free(len(dut.i.p.psn_guard), "psn_guard")),
            dut.cum.eq(self.free(CUM_BITS, "cum")),
        ]

        # The followed PSN.
        at, newest, received, hole, far = Signal(32), Signal(32), Signal(), Signal(), Signal()
        m.d.comb += [at.eq(start + offset.as_signed()), far.eq((at - newest)[30:32] == FORGOTTEN),
                     received.eq(was_received & ~far), hole.eq(was_hole & ~far)]
        # Verdicts are in the order of requests: the queue holds the QP of each outstanding request.
        queue, filled = Signal(8), Signal(4)
        entering = dut.i.valid & dut.i.ready
        fresh = Signal()                   # a verdict not seen yet
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
        accepted = own & this & (verdict == Verdict.ACCEPT)
        with m.If(own):
            m.d.sync += [last.eq(dut.o.p.base), known.eq(1)]
        run = dut.o_run
        inside, covers = Signal(), Signal()
        runs = run.valid & run.ready & (run.p.qpn[0] == qpn) & (run.p.length != 0)
        m.d.comb += [inside.eq((at - run.p.psn)[:32] < run.p.length), covers.eq(runs & inside)]
        m.d.sync += [was_received.eq(received | accepted), was_hole.eq(hole | covers)]
        ahead, passed = Signal(signed(32)), Signal()
        m.d.comb += [ahead.eq(at - dut.o.p.base), passed.eq(ahead < 0)]
        has = Signal()                     # including this verdict
        m.d.comb += has.eq(received | accepted)

        self._kept(m, SimpleNamespace(
            dut=dut, rows=rows, qpn=qpn, at=at, has=has, hole=hole, fresh=fresh, own=own, queue=queue, filled=filled,
            last=last, known=known, reorder=reorder, clamped=clamped, newest=newest))
        self.check("a PSN is accepted at most once", ~(accepted & received))
        self.check("no PSN is both received and a hole", ~(has & hole) & ~(covers & has))
        self.check("a PSN becomes a hole at most once", ~(covers & hole))
        self.check("a PSN before the base is received or a hole", ~own | ~passed | has | hole)
        self.check("no PSN from the base on is a hole", ~own | passed | ~hole)
        self.check("a duplicate was received before", ~(own & this & (verdict == Verdict.DUPLICATE)) | received)
        self.check("a late PSN is before the base", ~(own & this & (verdict == Verdict.LATE)) | passed)
        self.check("the base never goes back", ~(own & known) | ((dut.o.p.base - last)[:32] < 1 << 31))
        self.check("the PSN at the base is not received", ~own | (ahead != 0) | ~has)
        self.check("no verdict without a request", ~fresh | (filled != 0))

        row_bits = 32 + BITS + HOLES_BITS + 1
        accepts, empty, first = Signal(), Signal(), Signal(init=1)      # of the followed PSN, in this run
        m.d.sync += [accepts.eq(accepts | accepted), first.eq(0)]
        with m.If(first):
            m.d.sync += empty.eq(rows[qpn].bitmap == 0)
        self.cover("a jump of 2**20 PSNs", covers & (run.p.length == 1 << 20))
        self.cover("a PSN received out of order is passed", empty & accepts & own & passed & (offset == 2))
        self.cover("a duplicate", empty & accepts & own & this & (verdict == Verdict.DUPLICATE))
        self.cover("a full 32-bit wrap", own & accepts & passed & (at < 4) & (start > 0xFFFFFFF0))
        self.cover("a hole is received late", hole & own & this & (verdict == Verdict.LATE))
        self.cover("a PSN received before the run is passed", received & own & passed & (offset == 2))
        self.cover("the window slides by more than one step, over received PSNs and holes", covers & (
            run.p.length > 8) & Cat(self.inside("dut.current.o", row_bits)[32:32 + BITS]).any())

    def _kept(self, m, w):
        """Check the row of the QP, in memory and in the pipeline, and the state of the packet that is being judged."""
        row_shape = data.StructLayout({"base": 32, "bitmap": BITS, "holes": HOLES_BITS, "owed": 1})
        shapes = {"next_full_q": 1, "next_request": WindowRequest, "request_q": WindowRequest,
                  "row_index_q": 1, "row_known_q": 1, "same": 1, "fetched": row_shape, "verdict_q": Verdict,
                  "mark_q": BITS, "marks": 1, "insert_q": 1, "psn_q": 32, "position_q": range(BITS), "seal_q": 1,
                  "slides_q": 1, "distance_q": 24, "limited": STEP, "active": 1, "fsm_state": 2,
                  "slid": 1, "inserted": 1, "some": 1,
                  "low_bits.ahead": STEP, "low_bits.steps": STEP, "low_bits.end": range(STEP + 1), "low_bits.none": 1,
                  "low_bits.run": range(RUN_ON + 1), "low_bits.gap": 1}
        d = SimpleNamespace(**{name.removesuffix("_q").removeprefix("low_bits."): self.inside(f"dut.{name}", shape)
                               for name, shape in shapes.items()},
                            row=self.inside("dut.current.o", row_shape), slide=self.inside("dut.sliding.o", 24))
        d.mark &= d.marks.replicate(BITS)
        mem, row, state = w.rows[w.qpn], d.row, d.fsm_state
        current, sliding = Signal(), Signal()
        m.d.comb += [current.eq(d.row_known & (d.row_index == w.qpn)), sliding.eq(current & (state == SLIDE)),
                     w.newest.eq(Mux(sliding, row.base, mem.base))]
        moved = Signal(32)          # since the packet was classified
        m.d.comb += moved.eq(row.base - mem.base)
        eff = Signal()              # received, or marked in the row without a verdict yet
        its = sliding & (d.verdict == Verdict.ACCEPT) & (d.psn == w.at)
        m.d.comb += eff.eq(w.has | (its & ~d.insert))
        owner = Signal()
        m.d.sync += owner.eq(d.row_index)
        self.check("the row of a QP holds the received PSNs", [
            Mux(sliding, self._row_holds(m, False, row.base, row.bitmap, w.at, eff, w.hole),
                self._row_holds(m, True, mem.base, mem.bitmap << 1, w.at, w.has, w.hole)),
            ~current | sliding | ((row.base == mem.base) & (row.bitmap == mem.bitmap << 1)),
            ~d.next_full | (d.next_request.qpn[0] != w.qpn) | current
            | ((d.fetched.base == mem.base) & (d.fetched.bitmap == mem.bitmap << 1)),
            ~w.known | w.own | (w.last == mem.base), ~w.own | (w.dut.o.p.base == mem.base)])
        self.check("requests get verdicts in order", [state != CONTROL, (state == CLASSIFY) | d.active,
            ~d.active | (d.row_known & (d.request.qpn[0] == d.row_index)), ~w.fresh | (state == CLASSIFY),
            w.filled == w.fresh + d.active + d.next_full, ~w.fresh | (w.queue[0] == owner),
            ~d.active | (w.queue.bit_select(w.fresh, 1) == d.row_index),
            ~d.active | (state != CLASSIFY) | (d.distance == (d.request.psn - d.row.base)[:24]),
            ~d.next_full | (w.queue.bit_select(Value.cast(w.fresh + d.active), 1) == d.next_request.qpn[0]),
            ~d.next_full | (d.same == (d.row_known & (d.row_index == d.next_request.qpn[0])))])
        self.check("the effect of a packet follows from its position in the window", [
            w.clamped, *((state != SLIDE) | (d.limited[k] == (d.slide > k)) for k in range(STEP)),
            *(~current | (state != EFFECT) | case for case in self._classified(m, d, row, w)),
            *(~current | (state != SLIDE) | case for case in self._slid(m, d, row, moved, w, its))])

        self.check("the lookahead of the lowest bits is correct", [~current | (state != EFFECT) | ~d.slid,
            d.ahead[1:] & ~d.ahead[:-1] == 0, (state != SLIDE) | (d.steps[1:] & ~d.steps[:-1] == 0),
            d.end == thermometer_count(d.steps), (state != SLIDE) | d.slid | (d.steps & ~d.limited == 0),
            d.run == Mux(d.some, thermometer_count(d.ahead[:RUN_ON]), 0),
            ~current | (state != EFFECT) | (d.some == (row.bitmap | d.mark)[0]),
            ~sliding | d.slid | ~row.bitmap[0] | d.some,
            *(~current | case for case in self._known(d, row.bitmap[:STEP], (
                (state == EFFECT), sliding & ~d.slid & d.limited[0], sliding & ~d.slid))),
            ~sliding | d.slid | Mux(d.inserted, row.bitmap != 0, d.none == (row.bitmap == 0))])

    def _known(self, d, low, when):
        """Return the invariant of the lookahead: exact before and during the slide, then a lower bound of the run."""
        effect, slides, runs_on = when
        again = low[1:] & ~low[:-1]
        ahead = Cat(low[1:k + 1].all() for k in range(1, STEP))
        return [~(effect | slides) | ((d.none == (d.row.bitmap == 0)) & (d.ahead[1:] == ahead)),
                ~slides | (d.steps == (d.limited & Cat(~again[:k].any() if k else 1 for k in range(STEP)))),
                ~slides | (d.gap == (d.limited & ~low).any()),
                ~runs_on | ((d.ahead[1:] & ~ahead) == 0), ~(effect | runs_on) | d.ahead[0]]

    def _row_holds(self, m, rest, base, bitmap, at, received, hole):
        """Return whether a row is consistent with received and hole; at rest, its base was not received."""
        name = "rest" if rest else "slid"
        distance, bit = Signal(signed(32), name=f"distance_{name}"), Signal(name=f"bit_{name}")
        m.d.comb += [distance.eq(at - base), bit.eq((bitmap >> distance[:6])[0])]
        ahead = ~hole & (received == ((distance < BITS) & bit))
        return Mux(distance < 0, received != hole, ahead) & (~bit | (distance != 0) if rest else 1)

    def _classified(self, m, d, row, w):
        """Return the required effects of a packet, by its distance from the base."""
        distance, ahead, reorder = Signal(signed(24)), Signal(BITS), Signal(range(BITS + 1))
        m.d.comb += [distance.eq(d.request.psn - row.base[:24]),
                     ahead.eq(Mux(distance < BITS, row.bitmap >> distance[:6], 0)),
                     reorder.eq(Mux(w.reorder > BITS, BITS, Mux(w.reorder == 0, 1, w.reorder)))]
        marks = ~d.insert & (d.slide == 0) & (distance < BITS) & (d.mark == (1 << distance[:6])[:BITS])
        inserts = (d.insert & (d.mark == 0) & (distance >= reorder) & (d.slide == distance - reorder + 1)
                   & (d.position == distance[:6]))
        probes = d.seal & ~d.insert & (d.mark == 0) & (d.slides == (distance > 0)) & (~d.slides | (d.slide == distance))
        return [
            ((d.verdict != Verdict.ACCEPT) | ((distance >= 0) & ~ahead[0] & Mux(d.insert, inserts, marks))),
            ((d.verdict != Verdict.PROBE) | probes),
            ((d.verdict != Verdict.DUPLICATE) | ((distance >= 0) & ahead[0])),
            ((d.verdict != Verdict.LATE) | (distance < 0)),
            ((d.verdict == Verdict.ACCEPT) | (d.verdict == Verdict.PROBE) | (
             (d.mark & ~row.bitmap == 0) & ~d.insert & ~d.seal & ~d.slides)),
            d.psn == (row.base + distance)[:32], (d.verdict == Verdict.PROBE) | (d.slides == d.insert),
        ]

    def _slid(self, m, d, row, moved, w, its):
        """Return the invariant of the remaining work while the window slides."""
        distance, beyond = Signal(32, name="distance_left"), Signal(32)
        m.d.comb += [distance.eq(d.psn - row.base), beyond.eq(FURTHEST - moved)]
        inserts = ((distance < FURTHEST) & (distance >= d.slide)
                   & (distance - d.slide < BITS) & (d.position == distance[:6])
                   & ((distance >= BITS) | ~(row.bitmap >> distance[:6])[0]))
        return [
            (d.verdict != Verdict.ACCEPT) | ((distance + moved)[:32] < FURTHEST), d.mark == 0, moved <= FURTHEST,
            d.slide <= beyond,
            (beyond >= BITS) | ((row.bitmap >> beyond[:6]) == 0),
            (d.verdict == Verdict.ACCEPT) | ((d.verdict == Verdict.PROBE) & ~d.insert),
            ~d.insert | inserts, (d.verdict != Verdict.ACCEPT) | d.insert | (d.slide == 0),
            ~its | (~w.has & ~w.hole),
            (d.verdict != Verdict.PROBE) | d.seal | ~(d.slid | d.limited[0] | row.bitmap[0]),
        ]


SPECS = [WindowSpec]
FAULTY = faulty(WindowSpec, [
    ("the row of a QP holds the received PSNs", "same.eq(row_known & (row_index", "same.eq(0 & (row_index"),
    ("requests get verdicts in order",
     "next_full.eq(0), request.eq(next_request)", "next_full.eq(0), request.eq(self.i.payload)"),
    ("the effect of a packet follows from its position in the window",
     "Mux(beyond, distance - reorder, 0)", "Mux(beyond, distance - reorder + 1, 0)"),
    ("a PSN is accepted at most once", "received.eq((distance < bits) & (row.bitmap >> place)[0])", "received.eq(0)"),
    ("a PSN is accepted at most once",
     "(self.bitmap | self.mark) >> self.run", "self.bitmap >> self.run", MarkAndSlide),
    ("no PSN is both received and a hole", "~again[:k].any() for k", "Const(1, 1) for k", SlideLookahead),
    ("the lookahead of the lowest bits is correct", "low[1:k + 1].all()", "low[1:k].all()", SlideLookahead),
    ("a PSN becomes a hole at most once", "run.psn.eq(row.base + step.skip)", "run.psn.eq(row.base - 1)"),
    ("a PSN before the base is received or a hole",
     "moved.eq(row.base + low_bits.run)", "moved.eq(row.base + low_bits.run + 1)"),
    ("a PSN before the base is received or a hole",
     "with m.If(~slid & (self.o_run.ready | ~low_bits.gap)):", "with m.If(~slid):"),
    ("no PSN from the base on is a hole", "self.o.p.base.eq(result.base)", "self.o.p.base.eq(result.base - 1)"),
    ("a duplicate was received before", "received.eq((distance < bits) & (row.bitmap >> place)[0])",
     "received.eq((distance < bits) & ((row.bitmap >> place) != 0))"),
    ("a late PSN is before the base", "behind.eq(distance < 0)", "behind.eq(distance <= 1)"),
    ("the base never goes back", "self.o.p.base.eq(result.base)", "self.o.p.base.eq(result.base - request.ack_req)"),
    ("the PSN at the base is not received",
     "(self.bitmap | self.mark) >> self.run", "self.bitmap >> self.run", MarkAndSlide),
    ("no verdict without a request", "active.eq(next_full)", "active.eq(1)"),
])
