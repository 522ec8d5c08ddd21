"""Payload rates and latencies of two cards, counted in simulated time.

A rate is taken over the steady middle of a transfer: from the moment when the last of the observed streams has
passed 20 % of its bytes to the moment when the first has passed 80 %. Transmitted payload counts when the last byte
of its frame is on the wire, received payload when its packet is in host memory; the latter wavers with the other
traffic on PCIe, so that a rate at the limit may come out some tenths of a per cent above it. The hosts are those of
:class:`~weft.tb.world.host.HostConfig`, the cable has no length and loses nothing.
"""

import json
import os
import random
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

import cocotb
from cocotb.task import bridge
from cocotb.triggers import RisingEdge, Timer, gather
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.tlp import TlpType

from weft.driver.application.file_transfer import MESSAGE_BYTES, WINDOW, Endpoint, post_receives
from weft.driver.terms.enums import MTU, SendFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.context import Context, ContextConfig
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl import wire
from weft.hdl.params import preset
from weft.tb.flow.clock import CLOCK_PERIOD_NS
from weft.tb.flow.simulate import bench_seed, simulate
from weft.tb.measure.benchmark import Row
from weft.tb.world import mac
from weft.tb.world.link import FrameKind, LinkConfig
from weft.tb.world.two_cards import SIDES, TOP, two_cards_text
from weft.tb.world.two_hosts import EnvConfig, TwoCards

VARIABLE = "WEFT_BENCH"
PRESET = "test"
MACS = {"a": 0x02_00_00_00_00_0A, "b": 0x02_00_00_00_00_0B}
IP = {"a": 0x0A_00_00_01, "b": 0x0A_00_00_02}
PEER = {"a": "b", "b": "a"}
STEADY_FROM, STEADY_TO = 0.2, 0.8
SILENCE_NS = 1_000_000     # a transfer without a completion for so long has failed
PROGRESS_NS = 2_000
QUIET_NS = 10_000          # between two latency measurements
PING_BYTES = 64
PINGS = 5


@dataclass(frozen=True)
class Transfer:
    """One measurement.

    Attributes
    ----------
    name : str
        Suffix of the figures.
    pmtu : int
    payload : int
        Bytes in each direction.
    senders : str
        ``"ab"``: both at once; ``"a"``: A to B alone.
    bar : float or None
        Part of :func:`limit_gbps` that must be reached.
    message_bytes : int
    window : int
        Messages in flight.
    from_byte, to_byte : int
        Where in a page source and destination begin.
    line_gbps : float
        Rate of the MACs.
    """

    name: str
    pmtu: int
    payload: int
    senders: str = "ab"
    bar: float | None = None
    message_bytes: int = MESSAGE_BYTES
    window: int = WINDOW
    from_byte: int = 0
    to_byte: int = 0
    line_gbps: float = mac.BITS_PER_SECOND / 1e9

    @property
    def destination(self):
        """Offset in the registered memory: the source and a page are before it."""
        return self.payload + 4096 + self.to_byte

    @property
    def memory_bytes(self):
        return 2 * (self.payload + 4096)

    @property
    def limit_gbps(self):
        return limit_gbps(self.pmtu, self.line_gbps)


TRANSFERS = (
    Transfer("", 4096, 640 << 10, bar=0.97),
    Transfer("_1024", 1024, 320 << 10, bar=0.95),
    Transfer("_1024_unaligned", 1024, 256 << 10, bar=0.95, from_byte=1001, to_byte=2002),
    Transfer("_one_way", 4096, 512 << 10, "a"),
    Transfer("_1024_one_way", 1024, 256 << 10, "a"),
)


def limit_gbps(pmtu, line_gbps=mac.BITS_PER_SECOND / 1e9):
    """Payload rate that Ethernet allows for data packets of ``pmtu`` bytes back to back."""
    frame = wire.header_bytes(wire.Opcode.WRITE_ONLY) + pmtu + wire.ICRC_BYTES
    return line_gbps * pmtu / (mac.PREAMBLE_BYTES + frame + mac.FCS_BYTES + mac.GAP_BYTES)


