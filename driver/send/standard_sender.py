"""Sending side of a QP whose peer implements plain RoCEv2."""

from ..protocol.segment import Work
from ..protocol.source_port import PortDraw
from .go_back import GoBack
from .sender import Sender


def _asking(work):
    """Return a copy of ``work`` whose last packet requests an acknowledgement."""
    return Work(*(getattr(work, name) for name in Work._fields))._replace(last=True)


class StandardSender(Sender):
    """Sender of writes only: each packet is a legal RDMA WRITE ONLY, which an RC responder accepts in PSN order.

    When the peer misses a packet (NAK 0x60), everything from there on is passed to the card again, with unchanged PSNs.
    Instead of a probe, the last packet is sent again: a peer that has it acknowledges it again; a peer that does not
    reports what is missing. If no response follows, the next retransmission starts at the oldest unacknowledged packet;
    the two kinds alternate. The last packet of every descriptor requests an acknowledgement. The MSNs of such a peer
    count packets and are ignored, as are loss reports and receive limits.

    Parameters and attributes are those of :class:`Sender`.
    """

    def __init__(self, **options):
        super().__init__(**options)
        self._recovery = GoBack(self.queue, max(1, self.queue.chunk_bytes // self.queue.pmtu))
        self._asked_for_all = True
        self._change_path, self._unanswered = None, 0

    def search_path(self, seed, take):
        """Take another port with every time-out after the first one: such a peer answers no questions."""
        ports = PortDraw(seed)
        self._change_path = lambda: take(ports.draw())

    def _heard(self, now):
        self._unanswered = 0

    def next_work(self, entries=1, most_bytes=1):
        return [_asking(work) for work in super().next_work(entries, most_bytes)]

    def next_retransmission(self):
        work = super().next_retransmission()
        return work and _asking(work)

    def on_transmitted(self, now, again=False, descriptors=1):
        if not again:
            super().on_transmitted(now, descriptors=descriptors)
            return
        self.in_card -= descriptors
        self._note_retired(now, again, descriptors)
        self.timer.sent_late(now)

    def on_ack(self, psn, syndrome, now, msn=None, requests=0, oldest_psn=None, came_ns=None):
        super().on_ack(psn, syndrome, now, oldest_psn=oldest_psn, came_ns=came_ns)

    def _acknowledge(self, cum, now, msn=None):
        before = len(self.queue)
        known = super()._acknowledge(cum, now, msn)
        self.msn += before - len(self.queue)     # such a peer completes a write when it acknowledges it
        return known

    def _on_sequence_nak(self, psn, now):
        self.counts["sequence_naks"] += 1
        if self._nameable(psn) and psn >= self.queue.una and self._acknowledge(psn, now) and self.failed is None:
            self.counts["go_backs"] += 1
            self._recovery.start(psn)
            self.timer.restart(now)

    def on_loss_report(self, node, now):
        self.counts["strange_frames"] += 1

    def on_receive_limit(self, psn, limited, serial, now):
        self.counts["strange_frames"] += 1

    def _ask_for_answer(self):
        """Do nothing: each descriptor requests an acknowledgement."""

    def _probe(self):
        if self._unanswered and self._change_path is not None:
            self._change_path()
        self._unanswered += 1
        if self.queue.in_flight:
            self._asked_for_all = not self._asked_for_all
            self._recovery.start(self.queue.una if self._asked_for_all else self.queue.left_psn - 1)
