"""Engine of the pacer: one packet of a QP, or one change of its state, after the other."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract import wire
from ..contract.abi import PACE_SCALE, Reason, WorkOpcode
from ..contract.params import PACE_BURST_NS as BURST_NS
from ..part.layouts import LENGTH_WIDTH, TX_SAME, WORK, tx_job
from .pool import POOLED, Pool
from .scan import BYTES_BITS, FRACTION_BITS, TIMES, Scan, is_late, queues, sends
from .settings import GAP_BITS, SETTING
from .wheel import SLOT_LOG2, TIME_BITS, Wheel

# bytes of a packet beside its payload
OVERHEAD = wire.DATA_HEADER_BYTES + wire.ICRC_BYTES + wire.LINE_OVERHEAD_BYTES
HALF = GAP_BITS // 2        # of a gap: a product per half
ARRIVAL, VISIT, TOUCH = range(3)        # kinds of events that take turns


class Engine(wiring.Component):
    """Serves events, one after the other: cycles in brackets.

    * A descriptor comes [3]: it goes to the end of one of its QP's two lists. When the pool is full, it is refused [1].
    * A QP is due [7]: one packet leaves, of a retransmission if there is one, and the QP waits for the next one, at
      ``max(next, now - burst) + bytes * gap``. ``burst`` is ``BURST_NS``.
    * A QP got another rate or limit, or was found by the scan [7]: the limit is examined again, and its next packet
      waits at most for the time that its last one takes at the new rate from now on.
    * A QP is flushed [5]: its lists are freed at once, whatever their length.

    Flushes come first; the others take turns. A packet is due up to 64 ns after its time, and leaves 5 cycles later if
    no other event comes before. While a packet waits at ``o`` no other one is prepared, but other events are served.
    The rate of a QP in the wheel changes when it leaves the wheel; the wheel reaches ``slots * 64 ns`` (16.4 us for
    1,024 QPs).

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i_send, i_retransmit : In(stream.Signature(WORK))
        Descriptors that are correct. ``refused``: the one that is accepted is dropped.
    i_touch, i_flush, i_rejected : In(stream.Signature(params.qpn_width))
        QPs whose setting changed; QPs to flush, accepted when this is done, a packet at ``o`` included; QPs to flush
        because a packet of theirs was rejected: a ``silent`` packet of the QP comes after the last one before the
        flush.
    all_stb : In(1)
        QPs are missing on ``i_touch``: every QP that waits for a limit is touched once.
    setting_en, setting_qpn, setting : Out(1), Out(params.qpn_width), In(SETTING)
        Read of rate and limit: three cycles later, until the next read.
    now : In(27)
        Nanoseconds.
    clear, clear_qpn : Out
        After a reset: the QP's state is being cleared. Nothing is accepted meanwhile.
    o : Out(stream.Signature(tx_job(paced=True)))
        Packets, each the only one of its descriptor; withdrawn by a flush.
    idle : Out(1)
        There is no descriptor.
    """

    def __init__(self, params):
        self.params = params
        width = params.qpn_width
        qpns = stream.Signature(width)
        super().__init__({
            "i_send": In(stream.Signature(WORK)), "i_retransmit": In(stream.Signature(WORK)), "refused": Out(1),
            "i_touch": In(qpns), "i_flush": In(qpns), "i_rejected": In(qpns), "all_stb": In(1),
            "setting_en": Out(1), "setting_qpn": Out(width), "setting": In(SETTING), "now": In(TIME_BITS),
            "clear": Out(1), "clear_qpn": Out(width),
            "o": Out(stream.Signature(tx_job(paced=True))), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        params = self.params
        state_shape = queues(params)
        m.submodules.pool = self._pool = Pool(params.pace_descriptors)
        m.submodules.wheel = wheel = self._wheel = Wheel(params)
        m.submodules.scan = self._scan = Scan(params)
        m.submodules.states = states = Memory(shape=state_shape, depth=params.qps, init=[])
        m.submodules.next_times = times = Memory(shape=TIMES, depth=params.qps, init=[])
        self._state, self._times = states.read_port(), times.read_port()
        write_state, write_times = states.write_port(), times.write_port()
        qpn = Signal(params.qpn_width)
        shapes = {
            "state": state_shape, "old": TIMES, "retransmits": 1, "flushes": 1, "rejected": 1,
            "had": 1, "touches": 1, "fresh": 1,
            # Of a packet: its descriptor, whether that is longer than any packet, bytes to the next boundary, whether
            # all of it fits, bytes of payload, on the line, whether it must wait for the limit.
            "work": POOLED, "long": 1, "space": LENGTH_WIDTH, "fits": 1, "length": LENGTH_WIDTH, "bytes": BYTES_BITS,
            "blocked": 1,
            # Of the QP: its next time, by an addition, and whether that is long ago, irrelevant, or not changed.
            "base": TIMES.members["next"], "products": data.ArrayLayout(BYTES_BITS + HALF, 2),
            "at": TIMES.members["next"], "known": 1, "at_once": 1, "keep": 1,
            # Of the output: its QP, whether it is a retransmission, or a marker.
            "out_qpn": len(qpn), "out_first": 1, "marks": 1}
        self._r = r = SimpleNamespace(qpn=qpn, **{name: Signal(shape, name=name) for name, shape in shapes.items()})
        active = Signal(range(params.qps + 1))      # QPs with packets
        index = Signal(params.qpn_width)
        m.d.comb += [
            wheel.now.eq(self.now[SLOT_LOG2:]), wheel.qpn.eq(qpn), wheel.slot.eq(r.at.ns[SLOT_LOG2:]),
            wheel.at_once.eq(r.at_once),
            self.clear_qpn.eq(index), self.idle.eq((active == 0) & ~self.o.valid & ~r.fresh),
            write_state.addr.eq(qpn), write_state.data.eq(r.state), write_times.addr.eq(qpn),
            write_times.data.known.eq(r.known), write_times.data.next.eq(r.at), write_times.data.bytes.eq(r.bytes),
        ]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        self._packet(m)
        self._choose(m)
        with m.FSM(init="CLEAR"):
            with m.State("CLEAR"):  # clears the state of all QPs
                m.d.comb += [self.clear.eq(1), write_state.en.eq(1), write_state.addr.eq(index),
                             write_state.data.eq(Const(0, state_shape.size)), write_times.en.eq(1),
                             write_times.addr.eq(index), write_times.data.eq(Const(0, TIMES.size))]
                m.d.sync += index.eq(index + 1)
                with m.If(index.all() & wheel.ready):
                    m.next = "IDLE"
            self._begin(m)
            self._put(m)
            self._visit(m)
            self._weigh(m)
            self._flush(m)
            with m.State("PLACE"):  # writes the QP's state, and enters the QP into the wheel
                enters, after = sends(r.state) & ~r.state.waiting, self._some(r.state)
                m.d.comb += [
                    wheel.stb.eq(enters), write_state.en.eq(1),
                    write_state.data.waiting.eq(r.state.waiting | (enters & ~wheel.far)), write_times.en.eq(~r.keep),
                    self.i_flush.ready.eq(r.flushes & ~r.rejected), self.i_rejected.ready.eq(r.flushes & r.rejected),
                ]
                m.d.sync += [active.eq(active + after - r.had), r.flushes.eq(0), r.fresh.eq(0)]
                m.next = "IDLE"
        return m

    def _some(self, state):
        """Return whether a QP has descriptors or a marker."""
        return state.send.some | state.retransmit.some | state.marker

    def _choose(self, m):
        """Choose the next event, and connect the read ports of the QPs' state."""
        r, scan, wheel = self._r, self._scan, self._wheel
        self._c = SimpleNamespace(
            turn=Signal(range(3), name="turn"), wins=Signal(3, name="wins"), flushes=Signal(name="flushes"),
            ask=Signal(name="ask"), chosen=Signal.like(r.qpn, name="chosen"))
        turn, wins, flushes, chosen = self._c.turn, self._c.wins, self._c.flushes, self._c.chosen
        asks, width, visits, early = Signal(3), len(r.qpn), Signal(), Signal.like(r.qpn, name="early")
        m.d.comb += [
            asks[ARRIVAL].eq(self.i_retransmit.valid | self.i_send.valid),
            asks[VISIT].eq(wheel.o.valid & ~self.o.valid),
            asks[TOUCH].eq(self.i_touch.valid | scan.o.valid),
            flushes.eq(self.i_flush.valid | self.i_rejected.valid),
            self._c.ask.eq(flushes | asks.any()),
            # The wheel's output is late: it is that of a block memory.
            visits.eq(wins[VISIT] & ~flushes), chosen.eq(Mux(visits, wheel.o.payload, early)), self._state.en.eq(1),
            self._state.addr.eq(Mux(visits & scan.blocked, wheel.o.payload, Mux(scan.blocked, early, scan.qpn))),
            self._times.en.eq(1), self._times.addr.eq(self._state.addr),
            self.setting_qpn.eq(chosen),
            scan.state.eq(self._state.data), scan.times.eq(self._times.data), scan.now.eq(self.now),
            scan.all_stb.eq(self.all_stb), scan.enable.eq(~self.clear),
        ]
        with m.Switch(turn):
            for first in range(3):
                with m.Case(first):
                    order = [(first + k) % 3 for k in range(3)]
                    for k, kind in enumerate(order):
                        m.d.comb += wins[kind].eq(asks[kind] & ~Cat(asks[other] for other in order[:k]).any())
        with m.If(flushes):
            m.d.comb += early.eq(Mux(self.i_flush.valid, self.i_flush.payload, self.i_rejected.payload))
        with m.Elif(wins[ARRIVAL]):
            m.d.comb += early.eq(Mux(self.i_retransmit.valid, self.i_retransmit.p.sqpn[:width],
                                     self.i_send.p.sqpn[:width]))
        with m.Else():
            m.d.comb += early.eq(Mux(self.i_touch.valid, self.i_touch.payload, scan.o.payload))

    def _begin(self, m):
        """Build the state that waits for an event and reads the QP's state."""
        r, scan, wheel = self._r, self._scan, self._wheel
        turn, wins, flushes = self._c.turn, self._c.wins, self._c.flushes
        with m.State("IDLE"):  # waits for an event
            m.d.comb += [scan.blocked.eq(self._c.ask), self.setting_en.eq(1)]
            m.d.sync += [r.qpn.eq(self._c.chosen), r.touches.eq(0), r.keep.eq(1), r.at_once.eq(1)]
            with m.If(flushes):
                m.d.sync += [r.flushes.eq(1), r.rejected.eq(~self.i_flush.valid)]
                m.next = "FLUSH"
            with m.Elif(wins[ARRIVAL]):
                m.d.sync += [r.retransmits.eq(self.i_retransmit.valid), turn.eq(VISIT)]
                with m.If(self._pool.full):
                    m.d.comb += self.refused.eq(1)
                    self._accept(m, self.i_retransmit.valid)
                with m.Else():
                    m.next = "PUT"
            with m.Elif(wins[VISIT]):
                m.d.comb += wheel.o.ready.eq(1)
                m.d.sync += turn.eq(TOUCH)
                m.next = "LOOK"
            with m.Elif(wins[TOUCH]):
                m.d.comb += [self.i_touch.ready.eq(1), scan.o.ready.eq(~self.i_touch.valid)]
                m.d.sync += [r.touches.eq(1), turn.eq(ARRIVAL)]
                m.next = "WEIGH"

    def _accept(self, m, retransmits):
        """Accept a descriptor."""
        m.d.comb += [self.i_retransmit.ready.eq(retransmits), self.i_send.ready.eq(~retransmits)]

    def _load(self, m):
        """Store the QP's state."""
        r, state = self._r, self._state.data
        m.d.sync += [r.state.eq(state), r.old.eq(self._times.data),
                     r.had.eq(self._some(state)), r.at.eq(self._times.data.next)]

    def _put(self, m):
        """Build the state that stores a descriptor."""
        r, pool = self._r, self._pool
        new = Signal(WORK, name="new")
        m.d.comb += new.eq(Mux(r.retransmits, self.i_retransmit.payload.as_value(), self.i_send.payload.as_value()))
        m.d.comb += [pool.put[name].eq(new[name]) for name in POOLED.members if name != "with_imm"]
        m.d.comb += pool.put.with_imm.eq(new.opcode == WorkOpcode.WRITE_IMM)
        with m.State("PUT"):  # stores a descriptor at the end of a list
            self._load(m)
            self._accept(m, r.retransmits)
            m.d.comb += [pool.put_stb.eq(1), pool.link_to.eq(pool.free)]
            for which, name in ((r.retransmits, "retransmit"), (~r.retransmits, "send")):
                end, list_ = self._state.data[name], r.state[name]
                with m.If(which):
                    m.d.comb += [pool.link_stb.eq(end.some), pool.link_index.eq(end.tail)]
                    m.d.sync += [list_.some.eq(1), list_.tail.eq(pool.free),
                                 list_.head.eq(Mux(end.some, end.head, pool.free))]
            m.d.sync += [r.at_once.eq(~self._times.data.known), r.fresh.eq(1)]
            m.next = "PLACE"

    def _visit(self, m):
        """Build the states that send a packet of a QP that is due."""
        r, pool = self._r, self._pool
        with m.State("LOOK"):  # the QP's state is there
            state = self._state.data
            self._load(m)
            m.d.comb += [pool.read_en.eq(1), pool.read_index.eq(
                Mux(state.retransmit.some, state.retransmit.head, state.send.head))]
            m.d.sync += [r.state.waiting.eq(0), r.retransmits.eq(state.retransmit.some)]
            m.next = "LOAD"
        with m.State("LOAD"):  # the descriptor is there, if there is one
            floor, above, gap = Signal(TIME_BITS), Signal(TIME_BITS), Signal(LENGTH_WIDTH - 1)
            work, masks = pool.descriptor, Array(wire.PMTUS.get(code, 1) - 1 for code in range(8))
            m.d.comb += [floor.eq(self.now - BURST_NS), above.eq(r.old.next.ns - floor),
                         gap.eq(~work.remote_va[:len(gap)] & masks[work.pmtu])]
            m.d.sync += [r.work.eq(work), r.long.eq(work.length[LENGTH_WIDTH:].any()), r.space.eq(gap + 1),
                         r.base.ns.eq(floor), r.base.fraction.eq(0)]
            with m.If(r.old.known & ~above[-1]):
                m.d.sync += r.base.eq(r.old.next)
            m.next = "PLACE"
            with m.If(r.state.marker):
                m.d.sync += [r.state.marker.eq(0), r.marks.eq(1), r.out_qpn.eq(r.qpn), self.o.valid.eq(1)]
            with m.Elif(sends(r.state)):
                m.next = "CUT"
        with m.State("CUT"):  # the packet ends where the remote address is a multiple of the PMTU
            fits, reached, length = Signal(), Signal(32), r.work.length[:LENGTH_WIDTH]
            m.d.comb += [fits.eq(~r.long & (length <= r.space)), reached.eq(r.work.psn - self.setting.limit)]
            m.d.sync += [
                r.fits.eq(fits), r.length.eq(Mux(fits, length, r.space)),
                r.bytes.eq(Mux(fits, length + OVERHEAD, r.space + OVERHEAD)),
                r.blocked.eq(self.setting.limited & ~r.retransmits & ~reached[-1]),
            ]
            m.next = "SEND"
        with m.State("SEND"):  # the packet leaves, and the rest of its descriptor stays
            with m.If(r.blocked):
                m.d.sync += r.state.blocked.eq(1)
                m.next = "PLACE"
            with m.Else():
                self._advance(m)
                self._multiply(m)
                m.d.sync += [self.o.valid.eq(1), r.marks.eq(0), r.out_qpn.eq(r.qpn), r.out_first.eq(r.retransmits),
                             r.keep.eq(0), r.known.eq(1), r.at_once.eq(0)]
                m.next = "SUM"
        with m.State("SUM"):  # the time after the packet
            shift = PACE_SCALE - FRACTION_BITS
            total = Signal(TIME_BITS + FRACTION_BITS)
            low, high = r.products[0], r.products[1]
            m.d.comb += total.eq(r.base.as_value() + low[shift:] + (high << HALF - shift))
            m.d.sync += r.at.eq(total)
            m.next = "PLACE"
            with m.If(r.touches):
                m.next = "MIN"

    def _advance(self, m):
        """Replace the descriptor by its rest, or remove it."""
        r, pool = self._r, self._pool
        which = {"retransmit": r.retransmits, "send": ~r.retransmits}
        head = Mux(r.retransmits, r.state.retransmit.head, r.state.send.head)
        m.d.comb += [
            pool.update_index.eq(head), pool.update_stb.eq(~r.fits),
            pool.release_stb.eq(r.fits), pool.first.eq(head), pool.last.eq(head),
        ]
        for name, on in which.items():
            list_ = r.state[name]
            with m.If(on & r.fits):
                m.d.sync += [list_.head.eq(pool.link), list_.some.eq(list_.head != list_.tail)]

    def _multiply(self, m):
        """Multiply the bytes of the packet by the gap: one product per half of the gap."""
        r = self._r
        m.d.sync += [r.products[k].eq(r.bytes * self.setting.gap[k * HALF:(k + 1) * HALF]) for k in range(2)]

    def _weigh(self, m):
        """Build the states that look at a QP again: its next packet need not wait longer than the new rate demands."""
        r = self._r
        with m.State("WEIGH"):  # the QP's state is there
            self._load(m)
            m.d.sync += [r.state.blocked.eq(0), r.bytes.eq(self._times.data.bytes)]
            m.next = "READ"
        with m.State("READ"):  # the QP's setting is being read
            m.next = "SCALE"
        with m.State("SCALE"):  # time of its last packet at the new rate, from now on
            self._multiply(m)
            m.d.sync += [r.base.ns.eq(self.now), r.base.fraction.eq(0)]
            m.next = "SUM"
        with m.State("MIN"):  # the earlier of two times
            sooner, since = Signal(TIME_BITS + FRACTION_BITS), Signal(TIME_BITS)
            m.d.comb += [sooner.eq(r.old.next.as_value() - r.at.as_value()), since.eq(self.now - r.old.next.ns)]
            known = r.old.known & ~is_late(since)
            with m.If(sooner[-1]):
                m.d.sync += r.at.eq(r.old.next)
            m.d.sync += [r.known.eq(known), r.at_once.eq(~known), r.keep.eq(0)]
            m.next = "PLACE"

    def _flush(self, m):
        """Build the states that free the lists of a QP."""
        r, pool = self._r, self._pool
        with m.State("FLUSH"):  # the QP's state is there
            self._load(m)
            m.d.sync += [r.known.eq(0), r.keep.eq(0)]
            with m.If(~r.rejected & (r.out_qpn == r.qpn) & ~r.marks):
                m.d.sync += self.o.valid.eq(0)
            m.next = "FREE_RETRANSMIT"
        for name, following in (("retransmit", "FREE_SEND"), ("send", "PLACE")):
            with m.State(f"FREE_{name.upper()}"):  # frees a list
                list_ = r.state[name]
                m.d.comb += [pool.release_stb.eq(list_.some), pool.first.eq(list_.head), pool.last.eq(list_.tail)]
                m.d.sync += list_.some.eq(0)
                if following == "PLACE":
                    m.d.sync += [r.state.blocked.eq(0), r.state.marker.eq(r.state.marker | r.rejected)]
                m.next = following

    def _packet(self, m):
        """Build the output and the rest of its descriptor."""
        r, pool, work = self._r, self._pool, self._r.work
        job, packet, has_imm = self.o.p, self.o.p.packet, Signal()
        m.d.comb += [packet[name].eq(work[name]) for name in TX_SAME if name != "sqpn"]
        m.d.comb += [
            has_imm.eq(work.with_imm & r.fits), packet.sqpn.eq(r.out_qpn), packet.has_imm.eq(has_imm),
            packet.opcode.eq(Mux(
                work.retransmit, Mux(has_imm, wire.Opcode.RETX_WRITE_IMM, wire.Opcode.RETX_WRITE),
                Mux(has_imm, wire.Opcode.WRITE_ONLY_IMM, wire.Opcode.WRITE_ONLY))),
            packet.ack_req.eq(work.ack_req & r.fits), packet.has_rsn.eq(work.retransmit),
            packet.length.eq(Mux(r.marks, 0, r.length)), packet.ring.eq(r.out_first), packet.last.eq(1),
            packet.paced.eq(1), packet.ends.eq(r.fits),
            job.silent.eq(r.marks), job.reason.eq(Mux(r.marks, Reason.BAD_DESCRIPTOR, Reason.OK)),
            pool.update.eq(work),
        ]
        # Undefined after the last packet.
        m.d.comb += [pool.update.length.eq(work.length - r.space), pool.update.local_va.eq(work.local_va + r.space),
                     pool.update.remote_va.eq(work.remote_va + r.space), pool.update.psn.eq(work.psn + 1),
                     pool.update.rsn.eq(work.rsn + 1)]
