"""Main job: sends a file from host A's memory to host B's through two cards of any back end."""

import time
from typing import TYPE_CHECKING, Any

from weft.driver.application.file_transfer import Endpoint, post_receives
from weft.driver.terms.enums import MTU
from weft.tb.app.job.job import Job
from weft.tb.app.job.outcome import outcome
from weft.tb.app.job.programs import Programs
from weft.tb.app.job.timeline import Timeline
from weft.tb.sim.pair.settings import DIRECTIONS, SIDES

if TYPE_CHECKING:
    from weft.tb.sim.pair.pair import Pair

PROGRESS_NS = {"rtl": 5_000, "model": 200_000}     # by back end


class MainJob:
    """Main job on a pair of hosts."""

    def __init__(self, pair: "Pair", job: Job) -> None:
        self.pair, self.job, self.programs = pair, job, Programs(job)

    async def run(self) -> dict[str, Any]:
        """Run the whole job; write and return the report."""
        job, pair, programs, size = self.job, self.pair, self.programs, len(self.programs.data)
        job.report_progress("bringing hosts and cards up", total=size)
        await pair.start()
        timeline = self._timeline() if job.timeline else None
        ends = {side: await pair.call(Endpoint, pair.contexts[side], size, qps=job.qps) for side in SIDES}
        sender, receiver = ends.values()
        await pair.connect(ends, path_mtu=MTU[f"MTU_{job.pmtu}"], timeout=job.wr_timeout())
        sender.mr.write(programs.data)
        await pair.call(post_receives, receiver)
        end_progress = pair.every(PROGRESS_NS[job.backend], lambda: programs.report_progress(
            pair.link("a_to_b").counters, pair.now_ns()))
        started_ns, started = pair.now_ns(), time.perf_counter()
        sent, _ = await pair.gather(lambda: programs.send(sender, receiver.offer), lambda: programs.receive(receiver))
        end_progress()
        nanoseconds = (sent or {}).get("nanoseconds") or pair.now_ns() - started_ns
        wall = time.perf_counter() - started
        received = receiver.mr.read(size, 0)
        job.report_progress("closing", done=size, total=size, time_ns=pair.now_ns())
        await pair.close()
        if timeline:
            timeline.write(job.timeline_file)
        report = outcome(pair, programs, received, nanoseconds, wall)
        job.write_report(report)
        return report

    def _timeline(self) -> Timeline:
        pair, timeline = self.pair, Timeline(self.pair.now_ns)
        for side, context in pair.contexts.items():
            timeline.watch_host(side, pair.device(side), pair.host(side).memory.dma_taps, context)
            pair.on_interrupt(side, lambda vector, side=side: timeline.interrupt(side, vector))
        for direction in DIRECTIONS:
            timeline.watch_link(direction, pair.link(direction).impairments)
        return timeline


def run_model(job: Job) -> dict[str, Any]:
    """Run a job over timed cards; return its report."""
    from weft.model.card.host import TimedDevice
    from weft.tb.sim.pair.loop_pair import LoopPair, complete
    from weft.tb.sim.pcie.host import HostConfig

    if job.fabric:
        from weft.tb.app.job.network_job import run_model_network
        return run_model_network(job)
    there, back = job.link_configs()
    return complete(MainJob(LoopPair(TimedDevice, job.context_config(), forward=there, backward=back, seed=job.seed,
                                     captures=job.captures, preset=job.preset, host=HostConfig()), job).run())
