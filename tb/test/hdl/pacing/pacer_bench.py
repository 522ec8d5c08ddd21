"""Bench of the pacer, and its model: which packet may leave, and when."""

import random
from collections import Counter, deque
from types import SimpleNamespace

from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import preset
from weft.hdl.pacing.engine import BURST_NS, OVERHEAD
from weft.hdl.part.layouts import hurt_qp, tx_job
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock
from weft.tb.test.hdl.transmit.agents import packets_of, random_work

PARAMS = preset("test").with_(pace_descriptors=32)
QPS = PARAMS.qps
AHEAD = 8           # cycles between a decision of the engine and its packet
SCALE = 1 << abi.PACE_SCALE
TIME = 1 << 27
JOB = tx_job(paced=True)
HURT = hurt_qp(PARAMS)


def gap_of(gbps):
    """Return the gap of a rate."""
    return round(8 / gbps * SCALE)


class ModelQp:
    """A QP: its descriptors as packets, its settings with the cycles from which on they held, and its next time.

    ``next`` is the earliest time, in nanoseconds, at which its next packet may leave.
    """

    def __init__(self):
        self.lists = [deque(), deque()]
        self.settings = [(0, 0, 0, 0)]      # cycle, gap, limited, limit
        self.next, self.bytes, self.markers = None, 0, 0
        self.left = []      # (ns, lateness in ns, bytes) of the packets

    def in_force(self, cycle):
        """Return the settings of which one held when a packet that leaves now was chosen."""
        recent = [s for s in self.settings if s[0] > cycle - AHEAD]
        return [*self.settings[-len(recent) - 1:-len(recent) or None][:1], *recent]


