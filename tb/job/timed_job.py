"""The main job over cards in time: ``weft sim --backend model``."""

import time
from pathlib import Path

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import MTU
from weft.tb.job.outcome import outcome
from weft.tb.job.settings import SERVICE_NS, SILENCE_NS, context_config, wr_timeout
from weft.tb.job.timed_pair import TimedPair
from weft.tb.job.timeline import Timeline
from weft.tb.world.host import HostConfig
from weft.tb.world.link import FrameKind

PROGRESS_NS = 200_000


class TimedJob:
    """Runs the job and gathers its report.

    Parameters
    ----------
    job : Job
    host : HostConfig or None
    """

    def __init__(self, job, host=None):
        self.job, self.data = job, Path(job.file).read_bytes()
        there, back = job.link_configs()
        self.pair = TimedPair(a_to_b=there, b_to_a=back, host=host or HostConfig(), context_config=context_config(job),
                              card=job.preset, seed=job.seed, captures=job.captures)
        self.failures, self._sender_done = [], False

    def _send(self, endpoint, offer):
        try:
            return send_file(endpoint, offer, timeout_ns=SILENCE_NS)
        finally:
            self._sender_done = True

    def _receive(self, endpoint):
        try:
            return receive_file(endpoint, timeout_ns=SILENCE_NS)
        finally:
            while not self._sender_done:  # it may still ask for acknowledgements
                endpoint.context.progress()
                endpoint.context.wait(SERVICE_NS)
            endpoint.context.progress()

    def run(self):
        """Everything; leaves the report and returns it."""
        job, pair = self.job, self.pair
        job.tell("bringing hosts and cards up", total=len(self.data))
        timeline = self._timeline() if job.timeline else None
        sender, receiver = (Endpoint(pair.contexts[side], len(self.data), qps=job.qps) for side in ("a", "b"))
        pair.connect({"a": sender, "b": receiver}, path_mtu=MTU[f"MTU_{job.pmtu}"], timeout=wr_timeout(job))
        sender.mr.write(self.data)
        post_receives(receiver)
        started_ns, started = pair.loop.now_ns, time.perf_counter()
        self._tell_progress()
        sent, _ = pair.run({"a": lambda: self._guard("sender", self._send, sender, receiver.offer),
                            "b": lambda: self._guard("receiver", self._receive, receiver)})
        nanoseconds = (sent or {}).get("nanoseconds") or pair.loop.now_ns - started_ns
        wall = time.perf_counter() - started
        received = receiver.mr.read(len(self.data), 0)
        job.tell("closing", done=len(self.data), total=len(self.data), time_ns=pair.loop.now_ns)
        counters, blocks, complaints = pair.close()
        if timeline:
            timeline.write(Path(job.timeline))
        report = outcome(job, self.data, received, counters=counters, blocks=blocks,
                         links={name: link.counters for name, link in pair.links.items()},
                         exercised={side: board.exercised for side, board in pair.scoreboards.items()},
                         failures=self.failures + complaints, nanoseconds=nanoseconds, wall=wall)
        job.write_report(report)
        return report

    def _timeline(self):
        pair, timeline = self.pair, Timeline(lambda: self.pair.loop.now_ns)
        for side, device in pair.devices.items():
            timeline.watch_host(side, device, device.memory, pair.contexts[side])
            reached = device.card.interrupt
            device.card.interrupt = lambda vector, side=side, reached=reached: (
                timeline.interrupt(side, vector), reached(vector))
        for name, link in pair.links.items():
            timeline.watch_link(name, link.impairments)
        return timeline

    def _guard(self, name, function, *arguments):
        try:
            return function(*arguments)
        except Exception as error:  # both sides end, then the report says what failed
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
            return None

    def _tell_progress(self):
        if self._sender_done:
            return
        link, pair = self.pair.links["a_to_b"].counters, self.pair
        arrived = link.sent[FrameKind.DATA] + link.sent[FrameKind.RETX] - link.destroyed.total()
        self.job.tell("transferring", done=min(max(arrived, 0) * self.job.pmtu, len(self.data)), total=len(self.data),
                      time_ns=pair.loop.now_ns, lost=link.destroyed.total(), retransmitted=link.sent[FrameKind.RETX])
        pair.loop.call_in(PROGRESS_NS, self._tell_progress)
