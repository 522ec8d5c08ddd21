"""The main job: a file travels from host A's memory to host B's through two simulated cards."""

import time
from pathlib import Path

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather
from cocotb.utils import get_sim_time

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import MTU
from weft.hdl.params import preset
from weft.tb.cards.card_pair import CardPair
from weft.tb.job.job import Job
from weft.tb.job.outcome import outcome
from weft.tb.job.settings import SERVICE_NS, SILENCE_NS, context_config, wr_timeout
from weft.tb.job.timeline import Timeline
from weft.tb.world.link import FrameKind

PROGRESS_NS = 5_000


class MainJob:
    """Runs the job and gathers its report."""

    def __init__(self, dut, job):
        self.job = job
        self.data = Path(job.file).read_bytes()
        self.pair = CardPair(dut, job.env_config(preset(job.preset).msix_vectors), context_config(job), card=job.preset,
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
        timeline = self._timeline() if job.timeline else None
        sender, receiver = [await bridge(self._endpoint)(side) for side in ("a", "b")]
        await pair.connect({"a": sender, "b": receiver}, path_mtu=MTU[f"MTU_{job.pmtu}"],
                           timeout=wr_timeout(job))
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
        if timeline:
            timeline.write(Path(job.timeline))
        self.failures += complaints
        self._report(received, counters, blocks, wall)

    def _timeline(self):
        env, timeline = self.pair.env, Timeline(lambda: get_sim_time("ns"))
        for side, context in self.pair.contexts.items():
            timeline.watch_host(side, env.device(side), env.host(side).memory, context)
            env.device(side).interrupted = lambda vector, side=side: timeline.interrupt(side, vector)
        for name in ("a_to_b", "b_to_a"):
            timeline.watch_link(name, env.link(name).impairments)
        return timeline

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
        links = {name: self.pair.env.link(name).counters for name in ("a_to_b", "b_to_a")}
        report = outcome(self.job, self.data, received, counters=counters, blocks=blocks, links=links,
                         exercised={side: board.exercised for side, board in self.pair.scoreboards.items()},
                         failures=self.failures, nanoseconds=self.nanoseconds, wall=wall)
        self.job.write_report(report)
        assert report["ok"], "; ".join(report["failures"])


@cocotb.test()
async def main_job(dut):
    await MainJob(dut, Job.from_environment()).run()
