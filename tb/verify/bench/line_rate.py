"""Payload rates of two cards in simulated time, measured with :mod:`~weft.tb.verify.bench.meters`."""

import contextlib
import itertools
import os
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass, replace

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather
from cocotb.utils import get_sim_time

from weft.driver.application.file_transfer import MESSAGE_BYTES, WINDOW
from weft.driver.terms.enums import SendFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import wire
from weft.hdl.contract.params import preset
from weft.model.impairments import FrameKind
from weft.tb.sim.flow.bench import given
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.link import mac
from weft.tb.sim.pair.pair import serve_until
from weft.tb.sim.pair.settings import PEER
from weft.tb.sim.pair.two_cards import SIDES, run_cards
from weft.tb.sim.pair.two_hosts import CLOCKS
from weft.tb.sim.pcie.host import HostConfig
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.verify.bench.benchmark import CARDS
from weft.tb.verify.bench.card_lab import PRESET, SILENCE_NS, Lab
from weft.tb.verify.bench.meters import meter_placed, meter_sent, steady_gbps

PROGRESS_NS = 2_000


@dataclass(frozen=True)
class Transfer:
    """Settings of one measurement."""

    name: str                           # suffix of the names of the figures
    pmtu: int
    payload: int                        # bytes in each direction
    senders: str = "ab"                 # "ab": both at once; "a": A to B alone
    bar: float | None = None            # required fraction of `limit_gbps`
    message_bytes: int = MESSAGE_BYTES
    window: int = WINDOW                # messages in flight per QP
    from_byte: int = 0                  # offset of the source in a page
    to_byte: int = 0                    # offset of the destination in a page
    line_gbps: float = mac.BITS_PER_SECOND / 1e9        # rate of the MACs
    qps: int = 1                        # QPs, which get the messages in turn
    loss: float = 0.0                   # fraction of the frames that the link loses in each direction
    immediates: int = 0                 # one of this number of messages consumes a receive; 0: only the last one
    inline: bool = False
    split: bool = False                 # the hosts split read completions at every 64 bytes
    straddle: bool = False              # the cards have straddle
    mac_clock: bool = False             # the cards' MACs have separate clocks, see `weft.tb.sim.pair.two_hosts`

    @property
    def build(self):
        """Return the build options of cards and hosts; transfers with equal options share a run."""
        return self.split, self.straddle, self.mac_clock

    @property
    def destination(self):
        """Return the offset of the destination in the registered memory, after the source and a page."""
        return self.payload + 4096 + self.to_byte

    @property
    def memory_bytes(self):
        return 2 * (self.payload + 4096)

    @property
    def limit_gbps(self):
        """Return the payload rate of the wire, without lost packets."""
        return limit_gbps(self.pmtu, self.line_gbps) * (1 - self.loss)

    @property
    def conditions(self):
        """Return the conditions as text."""
        directions = "both directions at once" if self.senders == "ab" else "one direction alone"
        unaligned = f", from byte {self.from_byte} to byte {self.to_byte} of a page" * bool(self.from_byte)
        loss = f", {100 * self.loss:g} % of all frames lost" if self.loss else ""
        split = ", hosts that split read completions at every 64 bytes" * self.split
        straddle = ", PCIe blocks with straddle" * self.straddle
        clocks = f", {CLOCKS}" * self.mac_clock
        return (f"{directions}, PMTU {self.pmtu}, {self.qps} QP{'s' * (self.qps > 1)}, {self.window} messages of "
                f"{self.message_bytes} bytes in flight on each{unaligned}{loss}{split}{straddle}"
                f"{clocks}; {CARDS}")


