"""Sending side of a QP: what the peer says, what was lost, what to do next.

Sans-IO: fed with requests, control frames, transmit completions and the clock; it answers with
WORK fields, control frames and completions that its owner collects. PSNs and RSNs are plain
growing integers here; their low bits go on the wire.
"""

import collections

from weft.hdl.contract import wire

from ..protocol.aeth import ANSWERS, Answer, rnr_wait_ns
from ..protocol.control import ControlFrame
from ..protocol.segment import CHUNK_BYTES
from ..protocol.timer import Expiry, ProgressTimer
from ..protocol.wrap import near
from ..terms.enums import WCStatus
from .recovery import Recovery
from .send_queue import SendQueue

_NAK_STATUS = {
    wire.Syndrome.NAK_REMOTE_ACCESS: WCStatus.REM_ACCESS_ERR,
    wire.Syndrome.NAK_INVALID_REQUEST: WCStatus.REM_INV_REQ_ERR,
    wire.Syndrome.NAK_REMOTE_OPERATIONAL: WCStatus.REM_OP_ERR,
}
RNR_RETRY_FOREVER = 7
LIMIT_STEPS_MAX = 256   # changes of the receive limit that may get lost one after the other


class Sender:
    """Sending side of one QP.

    Parameters
    ----------
    psn, pmtu, chunk_bytes, max_outstanding
        See :class:`SendQueue`; outstanding are always less than 2^23.
    probe_ns, timeout_ns, retry_cnt : int
        See :class:`ProgressTimer`.
    rnr_retry : int
        Receiver-not-ready answers before giving up; 7 means never.

    Attributes
    ----------
    queue : SendQueue
        What was posted and is not complete.
    frames, completions : deque
        To be collected: :class:`ControlFrame`, and (:class:`Request`, WCStatus) in order.
    failed : WCStatus or None
        Why the QP is in error.
    in_card : int
        Descriptors handed over and not reported finished.
    msn : int
        Requests that the peer says are complete.
    awaiting : bool
        The owner waits for more than that what was sent arrived: for the peer to be done with it, or for an answer.
    in_turn : callable(psn, status) or None
        Told of a request that will not succeed, instead of everything failing at once: its owner calls :meth:`fail`
        when all before it are complete.
    counts : Counter
        Statistics by name.
    """

    def __init__(self, *, psn, pmtu, probe_ns, timeout_ns, retry_cnt=7, rnr_retry=RNR_RETRY_FOREVER,
                 chunk_bytes=CHUNK_BYTES, max_outstanding=wire.PSN_OUTSTANDING_MAX - 1):
        self.queue = SendQueue(psn=psn, pmtu=pmtu, chunk_bytes=chunk_bytes,
                               max_outstanding=min(max_outstanding, wire.PSN_OUTSTANDING_MAX - 1))
        self.rnr_retry = rnr_retry
        self.timer = ProgressTimer(probe_ns, timeout_ns, retry_cnt)
        self.frames = collections.deque()
        self.completions = collections.deque()
        self.failed = None
        self.counts = collections.Counter()
        self.in_card = 0
        self.msn = 0
        self.awaiting = False
        self.in_turn = None
        self._recovery = Recovery(longest=max(1, chunk_bytes // pmtu), counts=self.counts)
        self._rnr = 0
        self._limit_serial = 0

    # ---------------------------------------------------------------------------- from the application

    def post(self, requests):
        """Accept requests."""
        if self.failed is not None:
            self.completions.extend([(request, WCStatus.WR_FLUSH_ERR) for request in requests])
        else:
            self.queue.post(requests)

    @property
    def outstanding(self):
        """Requests not completed."""
        return len(self.queue)

    @property
    def idle(self):
        return not self.outstanding

    @property
    def at_rest(self):
        """Nothing is to be sent, waited for, or told of."""
        queue = self.queue
        return (self.timer.deadline is None and self.failed is None and not (
            self.awaiting or self.completions or self.frames or queue.requests or queue.waiting))

    # --------------------------------------------------------------------------------- to the card

    @property
    def has_work(self):
        return self.queue.has_work

    def next_work(self, entries=1, most_bytes=1):
        """List of :class:`~weft.driver.protocol.segment.Work` for the SEND ring; see :meth:`SendQueue.next`."""
        before = self.queue.sent_psn
        works = self.queue.next(entries, most_bytes)
        self.in_card += len(works)
        self.counts["packets"] += self.queue.sent_psn - before
        return works

    @property
    def has_retransmission(self):
        return self._recovery.has_work

    def next_retransmission(self):
        """:class:`~weft.driver.protocol.segment.Work` for the RETRANSMIT ring, or None."""
        if not self._recovery.has_work:
            return None
        work, count = self._recovery.next()
        self.in_card += 1
        self.counts["retransmissions"] += count
        return work

    def on_transmitted(self, now, again=False, descriptors=1):
        """The card finished so many descriptors of this QP: new work, of which there is not without end, or such that
        was sent again."""
        self.in_card -= descriptors
        if self.failed is None and (self.queue.una < self.queue.sent_psn or self.awaiting):
            (self.timer.restart if again else self.timer.progress)(now)

    @property
    def counts_to_the_last(self):
        """Of its descriptors only the last one that the card finishes matters."""
        return self.timer.round_trip.opened is None

    def on_refused(self, psn, status, now):
        """The card refused a descriptor with 32-bit ``psn``: its request fails, once those before it are complete."""
        if self.failed is not None:
            return
        self.queue.refuse(near(psn, self.queue.una, 32), status)
        self._fail_if_refused()
        if self.failed is None:
            self.timer.progress(now)

    def _fail_if_refused(self):
        if (failure := self.queue.failure) is not None:
            self._fail_in_turn(*failure)

    def _fail_in_turn(self, psn, status):
        if self.in_turn is None:
            self.fail(status)
        else:
            self.in_turn(psn, status)

    # --------------------------------------------------------------------------------- from the peer

    def on_ack(self, psn, syndrome, now, msn=None, requests=0, oldest_psn=None):
        """An ACKNOWLEDGE frame with 24-bit ``psn`` and ``msn``. What its ``syndrome`` does not say is not done.

        The peer cannot be done with more than ``requests``, and may still refuse the one whose first PSN is
        ``oldest_psn``, the oldest that the owner waits for.
        """
        if self.failed is not None:
            return
        if msn is not None and not self.msn < (msn := near(msn, self.msn, wire.PSN_BITS)) <= requests:
            msn = None
        answer = ANSWERS[syndrome]
        named = near(psn, self.queue.una - 1, wire.PSN_BITS)
        if answer is Answer.ACK:
            self._acknowledge(named + 1, now, msn)
        elif answer in (Answer.NAK, Answer.RNR_NAK):
            if self._nameable(named, oldest_psn):
                asked = self.timer.round_trip.asking
                self._acknowledge(max(named, self.queue.una), now, msn)
                if self.failed is None and answer is Answer.NAK:
                    self._fail_in_turn(named, _NAK_STATUS[syndrome])
                elif self.failed is None:
                    self.timer.not_ready(now, rnr_wait_ns(syndrome))
                    self._count_not_ready(named, asked)
        elif answer is Answer.SEQUENCE_NAK:
            self._on_sequence_nak(named, now)
        else:
            self.counts["bad_syndromes"] += 1

    def _acknowledge(self, cum, now, msn):
        """Every PSN below ``cum`` arrived, and the peer is done with ``msn`` requests, if that is news; false if
        that was never sent, or is known to have arrived."""
        queue = self.queue
        if not queue.una <= cum <= queue.sent_psn:
            self.counts["stray_acks"] += 1
            return False
        self.timer.answered(now)
        if msn is not None:
            self.msn, self._rnr = msn, 0
        if cum == queue.una:
            if msn is not None:
                self.moved(now)
            return True
        if not self.awaiting:
            self._rnr = 0
        self.completions.extend([(request, WCStatus.SUCCESS) for request in queue.acknowledge(cum)])
        if queue.una == queue.sent_psn and self._recovery.held:
            self._recovery.forget_held()
        self.moved(now)
        if queue.refused is not None:
            self._fail_if_refused()
        return True

    @property
    def awaits_peer(self):
        """The peer has to say something."""
        return self.awaiting or self.queue.awaits_peer

    def moved(self, now):
        """Something that was waited for came, or there is something to wait for."""
        if self.awaiting or self.queue.awaits_peer:
            self.timer.progress(now)
        else:
            self.timer.stop()

    def await_peer(self, awaiting, now):
        """Set :attr:`awaiting`."""
        if awaiting != self.awaiting:
            self.awaiting = awaiting
            if awaiting != (self.timer.deadline is not None):
                self.moved(now)

    def _nameable(self, psn, oldest_psn=None):
        """A packet that the peer may say something bad of."""
        oldest = self.queue.una if oldest_psn is None else min(oldest_psn, self.queue.una)
        if oldest <= psn < self.queue.sent_psn:
            return True
        self.counts["stray_acks"] += 1
        return False

    def _count_not_ready(self, psn, asked):
        """A packet found no receive request. One such answer for each probe counts, however many come."""
        self._rnr += asked
        if self.rnr_retry != RNR_RETRY_FOREVER and self._rnr > self.rnr_retry:
            self._fail_in_turn(psn, WCStatus.RNR_RETRY_EXC_ERR)

    def _on_sequence_nak(self, psn, now):
        """The peer misses this packet; what it misses altogether its report says."""
        self.counts["sequence_naks"] += 1
        self.timer.hurry(now)

    def on_receive_limit(self, psn, limited, serial, now):
        """A RECEIVE_LIMIT frame with 24-bit ``psn``. The timer runs while it holds new data back: the news of its end
        may get lost, and a probe is answered with it."""
        if self.failed is not None:
            return
        serial = near(serial, self._limit_serial, wire.LIMIT_SERIAL_BITS)
        psn = near(psn, self.queue.sent_psn, wire.PSN_BITS)
        if serial > self._limit_serial + LIMIT_STEPS_MAX or limited and psn > self.queue.sent_psn:
            self.counts["bad_limits"] += 1
            return
        self.timer.answered(now)
        if serial <= self._limit_serial:
            return
        self._limit_serial = serial
        self.queue.limit = psn if limited else None
        self.counts["limits"] += 1
        if self.awaits_peer:
            self.timer.restart(now)

    def on_loss_report(self, node, now):
        """A LOSS_REPORT frame with its unpacked NODE."""
        if self.failed is not None:
            return
        taken = self._recovery.take(node, self.queue)
        if taken is None:
            return
        self.timer.answered(now)
        if taken:
            self.timer.restart(now)
        if any(psn <= self.queue.una < psn + length for psn, length in taken):
            self.timer.lost_again()
        self._ask_again(now)

    @property
    def expected_rsn(self):
        """RSN of the first hole of the next loss report."""
        return self._recovery.expected_rsn

    def _ask_again(self, now):
        if self._recovery.asks(now, self.timer.probe_ns):
            self.counts["report_requests"] += 1
            self.timer.round_trip.asked_otherwise()
            self.frames.append(ControlFrame(wire.Opcode.REPORT_REQUEST, self.queue.sent_psn, self.expected_rsn))

    # ------------------------------------------------------------------------------------ the clock

    def poll(self, now, spares=False):
        """Let time pass: probes, repeated requests, giving up. With ``spares`` nobody waits for what is on its way: if
        the peer does not answer any more, sending rests until it speaks."""
        if self.failed is not None:
            return
        if self._recovery.held:
            self._ask_again(now)
        if self.timer.deadline is None or now < self.timer.deadline or not self._peers_turn:
            return
        expiry = self.timer.poll(now)
        if expiry is Expiry.PROBE:
            self.counts["probes"] += 1
            self.counts["probes_midway"] += self.queue.has_more
            self._probe()
        elif expiry is Expiry.EXHAUSTED:
            if spares:
                self.counts["rests"] += 1
            else:
                self.fail(WCStatus.RETRY_EXC_ERR)

    def _probe(self):
        """Ask the peer what it misses."""
        self.frames.append(ControlFrame(wire.Opcode.PROBE, self.queue.sent_psn, self.expected_rsn))

    @property
    def _peers_turn(self):
        """The timer counts. While the card has descriptors, or is to get some, it says nothing of the peer; when the
        last of them is finished the time begins anew."""
        queue = self.queue
        return (not self.in_card and self.timer.deadline is not None
                and (self.awaiting or queue.una < queue.sent_psn or queue.held_back)
                and not ((queue.chunks or queue.waiting) and queue.has_work or self._recovery.has_work))

    @property
    def deadline(self):
        """When :meth:`poll` wants to be called, or None."""
        due = None if self.in_card or self.timer.deadline is None or not self._peers_turn else self.timer.deadline
        if not self._recovery.held:
            return due
        asks = self._recovery.deadline
        if due is None or asks is None:
            return asks if due is None else due
        return min(due, asks)

    def abandon(self):
        """Hand nothing more over: the QP is being destroyed; nothing is completed."""
        if self.failed is None:
            self.fail(WCStatus.WR_FLUSH_ERR)
        self.completions.clear()

    def fail(self, status):
        """Into error: the oldest request gets ``status``, all others are flushed."""
        if self.failed is not None:
            return
        self.failed = status
        self.timer.stop()
        self._recovery.clear()
        for request in self.queue.flush():
            self.completions.append((request, status))
            status = WCStatus.WR_FLUSH_ERR
