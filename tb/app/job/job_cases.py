"""The main job: a file travels from host A's memory to host B's through two simulated cards."""

import time

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather
from cocotb.utils import get_sim_time

from weft.driver.application.file_transfer import Endpoint, post_receives
from weft.driver.terms.enums import MTU
from weft.hdl.contract.params import preset
from weft.tb.app.job.job import Job
from weft.tb.app.job.outcome import outcome
from weft.tb.app.job.programs import Programs
from weft.tb.app.job.timeline import Timeline
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.sides import WAYS

PROGRESS_NS = 5_000


class MainJob:
    """Runs the job and gathers its report."""

    def __init__(self, dut, job):
        self.job, self.programs = job, Programs(job)
        self.pair = RtlPair(dut, job.env_config(preset(job.preset).msix_vectors), job.context_config(), card=job.preset,
                         seed=job.seed)

    def _endpoint(self, side):
        return Endpoint(self.pair.contexts[side], len(self.programs.data), qps=self.job.qps)

    async def run(self):
        """Everything; leaves the report."""
        job, pair, programs, size = self.job, self.pair, self.programs, len(self.programs.data)
        job.tell("bringing hosts and cards up", total=size)
        await pair.start()
        timeline = self._timeline() if job.timeline else None
        sender, receiver = [await bridge(self._endpoint)(side) for side in ("a", "b")]
        await pair.connect({"a": sender, "b": receiver}, path_mtu=MTU[f"MTU_{job.pmtu}"],
                           timeout=job.wr_timeout())
        sender.mr.write(programs.data)
        await bridge(post_receives)(receiver)

        progress = cocotb.start_soon(self._tell_progress())
        started_ns, started = get_sim_time("ns"), time.perf_counter()
        _, sent = await gather(bridge(programs.receive)(receiver), bridge(programs.send)(sender, receiver.offer))
        progress.cancel()
        self.nanoseconds = (sent or {}).get("nanoseconds") or get_sim_time("ns") - started_ns
        wall = time.perf_counter() - started
        received = receiver.mr.read(size, 0)
        job.tell("closing", done=size, total=size, time_ns=get_sim_time("ns"))
        counters, blocks, complaints = await pair.close()
        if timeline:
            timeline.write(job.timeline_file)
        programs.failures += complaints
        self._report(received, counters, blocks, wall)

    def _timeline(self):
        env, timeline = self.pair.env, Timeline(lambda: get_sim_time("ns"))
        for side, context in self.pair.contexts.items():
            timeline.watch_host(side, env.device(side), env.host(side).memory, context)
            env.device(side).interrupted = lambda vector, side=side: timeline.interrupt(side, vector)
        for way in WAYS:
            timeline.watch_link(way, env.link(way).impairments)
        return timeline

    async def _tell_progress(self):
        while True:
            await Timer(PROGRESS_NS, "ns")
            self.programs.tell_progress(self.pair.env.link("a_to_b").counters, get_sim_time("ns"))

    def _report(self, received, counters, blocks, wall):
        links = {way: self.pair.link(way).counters for way in WAYS}
        report = outcome(self.job, self.programs.data, received, counters=counters, blocks=blocks, links=links,
                         exercised={side: board.exercised for side, board in self.pair.scoreboards.items()},
                         failures=self.programs.failures, nanoseconds=self.nanoseconds, wall=wall)
        self.job.write_report(report)
        assert report["ok"], "; ".join(report["failures"])


@cocotb.test()
async def main_job(dut):
    await MainJob(dut, Job.from_environment()).run()