TRANSFERS = (
    Transfer("", 4096, 640 << 10, bar=0.99),
    Transfer("_2048", 2048, 448 << 10, bar=0.99),
    Transfer("_1024", 1024, 320 << 10, bar=0.99),
    Transfer("_512", 512, 160 << 10, bar=0.99),
    Transfer("_256", 256, 96 << 10, bar=0.99),
    Transfer("_1024_unaligned", 1024, 256 << 10, bar=0.99, from_byte=1001, to_byte=2002),
    Transfer("_1024_4qps", 1024, 320 << 10, bar=0.99, message_bytes=16 << 10, window=4, qps=4),
    Transfer("_1024_1pct_lost", 1024, 512 << 10, bar=0.98, message_bytes=16 << 10, window=8, qps=4, loss=0.01),
    Transfer("_one_way", 4096, 512 << 10, "a", bar=0.99),
    Transfer("_1024_one_way", 1024, 256 << 10, "a", bar=0.99),
    Transfer("_split64", 4096, 320 << 10, split=True),
    Transfer("_straddle", 4096, 640 << 10, bar=0.99, straddle=True),
    Transfer("_split64_straddle", 4096, 640 << 10, bar=0.922, split=True, straddle=True),
    Transfer("_two_clocks", 4096, 640 << 10, bar=0.99, mac_clock=True),
    Transfer("_1024_two_clocks", 1024, 320 << 10, bar=0.99, mac_clock=True),
)


def limit_gbps(pmtu, line_gbps=mac.BITS_PER_SECOND / 1e9):
    """Return the payload rate that Ethernet allows for data packets of ``pmtu`` bytes back to back."""
    frame = wire.header_bytes(wire.Opcode.WRITE_ONLY) + pmtu + wire.ICRC_BYTES
    return line_gbps * pmtu / (mac.PREAMBLE_BYTES + frame + mac.FCS_BYTES + mac.GAP_BYTES)


