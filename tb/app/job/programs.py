"""What the two programs of the main job do, on whatever cards."""

from pathlib import Path

from weft.driver.application.file_transfer import receive_file, send_file
from weft.model.impairments import FrameKind
from weft.tb.sim.pair.settings import SERVICE_NS, silence_ns

LOOKS = 20    # for the end of the sender in a round trip


class Programs:
    """Sender and receiver of a job's file; each runs in a thread of its own, as an application would.

    Parameters
    ----------
    job : Job

    Attributes
    ----------
    data : bytes
        The file.
    sender_done : bool
        The sender ended, well or not.
    failures : list of str
        Sentences.
    """

    def __init__(self, job):
        self.job, self.data = job, Path(job.file).read_bytes()
        self.sender_done, self.failures = False, []

    def send(self, endpoint, offer):
        """What ``send_file`` returns, or None if it failed."""
        return self._guard("sender", self._send, endpoint, offer)

    def _send(self, endpoint, offer):
        try:
            return send_file(endpoint, offer)      # the driver ends every request, however long the round trip
        finally:
            self.sender_done = True

    def receive(self, endpoint):
        """What ``receive_file`` returns, or None if it failed; stays until the sender is done."""
        return self._guard("receiver", self._receive, endpoint)

    def _receive(self, endpoint):
        try:
            return receive_file(endpoint, timeout_ns=silence_ns(self.job.rtt_us), sending=lambda: not self.sender_done)
        finally:
            while not self.sender_done:  # it may still ask for acknowledgements
                endpoint.context.progress()
                endpoint.context.wait(max(SERVICE_NS, int(self.job.rtt_us * 1000 / LOOKS)))
            endpoint.context.progress()

    def _guard(self, name, function, *arguments):
        try:
            return function(*arguments)
        except Exception as error:  # both sides end, then the report says what failed
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
            return None

    def tell_progress(self, counters, now_ns):
        """Tell how far it is, by the counters of the link from A to B."""
        sent, lost = counters.sent, counters.destroyed.total()
        arrived = sent[FrameKind.DATA] + sent[FrameKind.RETX] - lost
        self.job.tell("transferring", done=min(max(arrived, 0) * self.job.pmtu, len(self.data)), total=len(self.data),
                      time_ns=now_ns, lost=lost, retransmitted=sent[FrameKind.RETX])