class Meter:
    """When which bytes passed a point: ``(nanoseconds, bytes)`` each."""

    def __init__(self):
        self.events, self.total = [], 0

    def add(self, count):
        self.events.append((get_sim_time("ns"), count))
        self.total += count

    def passed(self, part):
        """When ``part`` of all bytes had passed."""
        seen = 0
        for at, count in self.events:
            seen += count
            if seen >= part * self.total:
                return at
        raise AssertionError("nothing passed")

    def gbps(self, begin, end):
        """Rate between the first and the last event within a window."""
        inside = [event for event in self.events if begin <= event[0] <= end]
        assert len(inside) > 10, f"{len(inside)} events are too few for a rate"
        return 8 * sum(count for _, count in inside[1:]) / (inside[-1][0] - inside[0][0])


def steady_gbps(meters):
    """Rates of all meters over the window that is steady for every one of them."""
    begin = max(meter.passed(STEADY_FROM) for meter in meters)
    end = min(meter.passed(STEADY_TO) for meter in meters)
    return [meter.gbps(begin, end) for meter in meters]


def meter_sent(env, direction):
    """A :class:`Meter` of the payload that leaves in a direction of the link, and a function that ends it."""
    meter = Meter()

    def look(frame, kind):
        if kind is FrameKind.DATA:
            meter.add(wire.RETH.unpack(frame[wire.RETH_OFFSET:]).dma_length)
        return False  # loses nothing

    return meter, env.link(direction).impairments.drop_when(look)


def meter_placed(host, pmtu):
    """A :class:`Meter` of the packets that are in the host's memory, by the last write of each.

    Returns it and ``watch(buffer, offset, length)``, which says what memory counts.
    """
    meter, pages, packet = Meter(), set(), [0]

    async def written(tlp):
        await host.handle_mem_write_tlp(tlp)
        if tlp.address >> 12 in pages:
            packet[0] += tlp.get_be_byte_count()
            if (tlp.address + tlp.length * 4) % pmtu == 0:
                meter.add(packet[0])
                packet[0] = 0

    for kind in (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64):
        host.register_rx_tlp_handler(kind, written)

    def watch(buffer, offset, length):
        pages.update(buffer.physical(at) >> 12 for at in (*range(offset, offset + length, 4096), offset + length - 1))

    return meter, watch


def exchange(endpoint, offer, job, sends, receives):
    """An application: writes its source to the peer's destination, and waits for all acknowledgements and for the
    peer's immediate."""
    qp, = endpoint.qps
    source, destination = endpoint.mr.buf + job.from_byte, offer.va + job.destination
    todo = deque(range(0, job.payload, job.message_bytes) if sends else ())
    left, waiting = len(todo), receives
    free = endpoint.window

    def post():
        nonlocal free
        while todo and free:
            at = todo.popleft()
            length = min(job.message_bytes, job.payload - at)
            wr = SendWR(wr_id=at, num_sge=1, sg=[SGE(source + at, length, endpoint.mr.lkey)],
                        opcode=WROpcode.RDMA_WRITE if todo else WROpcode.RDMA_WRITE_WITH_IMM,
                        send_flags=SendFlags.SIGNALED, imm_data=1)
            wr.set_wr_rdma(offer.rkey, destination + at)
            qp.post_send(wr)
            free -= 1

    post()
    while left or waiting:
        for wc in endpoint.cq.wait(16, SILENCE_NS):
            assert wc.status is WCStatus.SUCCESS, wc
            if wc.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
                waiting = False
            else:
                left -= 1
                free += 1
        post()