def exchange(endpoint, offer, job, sends, receives):
    """Write the source to the peer's destination; wait for all acknowledgements and the peer's immediates."""
    source, destination = endpoint.mr.buf + job.from_byte, offer.va + job.destination
    todo = deque(range(0, job.payload, job.message_bytes) if sends else ())
    left, messages = len(todo), -(-job.payload // job.message_bytes)
    waiting = receives * (messages // job.immediates if job.immediates else 1)
    free = {qp.qp_num: endpoint.window for qp in endpoint.qps}
    turns = itertools.cycle(endpoint.qps)
    flags = SendFlags.SIGNALED | (SendFlags.INLINE if job.inline else 0)

    def last(behind):
        return behind % job.immediates == 0 if job.immediates else not behind

    def post():
        while todo and any(free.values()):
            qp = next(qp for qp in turns if free[qp.qp_num])
            at = todo.popleft()
            length = min(job.message_bytes, job.payload - at)
            qp.post_send(SendWR(at, WROpcode.RDMA_WRITE_WITH_IMM if last(len(todo)) else WROpcode.RDMA_WRITE,
                                sg=[SGE(source + at, length, endpoint.mr.lkey)], send_flags=flags, imm_data=1,
                                rkey=offer.rkey, remote_addr=destination + at))
            free[qp.qp_num] -= 1

    post()
    while left or waiting:
        for wc in endpoint.cq.wait(16, SILENCE_NS):
            assert wc.status is WCStatus.SUCCESS, wc
            if wc.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
                waiting -= 1
                if job.immediates:
                    endpoint.qps[0].post_recv(RecvWR(wr_id=wc.wr_id))
            else:
                left -= 1
                free[wc.qp_num] += 1
        post()


async def transfer(lab, job):
    """Run a :class:`Transfer` and store its figures."""
    ends = await lab.open_endpoints(job.memory_bytes, job.pmtu, job.window, job.qps)
    mac.BITS_PER_SECOND = job.line_gbps * 1e9
    links = {side: lab.env.link(f"{side}_to_{PEER[side]}").impairments for side in SIDES}
    for link in links.values():
        link.config = replace(link.config, loss=job.loss)
    finished = set()

    def application(side):
        exchange(ends[side], ends[PEER[side]].offer, job, side in job.senders, PEER[side] in job.senders)
        finished.add(side)
        # The peer may still need retransmissions.
        serve_until(lambda: len(finished) == len(SIDES), lab.contexts[side], PROGRESS_NS)

    before = {side: link.counters.sent[FrameKind.RETX] - _lost_data(link) for side, link in links.items()}
    with metered(lab, ends, job, job.pmtu) as (sent, placed):
        began_ns, began = get_sim_time("ns"), time.perf_counter()
        progress = cocotb.start_soon(_follow(lab, job, placed.values()))
        await gather(*[bridge(application)(side) for side in SIDES])
        progress.cancel()
        cycles = (get_sim_time("ns") - began_ns) / CLOCK_PERIOD_NS
    for side in job.senders:
        again = links[side].counters.sent[FrameKind.RETX] - _lost_data(links[side]) - before[side]
        assert sent[side].total == job.payload and again == 0, "packets were sent again that were not lost"
        assert not job.loss or links[side].counters.lost[FrameKind.DATA], "nothing was lost"
    rates = steady_gbps([*sent.values(), *placed.values()])
    lab.figures[job.name] = {
        "tx": min(rates[:len(sent)]), "rx": min(rates[len(sent):]),
        "cycles_per_second": cycles / (time.perf_counter() - began)}
    for link in links.values():
        link.config = replace(link.config, loss=0)
    await lab.close_endpoints(ends)


@contextlib.contextmanager
def metered(lab, ends, job, packet):
    """Fill the sources, yield meters of payload sent and of packets placed, both by sender, and compare the bytes."""
    data, sent, placed, over = {}, {}, {}, []
    for side in job.senders:
        data[side], peer = os.urandom(job.payload), PEER[side]
        ends[side].mr.write(data[side], offset=job.from_byte)
        sent[side], end = meter_sent(lab.env, f"{side}_to_{peer}")
        placed[side], watch = meter_placed(lab.env.host(peer), packet)
        watch(ends[peer].mr.buffer, job.destination, job.payload)
        over.append(end)
    yield sent, placed
    for end in over:
        end()
    for side in job.senders:
        assert ends[PEER[side]].mr.read(job.payload, job.destination) == data[side], "the bytes received differ"


def _lost_data(link):
    """Return the number of data frames, including retransmissions, that did not arrive."""
    return link.counters.destroyed[FrameKind.DATA] + link.counters.destroyed[FrameKind.RETX]


async def _follow(lab, job, meters):
    total = sum(job.payload for _ in job.senders)
    while True:
        lab.report_progress(job.conditions.partition(";")[0], sum(meter.total for meter in meters), total)
        await Timer(PROGRESS_NS, "ns")


@cocotb.test()
async def lab(dut):
    settings = given()
    jobs = [Transfer(**job) for job in settings["transfers"]]
    (split, straddle, _), = {job.build for job in jobs}
    async with Lab(dut, settings, HostConfig(split_completions=split), straddle) as bench:
        for job in jobs:
            await transfer(bench, job)


def run_lab(transfers=(), *, progress):
    """Run the bench once for each set of build options; return the figures by transfer name."""
    figures = {}
    for build in dict.fromkeys(job.build for job in transfers):
        settings = {"transfers": [asdict(job) for job in transfers if job.build == build], "progress": str(progress)}
        _, straddle, mac_clock = build
        figures |= run_cards(preset(PRESET).with_(straddle=straddle, mac_clock=mac_clock), __file__, settings, seed=1)
    return figures


def rate_rows(figures, transfers=TRANSFERS):
    """Yield the rows of the report."""
    for job in transfers:
        limit, found = job.limit_gbps, figures[job.name]
        yield Row(f"payload_limit_gbps{job.name}", "Gb/s", limit, conditions=job.conditions)
        for direction in ("tx", "rx"):
            rate = found[direction]
            yield Row(f"{direction}_payload_gbps{job.name}", "Gb/s", rate, at_least=job.bar and job.bar * limit,
                      conditions=job.conditions)
            yield Row(f"{direction}_efficiency{job.name}", "of the limit", rate / limit, conditions=job.conditions)
    yield Row("line_rate_cycles_per_second", "cycles/s",
              statistics.median(figures[job.name]["cycles_per_second"] for job in transfers))


def measure(progress):
    """Return the rows of the payload rates."""
    return list(rate_rows(run_lab(TRANSFERS, progress=progress)))

