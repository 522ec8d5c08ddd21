"""The two programs of the main job, for every back end."""

from pathlib import Path

from weft.driver.application.file_transfer import receive_file, send_file
from weft.model.impairments import FrameKind
from weft.tb.sim.pair.settings import SERVICE_NS, silence_ns

LOOKS = 20    # checks per round trip for the end of the sender


class Programs:
    """Sender and receiver of a job's file; each runs in a separate thread, like an application.

    Parameters
    ----------
    job : Job

    Attributes
    ----------
    data : bytes
        The file.
    sender_done : bool
        The sender ended, with or without an error.
    failures : list of str
        Sentences about errors.
    """

    def __init__(self, job):
        self.job, self.data = job, Path(job.file).read_bytes()
        self.sender_done, self.failures = False, []

    def send(self, endpoint, offer):
        """Return the result of ``send_file``, or None if it failed."""
        return self._guard("sender", self._send, endpoint, offer)

    def _send(self, endpoint, offer):
        try:
            return send_file(endpoint, offer)      # the driver ends every request, however long the round trip
        finally:
            self.sender_done = True

    def receive(self, endpoint):
        """Return the result of ``receive_file``, or None if it failed, after the end of the sender."""
        return self._guard("receiver", self._receive, endpoint)

    def _receive(self, endpoint):
        try:
            return receive_file(endpoint, timeout_ns=silence_ns(self.job.rtt_us), sending=lambda: not self.sender_done)
        finally:
            while not self.sender_done:  # the sender may still request acknowledgements
                endpoint.context.progress()
                endpoint.context.wait(max(SERVICE_NS, int(self.job.rtt_us * 1000 / LOOKS)))
            endpoint.context.progress()

    def _guard(self, name, function, *arguments):
        try:
            return function(*arguments)
        except Exception as error:  # both sides end before the report names the failure
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
            return None

    def tell_progress(self, counters, now_ns):
        """Report the progress, from the counters of the link from A to B."""
        sent, lost = counters.sent, counters.destroyed.total()
        arrived = sent[FrameKind.DATA] + sent[FrameKind.RETX] - lost
        self.job.tell("transferring", done=min(max(arrived, 0) * self.job.pmtu, len(self.data)), total=len(self.data),
                      time_ns=now_ns, lost=lost, retransmitted=sent[FrameKind.RETX])
