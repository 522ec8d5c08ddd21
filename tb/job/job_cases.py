"""The main job: a file travels from host A's memory to host B's through two simulated cards."""

import hashlib
import time
from pathlib import Path

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather
from cocotb.utils import get_sim_time

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import MTU
from weft.hdl.params import preset
from weft.tb.cards.card_pair import CardPair, missing_blocks
from weft.tb.cards.link_settings import context_config, timeout
from weft.tb.flow.clock import CLOCK_PERIOD_NS
from weft.tb.job.job import Job
from weft.tb.world.link import FrameKind

SERVICE_NS = 2_000         # how often a host that has finished looks whether its peer has
PROGRESS_NS = 5_000
SILENCE_NS = 20_000_000    # a transfer without a completion for so long has failed


class MainJob:
    """Runs the job and gathers its report."""

    def __init__(self, dut, job):
        self.job = job
        self.data = Path(job.file).read_bytes()
        driver = context_config(job.rtt_us, reorders=job.reorder > 0 or job.dup > 0)
        self.pair = CardPair(dut, job.env_config(preset(job.preset).msix_vectors), driver, card=job.preset,
                         seed=job.seed)
        self.sender_done = False
        self.failures = []

    # Each of these runs in a thread of its own, as an application would.

    def _endpoint(self, side):
        return Endpoint(self.pair.contexts[side], len(self.data), qps=self.job.qps)

    def _send(self, endpoint, offer):
        try:
            return send_file(endpoint, offer, timeout_ns=SILENCE_NS)
        finally:
            self.sender_done = True

    def _receive(self, endpoint):
        try:
            return receive_file(endpoint, timeout_ns=SILENCE_NS)
        finally:
            while not self.sender_done:  # it may still ask for acknowledgements
                endpoint.context.progress()
                endpoint.context.wait(SERVICE_NS)
            endpoint.context.progress()

    async def run(self):
        """Everything; leaves the report."""
        job, pair = self.job, self.pair
        job.tell("bringing hosts and cards up", total=len(self.data))
        await pair.start()
        sender, receiver = [await bridge(self._endpoint)(side) for side in ("a", "b")]
        await pair.connect({"a": sender, "b": receiver}, path_mtu=MTU[f"MTU_{job.pmtu}"], timeout=timeout(job.rtt_us))
        sender.mr.write(self.data)
        await bridge(post_receives)(receiver)

        progress = cocotb.start_soon(self._tell_progress())
        started_ns, started = get_sim_time("ns"), time.perf_counter()
        _, sent = await gather(bridge(self._guard)("receiver", self._receive, receiver),
                               bridge(self._guard)("sender", self._send, sender, receiver.offer))
        progress.cancel()
        self.nanoseconds = (sent or {}).get("nanoseconds") or get_sim_time("ns") - started_ns
        wall = time.perf_counter() - started
        received = receiver.mr.read(len(self.data), 0)
        job.tell("closing", done=len(self.data), total=len(self.data), time_ns=get_sim_time("ns"))
        counters, blocks, complaints = await pair.close()
        self.failures += complaints
        self._report(received, counters, blocks, wall)

    def _guard(self, name, function, *arguments):
        try:
            return function(*arguments)
        except Exception as error:  # both sides end, then the report says what failed
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
            return None

    async def _tell_progress(self):
        link = self.pair.env.link("a_to_b").counters
        while True:
            await Timer(PROGRESS_NS, "ns")
            arrived = link.sent[FrameKind.DATA] + link.sent[FrameKind.RETX] - link.destroyed.total()
            self.job.tell("transferring", done=min(max(arrived, 0) * self.job.pmtu, len(self.data)),
                          total=len(self.data), time_ns=get_sim_time("ns"), lost=link.destroyed.total(),
                          retransmitted=link.sent[FrameKind.RETX])

    def _report(self, received, counters, blocks, wall):
        job, link = self.job, self.pair.env.link("a_to_b").counters
        counters_a, counters_b = counters["a"], counters["b"]
        lost = link.destroyed[FrameKind.DATA] + link.destroyed[FrameKind.RETX]
        retransmitted = counters_a["tx_retransmissions"]
        missing = sum(map(missing_blocks, blocks.values()))
        if received != self.data:
            self.failures.append("the bytes received differ from those sent")
        if missing:
            self.failures.append(f"{missing} blocks of the knitting buffer are not back on the free list")
        spurious = retransmitted - lost
        failures, warnings = job.judge_spurious(spurious)
        self.failures += failures
        cycles = round(self.nanoseconds / CLOCK_PERIOD_NS)
        report = {
            "ok": not self.failures, "failures": self.failures, "warnings": warnings,
            "file": job.file, "bytes": len(self.data),
            "sha256_sent": hashlib.sha256(self.data).hexdigest(),
            "sha256_received": hashlib.sha256(received).hexdigest(),
            "packets_sent": counters_a["tx_packets"], "packets_lost": lost,
            "packets_retransmitted": retransmitted,
            "spurious_retransmissions": spurious,
            "goodput_gbps": len(self.data) * 8 / self.nanoseconds if self.nanoseconds else 0.0,
            "cycles": cycles, "wall_seconds": wall, "cycles_per_second": cycles / wall,
            "nodes_linked": counters_b["nodes_linked"], "nodes_retired": counters_b["nodes_retired"],
            "cache_hits": counters_b["cache_hits"], "cache_misses": counters_b["cache_misses"],
            "match_stall_cycles": counters_b["match_stall_cycles"],
            "blocks_missing": missing,
            "seed": job.seed, "command": job.command,
            "exercised": {side: sorted(board.exercised) for side, board in self.pair.scoreboards.items()},
            "counters": counters,
            "link": {"a_to_b": link.as_dict(), "b_to_a": self.pair.env.link("b_to_a").counters.as_dict()},
        }
        job.write_report(report)
        assert report["ok"], "; ".join(self.failures)


@cocotb.test()
async def main_job(dut):
    await MainJob(dut, Job.from_environment()).run()
