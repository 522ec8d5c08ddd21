"""Node churn in the RTL: the Adamap subsystem between a driver's knitting buffer and peers that lose packets.

Driver and peers are those of :class:`~weft.tb.verify.churn.host_side.HostSide`; the card is the subsystem. QPs are
created, and destroyed with linked nodes, waiting headers and outstanding fetches; their QPNs are reused at once with
the next generation. Originals and retransmissions get lost. Some retransmissions arrive long after their QP was
destroyed, or with the previous generation for a hole of the present one. Reads of host memory take from some cycles to
many microseconds and overtake each other.

Checked at every step, in addition to the checks of the driver (a retired block is the head of its list):

- no block is lost or in two places (:meth:`KnittingBuffer.check`): ``leaks`` at the end;
- the subsystem reads only linked blocks of a QP that exists, no more than were linked, inside the extents, and no read
  of a destroyed QP is outstanding; memory is read only when the request is answered, and a removed extent has none;
- a hole is reported only if that incarnation of the QP lost the packet, and once;
- a hole is filled only if a retransmission of that incarnation arrived for it.

A violation with the {QPN, generation} of a destroyed QP counts as ``stale_accepts``; any other fails at once.
"""

import heapq
from collections import Counter, defaultdict, deque
from dataclasses import replace
from functools import partial

import cocotb
from cocotb.triggers import Event

from weft.driver.receive.hole_list import LinkDoorbell
from weft.hdl.adamap.adamap import Adamap
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import Verdict
from weft.model.functional.node import Node, open_holes
from weft.tb.sim.block.adamap.subsystem_port import SubsystemPort
from weft.tb.sim.block.adamap.with_qp_table import WithQpTable
from weft.tb.sim.flow.bench import given, leave, run_bench
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.stream.clock import start_clock
from weft.tb.verify.churn.host_side import GENERATIONS, REORDER, HostQp, HostSide

PARAMS = replace(preset("test"), qps=8, window_bits=64, builder_slots=4, cache_entries=8, prefetch_depth_max=4,
                 match_queue=32, knit_extents=4)
ASKED_MAX = 24          # packets that wait for their verdict
NIGHT_NS = 60_000       # without QPs, so that extents are removed
SETTLE_CYCLES = 20_000  # longer than any read takes
HAPPENS = ("destroyed_while_reading", "late_answers", "dropped", "retired", "filled", "residue", "waited", "refused",
           "read_together", "stale_into_subsystem", "stale_dropped", "stale_reports", "grown", "shrunk",
           "LATE", "MATCH", "UNMATCHED")


class SubsystemQp(HostQp):
    """QP of the driver and of its peer, with the observations of the harness."""

    def __init__(self, *args):
        super().__init__(*args)
        self.lost = set()       # originals that never arrived, or arrived late
        self.reported = set()   # PSNs that the subsystem reported lost
        self.stragglers = []    # late originals; likely to have left the window on arrival
        self.arrived = set()    # (PSN, RSN) of retransmissions that passed the window
        self.rung = 0           # nodes linked by a doorbell
        self.asked = 0          # packets in the subsystem without verdict
        self.destroying = False

    @property
    def lines(self):
        return self.receiver.holes._chain.lines


