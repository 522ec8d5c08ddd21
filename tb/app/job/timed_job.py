"""The main job over cards in time: ``weft sim --backend model``."""

import time

from weft.driver.application.file_transfer import Endpoint, post_receives
from weft.driver.terms.enums import MTU
from weft.model.card.host import TimedDevice
from weft.tb.app.job.outcome import outcome
from weft.tb.app.job.programs import Programs
from weft.tb.app.job.timeline import Timeline
from weft.tb.sim.pair.loop_pair import LoopPair
from weft.tb.sim.pair.sides import WAYS
from weft.tb.sim.pcie.host import HostConfig

PROGRESS_NS = 200_000


class TimedJob:
    """Runs the job and gathers its report.

    Parameters
    ----------
    job : Job
    """

    def __init__(self, job):
        self.job, self.programs = job, Programs(job)
        there, back = job.link_configs()
        self.pair = LoopPair(TimedDevice, job.context_config(), forward=there, backward=back, seed=job.seed,
                             captures=job.captures, preset=job.preset, host=HostConfig())

    def run(self):
        """Everything; leaves the report and returns it."""
        job, pair, programs, size = self.job, self.pair, self.programs, len(self.programs.data)
        job.tell("bringing hosts and cards up", total=size)
        timeline = self._timeline() if job.timeline else None
        sender, receiver = (Endpoint(pair.contexts[side], size, qps=job.qps) for side in ("a", "b"))
        pair.connect({"a": sender, "b": receiver}, path_mtu=MTU[f"MTU_{job.pmtu}"], timeout=job.wr_timeout())
        sender.mr.write(programs.data)
        post_receives(receiver)
        started_ns, started = pair.loop.now_ns, time.perf_counter()
        self._tell_progress()
        sent, _ = pair.run(lambda: programs.send(sender, receiver.offer), lambda: programs.receive(receiver))
        nanoseconds = (sent or {}).get("nanoseconds") or pair.loop.now_ns - started_ns
        wall = time.perf_counter() - started
        received = receiver.mr.read(size, 0)
        job.tell("closing", done=size, total=size, time_ns=pair.loop.now_ns)
        counters, blocks, complaints = pair.close()
        if timeline:
            timeline.write(job.timeline_file)
        report = outcome(job, programs.data, received, counters=counters, blocks=blocks,
                         links={way: pair.link(way).counters for way in WAYS},
                         exercised={side: board.exercised for side, board in pair.scoreboards.items()},
                         failures=programs.failures + complaints, nanoseconds=nanoseconds, wall=wall)
        job.write_report(report)
        return report

    def _timeline(self):
        pair, timeline = self.pair, Timeline(lambda: self.pair.loop.now_ns)
        for side, device in pair.devices.items():
            timeline.watch_host(side, device, device.memory, pair.contexts[side])
            reached = device.card.interrupt
            device.card.interrupt = lambda vector, side=side, reached=reached: (
                timeline.interrupt(side, vector), reached(vector))
        for way in WAYS:
            timeline.watch_link(way, pair.link(way).impairments)
        return timeline

    def _tell_progress(self):
        if self.programs.sender_done:
            return
        loop = self.pair.loop
        self.programs.tell_progress(self.pair.links["a_to_b"].counters, loop.now_ns)
        loop.call_in(PROGRESS_NS, self._tell_progress)