class PacerBench:
    """The pacer between its ports. ``stalls``: the share of cycles in which no packet is taken.

    ``now`` is the card's time plus 1 us, in nanoseconds; ``step`` its increment per cycle, by default that of the card.
    """

    def __init__(self, dut, stalls=0.0):
        self.dut, self.stalls, self.rng = dut, stalls, random.Random(bench_seed())
        self.cycle, self.seen = 0, Counter()
        self.now, self.step = 0, CLOCK_PERIOD_NS
        self.qps = [ModelQp() for _ in range(QPS)]
        self.waiting = [deque(), deque()]       # descriptors that were not yet accepted
        self.held = 0
        self.flushes, self.hurts, self.offered = deque(), deque(), None

    @classmethod
    async def start(cls, dut, stalls=0.0):
        await start_clock(dut)
        bench = cls(dut, stalls)
        for _ in range(200):
            await bench.tick()
        return bench

    def post(self, kind, **work):
        """Post a descriptor: 0 SEND, 1 RETRANSMIT."""
        self.waiting[kind].append({"retransmit": kind, "paced": 1, **work})

    def work(self, kind, qpn, **changes):
        """Post a random descriptor of a QP."""
        self.post(kind, **random_work(self.rng, qps=QPS, retransmit=kind, **{"sqpn": qpn, **changes}))

    async def tick(self, count=1, **doorbells):
        """Pass cycles; ``rate``, ``limit``: a doorbell in the first one."""
        for _ in range(count):
            dut = self.dut
            dut.time_ns.value = (self.now - 1000) % TIME
            dut.o__ready.value = self.takes = int(self.rng.random() >= self.stalls)
            self._ring(doorbells)
            for kind, port in enumerate(("i_send", "i_retransmit")):
                getattr(dut, f"{port}__valid").value = int(bool(self.waiting[kind]))
                if self.waiting[kind]:
                    getattr(dut, f"{port}__payload").value = int.from_bytes(
                        abi.WORK.pack(**self.waiting[kind][0]), "little")
            dut.i_flush__valid.value = int(bool(self.flushes))
            dut.i_flush__payload.value = self.flushes[0] if self.flushes else 0
            dut.i_hurt__valid.value = int(bool(self.hurts))
            dut.i_hurt__payload.value = HURT.const(self.hurts[0]).as_value().value if self.hurts else 0
            await ReadOnly()
            self._watch()
            self.cycle += 1
            self.now += self.step
            await RisingEdge(dut.clk)
            doorbells = {}

    def _ring(self, doorbells):
        dut = self.dut
        for name, layout in (("rate", abi.RATE_DOORBELL), ("limit", abi.LIMIT_DOORBELL)):
            fields = doorbells.get(name)
            getattr(dut, f"registers__{name}_doorbell_stb").value = int(fields is not None)
            if fields is None:
                continue
            getattr(dut, f"registers__{name}_doorbell").value = int.from_bytes(layout.pack(**fields), "little")
            qp = self.qps[fields["qpn"]]
            _, gap, limited, limit = qp.settings[-1]
            if name == "rate":
                gap, limited = min(fields["gap"], abi.PACE_GAP_MAX), fields.get("limited", 0)
                if qp.next is not None:
                    qp.next = min(qp.next, self.now + qp.bytes * gap / SCALE)
            else:
                limit = fields["psn"]
            qp.settings.append((self.cycle, gap, limited, limit))

    def _watch(self):
        """Observe the ports, and compare packets with the model."""
        dut = self.dut
        for kind, port in enumerate(("i_send", "i_retransmit")):
            if self.waiting[kind] and int(getattr(dut, f"{port}__ready").value):
                work = self.waiting[kind].popleft()
                if int(dut.refused.value):
                    assert self.held >= PARAMS.pace_descriptors - 1, "refused with space"
                    self.seen["refused"] += 1
                else:
                    self.held += 1
                    assert self.held <= PARAMS.pace_descriptors + 1
                    self.qps[work["sqpn"]].lists[kind].append(
                        SimpleNamespace(since=self.cycle, packets=deque(packets_of(work, qps=QPS))))
        if self.hurts and int(dut.i_hurt__ready.value):
            self.seen["hurt"] += 1
            self.flush(self.hurts.popleft()["qpn"], marks=True)
        if self.flushes and int(dut.i_flush__ready.value):
            self.seen["flush"] += 1
            self.flush(self.flushes.popleft())
        offers = int(dut.o__valid.value)
        if offers and self.offered is None:
            self.offered = JOB.from_bits(int(dut.o__payload.value))
            self._leave(self.offered)
        elif not offers and self.offered is not None:
            assert self.offered.packet.sqpn in self.flushes and not self.offered.silent, "a packet was withdrawn"
            self.seen["withdrawn"] += 1
            self.offered = None
        if offers and self.takes:
            self.offered = None

    def flush(self, qpn, marks=False):
        """Discard the descriptors of a QP."""
        qp = self.qps[qpn]
        self.held -= sum(map(len, qp.lists))
        qp.lists, qp.next = [deque(), deque()], None
        qp.markers += marks

    def _leave(self, job):
        """Compare a packet with those that may leave."""
        packet = job.packet
        qp = self.qps[packet.sqpn]
        assert packet.paced and packet.last
        if job.silent:
            qp.markers -= 1
            assert qp.markers >= 0 and job.reason and not packet.length
            self.seen["marker"] += 1
            return
        assert not job.reason
        if qp.markers:
            self.seen["on their way"] += 1
            return      # it left before the engine saw the rejection
        kind, retransmissions = packet.ring, qp.lists[1]
        if not kind and retransmissions:
            assert retransmissions[0].since > self.cycle - AHEAD, "new data came before a retransmission"
        entry = qp.lists[kind][0]
        expected = entry.packets.popleft()
        for name in ("opcode", "psn", "rsn", "has_imm", "ack_req", "local_va", "remote_va", "length"):
            assert getattr(packet, name) == getattr(expected, name), name
        for name in ("dqpn", "lkey", "rkey", "imm", "dst_mac", "dst_ip", "sport", "ect"):
            assert getattr(packet, name) == getattr(expected.work, name), name
        assert packet.ends == expected.last == (not entry.packets)
        if not entry.packets:
            qp.lists[kind].popleft()
            self.held -= 1
        in_force = qp.in_force(self.cycle)
        assert kind or any(not limited or (packet.psn - limit) % 2**32 >= 2**31
                           for _, _, limited, limit in in_force), "beyond the limit"
        self._time(qp, packet.length + OVERHEAD, min(gap for _, gap, _, _ in in_force))
        self.seen["retransmission" if kind else "new"] += 1

    def _time(self, qp, size, gap):
        """Compare the time of a packet, and advance that of the next one."""
        now = self.now
        if qp.next is not None:
            assert now >= qp.next - 2**-6, f"{qp.next - now} ns early"
        qp.left.append((now, now - (qp.next or now), size))
        earliest = now - AHEAD * self.step - BURST_NS
        qp.next = max(earliest if qp.next is None else qp.next, earliest) + size * gap / SCALE - 2**-9
        qp.bytes = size

    async def drain(self, cycles):
        """Pass cycles until nothing is left, at most this number."""
        for _ in range(cycles):
            if self.offered is None and not any(self.waiting) and not any(
                    any(qp.lists) or qp.markers for qp in self.qps):
                break
            await self.tick()
        else:
            raise AssertionError(f"{self.held} descriptors are left: {[list(map(len, q.lists)) for q in self.qps]}")
        await self.tick(5)
        assert int(self.dut.idle.value)


def line_bytes(length, pmtu):
    """Return the bytes on the line of a paced descriptor whose remote address is a multiple of the PMTU."""
    return length + OVERHEAD * wire.packet_count(0, length, pmtu)