class SubsystemChurn(HostSide):
    """Harness of the subsystem; ``forgetful``: retransmissions count for the present incarnation of their QPN."""

    def __init__(self, dut, *, forgetful=False, seed=0, **options):
        self.forgetful = forgetful
        self._announced, self._events = deque(), Event()
        super().__init__(seed=seed, params=PARAMS, **options)
        self.port = SubsystemPort(dut, self.random, on_judgement=self._judged_by_subsystem, on_report=self._reported,
                                  on_read=self._on_read, on_answer=self._on_answer, latency=self._latency)
        self._coming = set()    # QPNs being created
        self._reading = defaultdict(int)   # incarnation -> outstanding reads
        self._quick, self._night = True, 0

    async def start(self):
        self._configure()
        cocotb.start_soon(self._send_extents())
        while self.pool.changing:
            await self.port.pass_cycles(1)

    def _configure(self):
        rng = self.random
        self.port.configure(reorder_distance=REORDER, retransmit_slack=rng.choice([1, REORDER]),
                            node_age_ns=rng.choice([100, 400, 2000]), prefetch_depth=rng.choice([1, 2, 4]),
                            prefetch_watermark=rng.choice([1, 2, 4]))

    def _announce(self, index, address, length, done):
        if length:
            super()._announce(index, address, length, lambda: None)
        self._announced.append((index, address // abi.BLOCK_BYTES, length // abi.BLOCK_BYTES, done))
        self._events.set()

    async def _send_extents(self):
        while True:
            while not self._announced:
                self._events.clear()
                await self._events.wait()
            index, base, lines, done = self._announced.popleft()
            await self.port.extent(index, base, lines)
            if not lines:
                del self.extents[index]
            done()

    def _latency(self):
        """Return the cycles of a read: some, about a microsecond, or a tail of up to 24 microseconds."""
        rng = self.random
        if rng.random() < 0.004:
            return rng.randint(1_000, 6_000)
        return rng.randint(4, 40) if self._quick else rng.randint(200, 400)

    def _on_read(self, line, count):
        assert all(map(self.in_extent, range(line, line + count))), f"a read outside the extents, at {line:#x}"
        self.sums["reads"] += 1
        self.sums["read_together"] += count > 1
        for host in self.host.values():
            if line in host.lines:
                first = host.receiver.holes.linked - len(host.lines) + host.lines.index(line)
                assert first + count <= host.rung, f"{first + count} nodes read, {host.rung} linked"
                self._reading[host.incarnation] += 1
                return line, count, host
        self.sums["stale_accepts"] += 1     # no QP has this block
        return line, count, None

    def _on_answer(self, read):
        line, count, host = read
        if host is not None:
            self._reading[host.incarnation] -= 1
            self.sums["late_answers"] += host.destroying
        memory = self.pool.extents.device.memory
        return [memory.read((line + k) * abi.BLOCK_BYTES, abi.BLOCK_BYTES) for k in range(count)]

    async def _begin(self, qpn):
        self._coming.add(qpn)
        generation, psn, receiver = self.new_receiver(qpn)
        if receiver is not None:
            await self.port.create(qpn, generation, psn)
            self.enter(SubsystemQp(self, qpn, generation, next(self._incarnation), receiver, psn))
        self._coming.remove(qpn)

    async def _end(self, qpn):
        """Destroy a QP in the order of the card: first wait for the verdicts of its packets, then destroy its list."""
        host = self.host[qpn]
        host.destroying = True
        while host.asked:
            await self.port.pass_cycles(1)
        self.sums["destroyed_while_reading"] += self._reading[host.incarnation] > 0
        await self.port.destroy(qpn, host.generation)
        assert not self._reading.pop(host.incarnation, 0), "a read of a destroyed QP is outstanding"
        self.leave(qpn)

    def _ask(self, qpn, host, psn, *, rsn=0, generation=None, genuine=True, **flags):
        host.asked += 1
        self.port.judge((qpn, host, psn, rsn, genuine), qpn=qpn, psn=psn, rsn=rsn,
                        generation=host.generation if generation is None else generation, **flags)

    def _judged_by_subsystem(self, record, verdict):
        qpn, host, psn, rsn, genuine = record
        host.asked -= 1
        self.sums[verdict.name] += 1
        if verdict in (Verdict.MATCH, Verdict.UNMATCHED) and genuine:
            host.arrived.add((psn % (1 << 24), rsn % (1 << 24)))
        if verdict is Verdict.UNMATCHED and genuine:
            self.reported(abi.REPORT_EVENT.pack(kind=abi.ReportKind.UNMATCHED, qpn=qpn, generation=host.generation,
                                                psn=psn % (1 << 32), rsn=rsn % (1 << 24)), host.incarnation)

    def send_new(self, qpn, lost):
        host, rng = self.host[qpn], self.random
        psns, host.stragglers = host.stragglers, []
        for gone in lost:
            if gone:
                host.lost.add(host.next_psn)
                if rng.random() < 0.05:
                    host.stragglers.append(host.next_psn)
            else:
                psns.append(host.next_psn)
            host.next_psn += 1
        if rng.random() < 0.2:
            rng.shuffle(psns)
        for psn in psns:
            self._ask(qpn, host, psn, ack_req=int(rng.random() < 0.1))

    def probe(self, qpn):
        """Probe up to the next PSN: requested packets that have not arrived count as lost again."""
        host = self.host[qpn]
        self._ask(qpn, host, host.next_psn, rsn=host.receiver.holes.next_rsn, probe=1)

    def retransmission(self, qpn, generation, incarnation, psn, rsn):
        """Pass a retransmitted packet to the subsystem, unless the QP is gone.

        The check before the subsystem drops packets whose generation is not that of the QP table.
        """
        host = self.host.get(qpn)
        if host is None or host.destroying or host.generation != generation:
            self.sums["stale_dropped"] += 1
        else:
            assert host.incarnation == incarnation, "a generation is used again too early"
            self._ask(qpn, host, psn, rsn=rsn, retransmission=1)

    def send_stale(self, qpn):
        """Pass a retransmission of the previous incarnation for a hole of the present one; the matcher must drop it."""
        host = self.host[qpn]
        if host.receiver.holes.nodes:
            node = self.random.choice(host.receiver.holes.nodes)
            holes = [psn + k for psn, length in node.runs for k in range(length)]
            slot = self.random.randrange(len(holes))
            self.sums["stale_into_subsystem"] += 1
            self._ask(qpn, host, holes[slot], rsn=node.rsn + slot, retransmission=1, genuine=False,
                      generation=host.generation if self.forgetful else (host.generation - 1) % GENERATIONS)

    def _reported(self, block):
        kind = abi.REPORT_EVENT.unpack(block).kind
        assert kind in (abi.ReportKind.NODE, abi.ReportKind.RETIRE), f"the subsystem gave a list up: {kind.name}"
        report = (abi.NODE if kind is abi.ReportKind.NODE else abi.REPORT_RETIRE).unpack(block)
        host = self.host.get(report.qpn)
        if host is None or host.generation != report.generation:
            self.sums["dead_reports"] += 1
            incarnation = None
        else:
            incarnation = host.incarnation
        if kind is abi.ReportKind.NODE and incarnation is not None:
            psns = set(Node.unpack(block).psns)
            assert not psns & host.reported, "a packet was lost twice"
            host.reported |= psns
            # PSNs of an earlier incarnation are almost always different.
            self.sums["stale_accepts"] += len(psns - {psn % (1 << 32) for psn in host.lost})
        self.reported(block, incarnation)

    def taken(self, host, kind, report):
        if kind is abi.ReportKind.RETIRE:
            node = host.receiver.holes.nodes[0]
            psns = [psn + k for psn, length in node.runs for k in range(length)]
            holes = [psn - psns[0] for psn in psns]
            left = set(open_holes(node.encoding, holes, report.open))
            filled = {(psns[0] + hole, (node.rsn + slot) % (1 << 24)) for slot, hole in enumerate(holes)
                      if hole not in left}
            arrived = host.arrived
            if node.encoding == abi.Encoding.BITMAP:    # for a bitmap, any RSN of the node fills a hole of it
                filled = {(psn, None) for psn, _ in filled}
                arrived = {(psn, None) for psn, rsn in arrived if (rsn - node.rsn) % (1 << 24) < len(psns)}
            self.sums["stale_accepts"] += len({(psn % (1 << 24), rsn) for psn, rsn in filled} - arrived)
            self.sums["filled"] += len(filled)
            self.sums["residue"] += report.residue
            assert report.next_rsn == (node.rsn + len(psns)) % (1 << 32)
        super().taken(host, kind, report)

    def _ring(self, host, doorbell):
        if isinstance(doorbell, LinkDoorbell):
            host.rung += doorbell.nodes
            self.port.link(host.index, host.generation, doorbell.nodes, doorbell.block)
        else:
            self.port.cum(host.index, host.generation, doorbell.psn)

    def act(self):
        """Act on one QP, deliver packets that are due, and sometimes run the driver."""
        rng = self.random
        self.now = self.port.now_ns
        qpn = rng.randrange(self.qps)
        host = self.host.get(qpn)
        night = self.now < self._night
        if host is None:
            if not night and qpn not in self._coming:
                cocotb.start_soon(self._begin(qpn))
        elif host.destroying:
            pass
        elif night or rng.random() < 0.01:
            cocotb.start_soon(self._end(qpn))
        elif self.port.asked < ASKED_MAX:
            if rng.random() < 0.8:
                loss = rng.choice([0, 0.3, 0.9])
                self.send_new(qpn, [rng.random() < loss for _ in range(rng.randint(1, 4))])
            if rng.random() < 0.1:
                self.probe(qpn)
            if rng.random() < 0.1:
                self.send_stale(qpn)
        self._arrive(ASKED_MAX)
        if rng.random() < self.pace:
            self.take_reports(rng.choice([1, 4, 64]))
            self.pool.check()
        if rng.random() < 0.004:
            self._configure()
            self.pace = rng.choice([0.02, 0.3, 0.3])
            self._quick = rng.random() < 0.5
            if rng.random() < 0.2:
                self._night = self.now + NIGHT_NS

    def _arrive(self, limit):
        while self._late and self._late[0][0] <= self.now and self.port.asked < limit:
            self.retransmission(*heapq.heappop(self._late)[2])

    @property
    def happened(self):
        """Number of occurrences of each event that a run must cover."""
        happened = self.sums + self.pool.counts + Counter(stale_reports=self.worker.counts["stale"])
        return {name: happened[name] for name in HAPPENS}

    async def run_churn(self, count, progress=lambda done: None):
        """Run until ``count`` nodes have left and all of ``HAPPENS`` occurred, then end everything; return the sums."""
        await self.start()
        shown = 0
        while self.count < count or not all(self.happened.values()):
            assert self.count < 10 * count + 5000, f"what happened: {self.happened}"
            self.act()
            await self.port.pass_cycles(self.random.randint(1, 24))
            if self.count >= shown + 100:
                shown = self.count
                progress(shown)
        return await self._finish()

    async def _finish(self):
        for _ in range(SETTLE_CYCLES):
            for qpn in list(self.host):    # also QPs created in the meantime
                if not self.host[qpn].destroying:
                    cocotb.start_soon(self._end(qpn))
            await self.port.pass_cycles(1)
            if not self.host and not self._coming and self.port.idle:
                break
        else:
            raise AssertionError(f"the subsystem does not become idle: {sorted(self.host)} live")
        self.take_reports()
        while self.pool.changing:
            await self.port.pass_cycles(1)
        self.sums["leaks"] = self.leaks()
        self.sums["cycles"] = self.port.now
        assert not len(self.port.errors), "the subsystem gave a list up"
        return {"leaks": 0, "stale_accepts": 0, **self.sums, **self.pool.counts, "nodes": self.count,
                "stale_reports": self.worker.counts["stale"]}


@cocotb.test()
async def churn(dut):
    """Run the harness; leave the sums."""
    await start_clock(dut)
    settings = given()
    shown = partial(report_progress, settings["progress"], "node churn in the RTL", total=settings["count"])
    sums = await SubsystemChurn(dut, forgetful=settings["forgetful"], seed=bench_seed()).run_churn(settings["count"],
                                                                                                   shown)
    dut._log.info("%s", sums)
    leave(sums)


def churn_in_rtl(count, *, seed=None, forgetful=False, progress=None):
    """Return the sums of :class:`SubsystemChurn` after ``count`` nodes have left."""
    settings = {"count": count, "forgetful": forgetful, "progress": progress and str(progress)}
    return run_bench(WithQpTable(Adamap(PARAMS)), name="subsystem_churn", cases=__file__, sim="verilator", seed=seed,
                     settings=settings)