class Lab:
    """Two cards brought up, and what is measured on them."""

    def __init__(self, dut, settings):
        self.dut, self.settings = dut, settings
        cable = LinkConfig(delay_ns=0)
        self.env = TwoCards(dut, EnvConfig(cable, cable, vectors=preset(PRESET).msix_vectors), seed=bench_seed())
        self.contexts = {}
        self.figures = {}

    def tell(self, phase, done=0, total=1):
        """A line of progress."""
        with open(self.settings["progress"], "a") as file:
            file.write(json.dumps({"phase": phase, "done": done, "total": total}) + "\n")

    async def start(self):
        self.tell("enumerating the PCIe hosts")
        await self.env.start()
        self.tell("bringing the cards up")
        opening = {side: cocotb.start_soon(bridge(self._open)(side)) for side in SIDES}
        self.contexts = {side: await task for side, task in opening.items()}

    def _open(self, side):
        config = ContextConfig(ring_log2=8, random=random.Random(f"{bench_seed()}/{side}/driver"))
        return Context(self.env.device(side), mac=MACS[side], ip=IP[side], config=config)

    async def connect(self, length, pmtu, window=WINDOW):
        """An endpoint on each side, connected with each other, one receive posted."""
        ends = {side: await bridge(Endpoint)(self.contexts[side], length, window=window) for side in SIDES}
        for side in SIDES:
            await bridge(ends[side].connect)(ends[PEER[side]].connections, path_mtu=MTU[f"MTU_{pmtu}"])
            await bridge(post_receives)(ends[side])
        return ends

    async def transfer(self, job):
        """Run a :class:`Transfer`; leaves its figures."""
        ends = await self.connect(job.memory_bytes, job.pmtu, job.window)
        mac.BITS_PER_SECOND = job.line_gbps * 1e9
        sent, placed, over = {}, {}, []
        data = {side: os.urandom(job.payload) for side in job.senders}
        for side in job.senders:
            ends[side].mr.write(data[side], offset=job.from_byte)
            sent[side], end = meter_sent(self.env, f"{side}_to_{PEER[side]}")
            placed[side], watch = meter_placed(self.env.host(PEER[side]), job.pmtu)
            watch(ends[PEER[side]].mr.buffer, job.destination, job.payload)
            over.append(end)
        began_ns, began = get_sim_time("ns"), time.perf_counter()
        progress = cocotb.start_soon(self._follow(job, placed.values()))
        await gather(*[bridge(exchange)(ends[side], ends[PEER[side]].offer, job, side in job.senders,
                                        PEER[side] in job.senders) for side in SIDES])
        progress.cancel()
        for end in over:
            end()
        cycles = (get_sim_time("ns") - began_ns) / CLOCK_PERIOD_NS
        for side in job.senders:
            assert ends[PEER[side]].mr.read(job.payload, job.destination) == data[side], "the bytes received differ"
            assert sent[side].total == job.payload, "packets were sent twice"
        rates = steady_gbps([*sent.values(), *placed.values()])
        self.figures[job.name] = {
            "tx": min(rates[:len(sent)]), "rx": min(rates[len(sent):]),
            "cycles_per_second": cycles / (time.perf_counter() - began)}
        for end in ends.values():
            await bridge(end.close)()

    async def _follow(self, job, meters):
        total = sum(job.payload for _ in job.senders)
        while True:
            self.tell(f"PMTU {job.pmtu}, {'both ways' if len(job.senders) == 2 else 'one way'}",
                      sum(meter.total for meter in meters), total)
            await Timer(PROGRESS_NS, "ns")

    async def latency(self):
        """Small writes, one at a time; leaves the medians."""
        ends = await self.connect(4096, 4096)
        found = []
        for number in range(PINGS):
            self.tell("latency", number, PINGS)
            await Timer(QUIET_NS, "ns")
            found.append(await self._ping(ends))
        self.figures["latency"] = {name: statistics.median(ping[name] for ping in found) for name in found[0]}
        for end in ends.values():
            await bridge(end.close)()

    async def _ping(self, ends):
        begin = get_sim_time("ns")
        times = {}

        async def first(name, signal, after=None):
            if after is not None:
                await after
            await RisingEdge(getattr(self.dut, signal))
            times[name] = get_sim_time("ns")

        bell = cocotb.start_soon(first("bell", "a_s_axis_cq__tvalid"))
        watches = [bell, cocotb.start_soon(first("sent", "a_m_axis_tx__tvalid", bell))]
        arrives = cocotb.start_soon(first("arrived", "b_s_axis_rx__tvalid"))
        watches += [arrives, cocotb.start_soon(first("written", "b_m_axis_rq__tvalid", arrives))]
        receiver = cocotb.start_soon(bridge(self._take)(ends["b"], times))
        await bridge(self._give)(ends["a"], ends["b"].offer, times)
        await receiver
        await gather(*watches)
        return {
            "post_send_to_receiver_completion": times["received"] - begin,
            "post_send_to_sender_completion": times["acknowledged"] - begin,
            "doorbell_to_mac": times["sent"] - times["bell"],
            "mac_to_dma_write": times["written"] - times["arrived"],
        }

    @staticmethod
    def _give(endpoint, offer, times):
        wr = SendWR(num_sge=1, sg=[SGE(endpoint.mr.buf, PING_BYTES, endpoint.mr.lkey)],
                    opcode=WROpcode.RDMA_WRITE_WITH_IMM)
        wr.set_wr_rdma(offer.rkey, offer.va)
        endpoint.qps[0].post_send(wr)
        wc, = endpoint.cq.wait(1, SILENCE_NS)
        assert wc.status is WCStatus.SUCCESS, wc
        times["acknowledged"] = endpoint.context.device.now_ns()

    @staticmethod
    def _take(endpoint, times):
        wc, = endpoint.cq.wait(1, SILENCE_NS)
        assert wc.status is WCStatus.SUCCESS, wc
        times["received"] = endpoint.context.device.now_ns()
        endpoint.qps[0].post_recv(RecvWR())
        endpoint.context.run_until(lambda: not endpoint.context.transmitting, SILENCE_NS)  # the acknowledgement


