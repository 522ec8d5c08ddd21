"""The two programs of the main job, for every back end."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.driver.application.file_transfer import Endpoint, Offer, receive_file, send_file
from weft.model.impairments import FrameKind, LinkCounters
from weft.tb.app.job.job import Job
from weft.tb.sim.pair.pair import serve_until
from weft.tb.sim.pair.settings import silence_ns


class Programs:
    """Sender and receiver of a job's file; each runs in a separate thread, like an application."""

    def __init__(self, job: Job) -> None:
        self.job, self.data = job, Path(job.file).read_bytes()
        self.sender_done = False        # with or without an error
        self.failures: list[str] = []   # sentences

    def send(self, endpoint: Endpoint, offer: Offer) -> dict[str, Any] | None:
        """Return the result of ``send_file``, or None if it failed."""
        with self._guarded("sender"):
            try:
                return send_file(endpoint, offer)      # the driver ends every request, however long the round trip
            finally:
                self.sender_done = True
        return None

    def receive(self, endpoint: Endpoint) -> dict[str, Any] | None:
        """Return the result of ``receive_file``, or None if it failed, after the end of the sender."""
        with self._guarded("receiver"):
            try:
                return receive_file(endpoint, timeout_ns=silence_ns(self.job.path_us),
                                    sending=lambda: not self.sender_done)
            finally:
                serve_until(lambda: self.sender_done, endpoint.context,     # which may still request acknowledgements
                            self.job.service_ns())
                endpoint.context.progress()
        return None

    @contextlib.contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # both sides end before the report names the failure
            self.failures.append(f"{name}: {type(error).__name__}: {error}")

    def report_progress(self, counters: LinkCounters, now_ns: float) -> None:
        """Report the progress, from the counters of the link from A to B."""
        sent, lost = counters.sent, counters.destroyed.total()
        arrived = sent[FrameKind.DATA] + sent[FrameKind.RETX] - lost
        self.job.report_progress("transferring", done=min(max(arrived, 0) * self.job.pmtu, len(self.data)),
                                 total=len(self.data),
                                 time_ns=now_ns, lost=lost, retransmitted=sent[FrameKind.RETX])
