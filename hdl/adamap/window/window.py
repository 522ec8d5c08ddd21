"""Receive-side PSN window of every QP: judges packets and finds the holes."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...contract.abi import HOLES_BITS
from ...contract.params import CardParams, exact_log2
from ...contract.wire import PSN_OUTSTANDING_LOG2
from ...part.counter_ports import count_outputs
from ...part.layouts import HoleRun, MatchRequest, Verdict, WindowRequest, WindowVerdict
from ...part.logic import one_hot, sum_of_three, thermometer
from ...part.select import LateMux
from .control import ControlKind, ControlOp
from .cum import CUM_BITS
from .slide import RUN_ON, STEP, MarkAndSlide, SlideLookahead, SlideStep


class Window(wiring.Component):
    """Bitmap windows of all QPs.

    Original packets are marked; PSNs that leave the reorder distance without having been received leave as hole
    runs. Retransmissions and probes are passed to the matcher. A packet that is further ahead of the base than the
    request's ``psn_guard`` allows changes nothing. One packet per 2 cycles, in order, also if all are for one QP;
    latency 5 cycles. While a window slides, one step (one run, 16 PSNs, or the rest of a jump) every other cycle,
    input stalled.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(WindowRequest))
    o : Out(stream.Signature(WindowVerdict))
        In request order.
    i_control : In(stream.Signature(ControlOp))
        CREATE starts the window at ``psn``; DESTROY sends a run of length 0 without ``seal`` (discard); QUERY
        leaves the results at ``query_base`` and ``query_holes``.
    o_run : Out(stream.Signature(HoleRun))
    o_match : Out(stream.Signature(MatchRequest))
        ``ready`` is ignored: a request is sent only if ``match_space`` was high.
    unmatched : Out(1)
        There is no space for the request at ``o_match``: the verdict is UNMATCHED, or PROBE.
    match_space : In(1)
        For the header at ``o_match``, valid or not.
    row_en, row_index : Out
        Reads the table below; its data comes a cycle later.
    cum : In(CUM_BITS)
        Posted cumulative PSN.
    reorder_distance : In(32)
        Clamped to 1 .. window_bits.
    count_holes : Out(24)
    count_window_stall_cycles : Out(1)
    idle : Out(1)

    Notes
    -----
    A cumulative PSN newer than the window's base has no effect ahead of the base.
    """

    COUNTS = {"holes": 24, "window_stall_cycles": 1}

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(WindowRequest)),
            "o": Out(stream.Signature(WindowVerdict)),
            "i_control": In(stream.Signature(ControlOp)),
            "query_base": Out(32), "query_holes": Out(32),
            "o_run": Out(stream.Signature(HoleRun)),
            "o_match": Out(stream.Signature(MatchRequest)),
            "unmatched": Out(1),
            "match_space": In(1),
            "row_en": Out(1), "row_index": Out(params.qpn_width),
            "cum": In(CUM_BITS),
            "reorder_distance": In(32),
            **count_outputs(self.COUNTS),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bits = self.params.window_bits
        # At rest the base is missing, so its bit is not stored.
        kept_shape = data.StructLayout({"base": 32, "bitmap": bits - 1, "holes": HOLES_BITS, "owed": 1})
        m.submodules.rows = rows = Memory(shape=kept_shape, depth=self.params.qps, init=[])
        read, write = [rows.read_port(), rows.write_port()]
        ahead = self._fetch(m, read)
        now = self._load(m, ahead)
        seen = self._classify(m, now)
        self._decide(m, now, write)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        self._step(m, now, seen)

        load, next_full = now.load, ahead.next_full
        active = Signal()
        with m.If(load):
            m.d.sync += active.eq(next_full)

        # `result` is equal to the row unless something changes it.
        m.d.comb += now.current.early_en.eq(1)
        with m.FSM():
            self._take(m, now, seen, active)
            self._effect(m, now, write)
            self._slide(m, now, write)
            self._control(m, now, ahead, write, active)

        m.d.comb += self.idle.eq(~active & ~next_full & ~self.i.valid & ~self.o.valid)
        return m

    @property
    def _row_shape(self):
        """Window of a QP: base, bitmap of received PSNs, number of holes so far, and a pending report."""
        return data.StructLayout({"base": 32, "bitmap": self.params.window_bits, "holes": HOLES_BITS, "owed": 1})

    def _fetch(self, m, read):
        """Build the first stage: a request or control operation whose row is being read. Return its signals."""
        index_width = self.params.qpn_width
        fetched = Signal(self._row_shape)
        m.d.comb += [
            fetched.base.eq(read.data.base), fetched.bitmap.eq(read.data.bitmap << 1),
            fetched.holes.eq(read.data.holes), fetched.owed.eq(read.data.owed),
        ]

        next_full, next_control, control_taken = Signal(), Signal(), Signal()
        next_request = Signal(WindowRequest)
        # `take_control` is a cycle late, so that `ready` depends on registers only
        take_control, accept = Signal(), Signal()
        m.d.sync += take_control.eq(self.i_control.valid & ~control_taken & ~(take_control & accept))
        m.d.comb += [
            accept.eq(~next_full & (self.i.valid | take_control)),
            self.i.ready.eq(~next_full & ~take_control),
            self.row_en.eq(accept),
            self.row_index.eq(Mux(take_control, self.i_control.p.qpn, self.i.p.qpn)),
            read.en.eq(accept), read.addr.eq(self.row_index),
        ]
        row_index, row_known = Signal(index_width), Signal()
        same = Signal()     # `next_request` is for the current row
        with m.If(accept):
            # the current row stays until this request replaces it
            m.d.sync += same.eq(row_known & (row_index == self.row_index))
            m.d.sync += [next_full.eq(1), next_control.eq(take_control), next_request.eq(self.i.payload)]
            with m.If(take_control):
                m.d.sync += [control_taken.eq(1), next_request.qpn.eq(self.i_control.p.qpn),
                             next_request.generation.eq(self.i_control.p.generation)]
        return SimpleNamespace(
            next_full=next_full, next_control=next_control, next_request=next_request, control_taken=control_taken,
            fetched=fetched, row_index=row_index, row_known=row_known, same=same)

    def _load(self, m, ahead):
        """Build the second stage, whose row is the newest of its QP even while idle, so the same QP may follow at once.

        Return its signals, to which :meth:`_decide` and :meth:`_step` add.
        """
        next_full, next_control, next_request = ahead.next_full, ahead.next_control, ahead.next_request
        fetched, row_index, row_known, same = ahead.fetched, ahead.row_index, ahead.row_known, ahead.same
        bits, row_shape = self.params.window_bits, self._row_shape
        m.submodules.current = current = LateMux(row_shape, other=True)
        row = current.o
        request, control = [Signal(WindowRequest), Signal()]
        too_far = Signal(PSN_OUTSTANDING_LOG2)      # bits that a forward distance must not have
        load = Signal()
        result = Signal(row_shape)
        m.submodules.low_bits = low_bits = SlideLookahead(bits)
        m.submodules.run_on = run_on = MarkAndSlide(bits)
        # Distance of the packet from the base of its window; from the next base if the window moves in this cycle.
        distance, moves, moved = Signal(24), Signal(), Signal(32)
        m.d.comb += moved.eq(row.base + low_bits.run)
        with m.If(load & next_full):
            m.d.sync += distance.eq(Mux(
                ~same, next_request.psn - fetched.base, Mux(
                    moves, ~sum_of_three(24, ~next_request.psn, row.base[:24], low_bits.run),
                    next_request.psn - row.base)))
            guards = (next_request.psn_guard >= PSN_OUTSTANDING_LOG2 - k for k in range(PSN_OUTSTANDING_LOG2))
            m.d.sync += [next_full.eq(0), request.eq(next_request), control.eq(next_control), too_far.eq(Cat(guards)),
                         row_index.eq(next_request.qpn), row_known.eq(1)]
        m.d.comb += [current.early.eq(result), current.other_en.eq(load & next_full & ~same), current.other.eq(fetched)]
        return SimpleNamespace(
            current=current, row=row, row_index=row_index, request=request, control=control, too_far=too_far,
            load=load, result=result, low_bits=low_bits, run_on=run_on, distance=distance, moves=moves, moved=moved)

    def _classify(self, m, now):
        """Return the meaning of the request for its window; combinational."""
        row, request, too_far, distance = now.row, now.request, now.too_far, now.distance.as_signed()
        bits = self.params.window_bits
        seen = Signal(data.StructLayout({
            "verdict": Verdict, "psn": 32, "distance": 24, "mark": bits, "marks": 1, "first": 1,
            "slide": 24, "insert": 1, "seal": 1, "slides": 1}))
        of_cum, beyond_cum = Signal(24), Signal(24)
        place, reorder = distance[:exact_log2(bits)], Signal(range(bits), name="reorder")   # `reorder`: distance - 1
        behind, far, stale, beyond, received, ahead = (Signal(name=n) for n in (
            "behind", "far", "stale", "beyond", "received", "ahead"))
        m.d.comb += [
            of_cum.eq(self.cum - row.base[:24]), beyond_cum.eq(request.psn - self.cum),
            seen.psn.eq(row.base + distance),
            seen.distance.eq(distance),
            behind.eq(distance < 0),
            far.eq(~behind & (distance & too_far).any()),
            stale.eq(behind & (~of_cum[-1] | beyond_cum[-1])),      # all three are signed, 24 bits
            received.eq((distance < bits) & (row.bitmap >> place)[0]),
            ahead.eq(~behind & ~far & ~request.probe & ~request.retransmission), beyond.eq(distance > reorder),
            # The bit of a duplicate is set already. `received` is the latest signal.
            seen.mark.eq(one_hot(1, place, bits)), seen.marks.eq(ahead & ~beyond),
            seen.first.eq((distance == 0) & ~request.probe & ~request.retransmission),      # the packet is at the base
            # valid if the window slides
            seen.slide.eq(Mux(request.probe, distance, Mux(beyond, distance - reorder, 0))),
        ]
        m.d.sync += reorder.eq(Mux(self.reorder_distance > bits, bits - 1,
                                   Mux(self.reorder_distance == 0, 0, self.reorder_distance - 1)))
        with m.If(far):
            m.d.comb += seen.verdict.eq(Verdict.FAR)
        with m.Elif(request.probe):
            m.d.comb += [seen.verdict.eq(Verdict.PROBE), seen.seal.eq(1),
                         seen.slides.eq(~behind & (request.psn != row.base[:24]))]
        with m.Elif(stale):
            m.d.comb += seen.verdict.eq(Verdict.STALE)
        with m.Elif(request.retransmission):
            with m.If(~behind):
                m.d.comb += seen.verdict.eq(Verdict.STALE)
            with m.Else():
                m.d.comb += seen.verdict.eq(Verdict.MATCH)
        with m.Elif(behind):
            m.d.comb += seen.verdict.eq(Verdict.LATE)
        with m.Elif(received):
            m.d.comb += seen.verdict.eq(Verdict.DUPLICATE)
        with m.Else():
            m.d.comb += [seen.verdict.eq(Verdict.ACCEPT), seen.seal.eq(request.ack_req), seen.insert.eq(beyond),
                         seen.slides.eq(beyond)]
        return seen

    def _decide(self, m, now, write):
        """Build the next row and the outputs of a packet; the states enable them."""
        row, request, result, low_bits, run_on = now.row, now.request, now.result, now.low_bits, now.run_on
        bits, row_index, moves, moved = self.params.window_bits, now.row_index, now.moves, now.moved
        m.submodules.sliding = sliding = LateMux(24)
        slide = sliding.o       # number of PSNs left to slide over
        verdict, mark, insert = [Signal(Verdict), Signal(bits), Signal()]
        marks = Signal()        # mark `mark`; otherwise the packet marks nothing
        # `position`: the low bits of the packet's distance after the slide
        psn, position, seal = [Signal(32), Signal(range(bits)), Signal()]
        slides = Signal()       # the window slides or a packet is inserted
        to_match, matched, matches = [Signal(), Signal(), Signal()]

        # The lookahead is a cycle late: invalid in the cycle after a slide. After an insertion it does not show the
        # packet.
        shifts, slid = Signal(), Signal()
        inserts, inserted = Signal(), Signal()
        m.d.sync += [slid.eq(shifts), inserted.eq(inserts)]
        creates, advances = Signal(), Signal()      # `advances`: over the received PSNs at the base
        advanced = run_on.advanced
        runs, some = Signal(init=1), Signal()       # `some`: the base is received, including this packet
        m.d.sync += some.eq(runs)
        taken, out_free = [Signal(), Signal()]
        m.d.comb += [
            low_bits.bitmap.eq(row.bitmap), low_bits.runs.eq(runs),
            run_on.bitmap.eq(row.bitmap), run_on.mark.eq(mark & marks.replicate(bits)), run_on.run.eq(low_bits.run),
            taken.eq((verdict == Verdict.ACCEPT) | (verdict == Verdict.PROBE)),
            to_match.eq((verdict == Verdict.MATCH) | (verdict == Verdict.PROBE)),
            out_free.eq(~self.o.valid | self.o.ready),
            # AND-OR instead of a Mux that holds the row: synthesis would turn the hold into an enable that depends on
            # every condition of SLIDE.
            result.base.eq((moved & advances.replicate(32)) | (self.i_control.p.psn & creates.replicate(32))
                           | (row.base & (~advances & ~creates).replicate(32))),
            result.bitmap.eq((advanced & advances.replicate(bits)) | (
                (row.bitmap | one_hot(inserts, position, bits)) & (~advances & ~creates).replicate(bits))),
            result.holes.eq((row.holes + self.count_holes) & (~creates).replicate(HOLES_BITS)),     # a cycle late
            result.owed.eq(row.owed & ~creates),
            write.addr.eq(row_index), write.data.holes.eq(result.holes), write.data.owed.eq(result.owed),
            # Equal to `result` in every cycle with a write.
            write.data.base.eq(Mux(moves, moved, Mux(creates, self.i_control.p.psn, row.base))),
            write.data.bitmap.eq(Mux(moves, advanced[1:], Mux(creates, 0, row.bitmap[1:]))),
            self.o_match.p.qpn.eq(request.qpn), self.o_match.p.generation.eq(request.generation),
            self.o_match.p.psn.eq(psn), self.o_match.p.rsn.eq(request.rsn), self.o_match.p.ticket.eq(request.ticket),
            self.o_match.p.probe.eq(request.probe),
            self.o_match.valid.eq(to_match & matched & matches & out_free),
            self.unmatched.eq(to_match & ~matched & matches & out_free),
        ]
        run = self.o_run.p
        m.d.comb += [run.qpn.eq(request.qpn), run.generation.eq(request.generation), run.ticket.eq(request.ticket)]
        vars(now).update(
            sliding=sliding, slide=slide, verdict=verdict, mark=mark, insert=insert, marks=marks, psn=psn,
            position=position, seal=seal, slides=slides, matched=matched, matches=matches, shifts=shifts, slid=slid,
            inserts=inserts, inserted=inserted, creates=creates, advances=advances, runs=runs, some=some, taken=taken,
            out_free=out_free)

    def _step(self, m, now, seen):
        """Build one step of a slide; the row is loaded late in the cycle."""
        row, current, result, low_bits = now.row, now.current, now.result, now.low_bits
        sliding, slide, position = now.sliding, now.slide, now.position
        bits = self.params.window_bits
        stalling = Signal()
        m.submodules.step = step = SlideStep(bits)
        limited = Signal(STEP)      # thermometer code of the next PSNs to slide over
        m.d.comb += [
            low_bits.limited.eq(limited), step.limited.eq(limited), step.slide.eq(slide), step.position.eq(position),
            step.base.eq(row.base), step.bitmap.eq(row.bitmap), step.ahead.eq(low_bits.ahead),
            step.steps.eq(low_bits.steps), step.end.eq(low_bits.end), step.none.eq(low_bits.none),
        ]
        m.d.comb += [sliding.late_en.eq(current.late_en), sliding.late.eq(step.left), sliding.early.eq(seen.slide)]
        m.d.comb += [current.late.eq(row), current.late.base.eq(step.moved), current.late.bitmap.eq(step.shifted),
                     current.late.holes.eq(result.holes)]
        m.d.sync += self.count_holes.eq(0)
        m.d.comb += self.count_window_stall_cycles.eq(self.i.valid & ~self.i.ready & stalling)
        now.stalling, now.step, now.limited = stalling, step, limited

    def _finish(self, m, now, write, empty):
        """Finish the packet; ``empty``: its window has received nothing after its base."""
        row, request, result, verdict, taken = now.row, now.request, now.result, now.verdict, now.taken
        m.d.comb += [write.en.eq(1), now.load.eq(1)]
        with m.If(taken):
            m.d.comb += result.owed.eq((row.owed | (request.ack_req & ~request.probe)) & ~empty)
        m.d.sync += [
            self.o.valid.eq(1),
            self.o.p.verdict.eq(Mux((verdict == Verdict.MATCH) & ~now.matched, Verdict.UNMATCHED, verdict)),
            self.o.p.psn.eq(now.psn),
            self.o.p.base.eq(result.base),
            self.o.p.holes.eq(result.holes),
            self.o.p.progress.eq(taken & row.owed & empty),
        ]
        m.next = "CLASSIFY"

    def _take(self, m, now, seen, active):
        """Build the state that registers the meaning of the request."""
        row, sliding = now.row, now.sliding
        with m.State("CLASSIFY"):  # waits for a request; compares its PSN with the window
            m.d.comb += [now.load.eq(~active), sliding.early_en.eq(1)]
            m.d.comb += now.runs.eq(row.bitmap[0] | seen.first)
            m.d.sync += [
                now.verdict.eq(seen.verdict), now.matched.eq(self.match_space), now.psn.eq(seen.psn),
                now.position.eq(seen.distance), now.mark.eq(seen.mark), now.marks.eq(seen.marks),
                now.insert.eq(seen.insert), now.seal.eq(seen.seal), now.slides.eq(seen.slides),
            ]
            with m.If(active):
                m.next = "EFFECT"
                with m.If(now.control):
                    m.next = "CONTROL"

    def _effect(self, m, now, write):
        """Build the state that applies the packet to its window, if one cycle is enough."""
        result, low_bits, verdict = now.result, now.low_bits, now.verdict
        some, slides, seal, slide, out_free = now.some, now.slides, now.seal, now.slide, now.out_free
        current, limited, run = now.current, now.limited, self.o_run.p
        with m.State("EFFECT"):  # marks the packet and slides over the PSNs received before it
            m.d.comb += [now.advances.eq(1), now.moves.eq(1), now.runs.eq(some), current.early_en.eq(0)]
            m.d.comb += low_bits.limited.eq(thermometer(m, slide, STEP, "limiting"))
            m.d.sync += limited.eq(low_bits.limited)
            # A request to the matcher marks nothing, so the window does not move.
            m.d.comb += now.matches.eq(~slides & (~seal | self.o_run.ready))
            with m.If(slides | (some & low_bits.ahead[RUN_ON])):
                m.d.comb += [current.early_en.eq(1), now.shifts.eq(some)]
                m.d.sync += now.marks.eq(0)
                m.next = "SLIDE"
            with m.Elif(out_free):
                m.d.comb += [self.o_run.valid.eq(seal), run.psn.eq(result.base), run.seal.eq(seal)]
                with m.If(~seal | self.o_run.ready):
                    m.d.comb += current.early_en.eq(1)
                    self._finish(m, now, write, Mux(some, ~low_bits.rest, low_bits.none & (verdict != Verdict.ACCEPT)))

    def _slide(self, m, now, write):
        """Build the state that slides over one run of holes, or the rest of a jump, every other cycle."""
        row, low_bits, slid, limited, step = now.row, now.low_bits, now.slid, now.limited, now.step
        insert, seal, out_free, run = now.insert, now.seal, now.out_free, self.o_run.p
        with m.State("SLIDE"):  # waits until the holes are out and the packet is marked
            left = Signal()     # there are PSNs left to slide over, or something to insert or send
            m.d.comb += [now.stalling.eq(1), left.eq(limited[0] | insert | row.bitmap[0] | seal)]
            # Only a probe is matched here; it does not slide after its seal was sent.
            m.d.comb += now.matches.eq(~left)
            with m.If(~left & ~slid & out_free):
                self._finish(m, now, write, low_bits.none & ~now.inserted)
            with m.If(limited[0]):
                m.d.comb += [
                    self.o_run.valid.eq(low_bits.gap & ~slid),
                    run.psn.eq(row.base + step.skip),
                    run.length.eq(step.holes),
                ]
                with m.If(~slid & (self.o_run.ready | ~low_bits.gap)):
                    m.d.comb += [now.current.late_en.eq(1), now.shifts.eq(1)]
                    m.d.sync += [self.count_holes.eq(step.holes), limited.eq(step.limiting),
                                 now.position.eq(step.place)]
            with m.Elif(insert):
                m.d.comb += now.inserts.eq(1)
                m.d.sync += insert.eq(0)
            with m.Elif(row.bitmap[0]):
                m.d.comb += [now.advances.eq(~slid), now.shifts.eq(~slid)]
            with m.Elif(seal):
                m.d.comb += [self.o_run.valid.eq(1), run.psn.eq(row.base), run.seal.eq(1)]
                with m.If(self.o_run.ready):
                    m.d.sync += seal.eq(0)

    def _control(self, m, now, ahead, write, active):
        """Build the state that creates, destroys or queries a window."""
        row, run = now.row, self.o_run.p
        with m.State("CONTROL"):  # waits for the builder to take the marker of a destroy
            m.d.comb += now.stalling.eq(1)
            op = self.i_control.p
            ended = Signal()
            m.d.comb += ended.eq(1)
            with m.Switch(op.kind):
                with m.Case(ControlKind.CREATE):
                    m.d.comb += [now.creates.eq(1), write.en.eq(1)]
                with m.Case(ControlKind.QUERY):
                    m.d.sync += [self.query_base.eq(row.base), self.query_holes.eq(row.holes)]
                with m.Default():
                    m.d.comb += [self.o_run.valid.eq(1), run.psn.eq(row.base), ended.eq(self.o_run.ready)]
            with m.If(ended):
                m.d.comb += self.i_control.ready.eq(1)
                m.d.sync += [ahead.control_taken.eq(0), active.eq(0)]
                m.next = "CLASSIFY"