@cocotb.test()
async def lab(dut):
    settings = json.loads(os.environ[VARIABLE])
    bench = Lab(dut, settings)
    await bench.start()
    for job in settings["transfers"]:
        await bench.transfer(Transfer(**job))
    if settings["latency"]:
        await bench.latency()
    bench.env.finish()
    Path(os.environ["WEFT_RUN"], "figures.json").write_text(json.dumps(bench.figures))


def run_lab(transfers=(), *, latency=False, progress, seed=1, verilog=None):
    """Run the bench; the figures by transfer name, and ``"latency"``."""
    settings = {"transfers": [asdict(job) for job in transfers], "latency": latency, "progress": str(progress)}
    run = simulate(verilog=verilog or two_cards_text(preset(PRESET)), top=TOP, name=f"two-cards-{PRESET}",
                   cases=__file__, sim="verilator", optimize="run", seed=seed, env={VARIABLE: json.dumps(settings)})
    return json.loads((run / "figures.json").read_text())


def rate_rows(figures, transfers=TRANSFERS):
    """Rows of the report."""
    for job in transfers:
        limit, found = job.limit_gbps, figures[job.name]
        yield Row(f"payload_limit_gbps{job.name}", "Gb/s", limit)
        for way in ("tx", "rx"):
            rate = found[way]
            yield Row(f"{way}_payload_gbps{job.name}", "Gb/s", rate, at_least=job.bar and job.bar * limit)
            yield Row(f"{way}_efficiency{job.name}", "of the limit", rate / limit)
    yield Row("line_rate_cycles_per_second", "cycles/s",
              statistics.median(figures[job.name]["cycles_per_second"] for job in transfers))


def measure(progress):
    """Payload rates."""
    return list(rate_rows(run_lab(TRANSFERS, progress=progress)))


def measure_latency(progress):
    """Latencies of a write of 64 bytes through an idle card."""
    figures = run_lab(latency=True, progress=progress)
    return [Row(f"{name}_ns", "ns", value) for name, value in figures["latency"].items()]
