"""Sending side of a QP: handles the peer's frames, loss recovery and timers.

Sans-IO: the inputs are requests, control frames, transmit completions and the time; the outputs are WORK fields,
control frames and completions, which the owner collects. PSNs and RSNs are growing integers here; packets hold their
low bits.
"""

import collections

from weft.hdl.contract import wire

from ..protocol.aeth import ANSWERS, Answer, PathQuery, rnr_wait_ns
from ..protocol.control import ControlFrame
from ..protocol.segment import CHUNK_BYTES
from ..protocol.timer import Expiry, ProgressTimer
from ..protocol.wrap import near
from ..terms.enums import WCStatus
from .flow_limit import LimitedQueue
from .paced_flow import PacedQueue
from .path_search import PathSearch
from .recovery import Recovery
from .send_queue import SendQueue

_NAK_STATUS = {
    wire.Syndrome.NAK_REMOTE_ACCESS: WCStatus.REM_ACCESS_ERR,
    wire.Syndrome.NAK_INVALID_REQUEST: WCStatus.REM_INV_REQ_ERR,
    wire.Syndrome.NAK_REMOTE_OPERATIONAL: WCStatus.REM_OP_ERR,
}
RNR_RETRY_FOREVER = 7
LIMIT_STEPS_MAX = 256   # consecutive changes of the receive limit that may be lost


class Sender:
    """Sending side of one QP.

    Parameters
    ----------
    psn, pmtu, chunk_bytes, max_outstanding
        See :class:`SendQueue`. Fewer than 2^23 PSNs are outstanding.
    probe_ns, timeout_ns, retry_cnt : int
        See :class:`ProgressTimer`.
    rnr_retry : int
        RNR NAKs before the request fails; 7 means no limit.
    flow : FlowLimit or None
        Congestion control; None: no limit of the bytes in flight.

    Attributes
    ----------
    queue : SendQueue
        Posted, incomplete requests.
    frames, completions : deque
        For the owner to collect: :class:`ControlFrame`, and (:class:`Request`, WCStatus) in order.
    failed : WCStatus or None
        Reason for the error state.
    paced : bool
        The card paces the packets: it reports their descriptors as finished, not the rings.
    in_card : int
        Descriptors passed to the card and not reported as finished.
    in_rings : int
        Descriptors that are in the rings of the card.
    msn : int
        Requests that the peer reports as complete.
    awaiting : bool
        The owner waits for more than the acknowledgement: for the peer to complete a request, or for a response.
    in_turn : callable(psn, status) or None
        Called for a request that fails, instead of an immediate error. The owner then calls :meth:`fail` when all
        earlier requests are complete.
    search : PathSearch or None
        Search of another path; None: the QP keeps its path.
    timeouts : int
        Expiries of the timer that the owner has not counted yet.
    counts : Counter
        Statistics by name.
    """

    def __init__(self, *, psn, pmtu, probe_ns, timeout_ns, retry_cnt=7, rnr_retry=RNR_RETRY_FOREVER,
                 chunk_bytes=CHUNK_BYTES, max_outstanding=wire.PSN_OUTSTANDING_MAX - 1, flow=None):
        options = {"psn": psn, "pmtu": pmtu, "chunk_bytes": chunk_bytes,
                   "max_outstanding": min(max_outstanding, wire.PSN_OUTSTANDING_MAX - 1)}
        self.flow, self.paced = flow, flow is not None and flow.paced
        self.queue = (SendQueue(**options) if flow is None else
                      (PacedQueue if self.paced else LimitedQueue)(flow, **options))
        self.rnr_retry = rnr_retry
        self.timer = ProgressTimer(probe_ns, timeout_ns, retry_cnt)
        self.frames = collections.deque()
        self.completions = collections.deque()
        self.failed = None
        self.counts = collections.Counter()
        self.in_card, self._in_rings = 0, 0
        self.msn = 0
        self.awaiting = False
        self.in_turn = None
        self.search, self._take_port, self.timeouts = None, None, 0
        self._again_in_card = 0
        self._recovery = Recovery(longest=max(1, chunk_bytes // pmtu), counts=self.counts)
        self._rnr, self._asked = 0, False      # _asked: a probe was sent after the last RNR NAK that counts
        self._limit_serial, self._came_ns = 0, None

    def search_path(self, seed, take):
        """Look for another path when probes go unanswered. ``take(port)`` changes the UDP source port of the QP.

        ``seed`` is that of the ports.
        """
        self.search, self._take_port = PathSearch(seed, self.timer), take

    # ---------------------------------------------------------------------------- from the application

    def post(self, requests):
        """Accept requests. In the error state they are flushed."""
        if self.failed is not None:
            self.completions.extend([(request, WCStatus.WR_FLUSH_ERR) for request in requests])
        else:
            self.queue.post(requests)

    @property
    def outstanding(self):
        """Number of incomplete requests."""
        return len(self.queue)

    @property
    def idle(self):
        return not self.outstanding

    @property
    def at_rest(self):
        """True if nothing must be sent, awaited or collected."""
        queue = self.queue
        return (self.timer.deadline is None and self.failed is None and not (
            self.awaiting or self.completions or self.frames or queue.requests or queue.waiting))

    # --------------------------------------------------------------------------------- to the card

    @property
    def has_work(self):
        return self.queue.has_work

    @property
    def bulk(self):
        return self.queue.bulk

    def next_work(self, entries=1, most_bytes=1):
        """Return a list of :class:`~weft.driver.protocol.segment.Work` for the SEND ring. See :meth:`SendQueue.next`.
        """
        before = self.queue.sent_psn
        works = self.queue.next(entries, most_bytes)
        self.in_card += len(works)
        self._in_rings += len(works)
        self.counts["packets"] += self.queue.sent_psn - before
        if self.search is not None:
            self.search.pushed(works, self.queue.sent_psn)
        if self.flow is not None:
            self.flow.pushed(works, self.queue.sent_psn)
        return works

    @property
    def has_retransmission(self):
        return self._recovery.has_work and (not self.paced or self.flow.takes_again)

    def next_retransmission(self):
        """Return :class:`~weft.driver.protocol.segment.Work` for the RETRANSMIT ring, or None."""
        if not self._recovery.has_work:
            return None
        work, count = self._recovery.next()
        self.in_card += 1
        self._in_rings += 1
        self._again_in_card += 1
        self.counts["retransmissions"] += count
        if self.paced:
            self.flow.pushed_again(work, count)
        return work

    @property
    def in_rings(self):
        return self._in_rings if self.paced else self.in_card

    def on_taken(self, descriptors):
        """Note that ``descriptors`` descriptors went from the rings to the pacer."""
        self._in_rings -= descriptors

    def on_paced(self, psn, again, time_ns, now):
        """Handle a report PACED with 32-bit ``psn``; return the number of descriptors that it ends."""
        count = self.flow.reported(psn, again, time_ns, now)
        if count:
            self.on_transmitted(now, again, count)
        else:
            self.counts["stray_paced"] += 1
        return count

    def _forget_paced(self):
        """Note that the pacer discards all descriptors of the QP."""
        self.flow.discarded()
        self.in_card = self._again_in_card = 0

    def on_transmitted(self, now, again=False, descriptors=1):
        """Note that the card retired ``descriptors`` descriptors of this QP: new work, or retransmissions if ``again``.

        New work counts as progress of the timer; retransmissions only restart it.
        """
        self.in_card -= descriptors
        self._note_retired(now, again, descriptors)
        if self.failed is None and (self.queue.una < self.queue.sent_psn or self.awaiting):
            (self.timer.restart if again else self.timer.progress)(now)
            if self.flow is not None:
                self._ask_for_answer()

    def _note_retired(self, now, again, descriptors):
        if again:
            self._again_in_card -= descriptors
            return
        if self.search is not None:
            self.search.retired(descriptors, self.queue.una, now)
        if self.flow is not None:
            self.flow.retired(descriptors, now)

    def _ask_for_answer(self):
        """Request an acknowledgement within a message if congestion control needs one."""
        if self._repeats_nothing and (psn := self.flow.ask(self.queue.sent_psn)) is not None:
            self.counts["flow_probes"] += 1
            self._send_probe(psn)

    @property
    def counts_to_the_last(self):
        """True if only the last descriptor that the card retires matters."""
        return self.timer.round_trip.opened is None and self.flow is None

    def on_refused(self, psn, status, now):
        """Handle a descriptor with 32-bit ``psn`` that the card rejected.

        Its request fails when all requests before it are complete.
        """
        if self.failed is not None:
            return
        if self.paced:
            self._forget_paced()
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

    def on_ack(self, psn, syndrome, now, msn=None, requests=0, oldest_psn=None, came_ns=None):
        """Handle an ACKNOWLEDGE frame with 24-bit ``psn`` and ``msn``. Unknown syndromes are counted and ignored.

        ``requests`` is the upper limit of ``msn``. The peer may still reject the request whose first PSN is
        ``oldest_psn``, the oldest for which the owner waits. The card got the frame at ``came_ns`` of its clock.
        """
        if self.failed is not None:
            return
        self._came_ns = came_ns
        self._heard(now)
        if msn is not None and not self.msn < (msn := near(msn, self.msn, wire.PSN_BITS)) <= requests:
            msn = None
        answer = ANSWERS[syndrome]
        named = near(psn, self.queue.una - 1, wire.PSN_BITS)
        if answer is Answer.ACK:
            self._acknowledge(named + 1, now, msn)
        elif answer in (Answer.NAK, Answer.RNR_NAK):
            if self._nameable(named, oldest_psn):
                self._acknowledge(max(named, self.queue.una), now, msn)
                if self.failed is None and answer is Answer.NAK:
                    self._fail_in_turn(named, _NAK_STATUS[syndrome])
                elif self.failed is None:
                    self.timer.not_ready(now, rnr_wait_ns(syndrome))
                    if self.search is not None:
                        self.search.not_ready(self.timer.deadline)
                    self._count_not_ready(named)
        elif answer is Answer.SEQUENCE_NAK:
            self._on_sequence_nak(named, now)
        else:
            self.counts["bad_syndromes"] += 1

    def _heard(self, now):
        """Note a frame of the peer."""
        if self.search is not None:
            self.search.heard(now)

    def on_path(self, port, peers_port, now):
        """Take the UDP source port that an answer names, if it asked.

        The peer takes the port from which it answered. Packets that left the card before are missing at the peer. A
        probe lets the peer report them, also while the card has more work.
        """
        if self.failed is not None or self.search is None or port not in self.search.asked:
            self.counts["late_answers"] += 1
            return
        self._take_port(port)
        self._heard(now)
        self.timer.answered(now)
        self.frames.append(ControlFrame(wire.Opcode.ACKNOWLEDGE, self.queue.una, syndrome=PathQuery.TAKE,
                                        msn=peers_port))
        if self._peers_turn:
            self._probe()
        elif self._repeats_nothing:
            self._send_probe(max(self.queue.una, self.search.left_psn or 0))

    def _acknowledge(self, cum, now, msn):
        """Handle the acknowledgement of every PSN below ``cum``, and of ``msn`` requests unless ``msn`` is None.

        Return false if ``cum`` was never sent, or is older than the last acknowledgement.
        """
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
        if self.search is not None:
            self.search.acknowledged(cum, now)
        if self.flow is not None:
            self.flow.acknowledged(cum, queue.sent_psn, now, self._came_ns)
        self.completions.extend([(request, WCStatus.SUCCESS) for request in queue.acknowledge(cum)])
        if queue.una == queue.sent_psn and self._recovery.held:
            self._recovery.forget_held()
        self.moved(now)
        if queue.refused is not None:
            self._fail_if_refused()
        return True

    @property
    def awaits_peer(self):
        """True if progress needs a frame of the peer."""
        return self.awaiting or self.queue.awaits_peer

    def moved(self, now):
        """Restart the timer after progress, or stop it if nothing is awaited."""
        if self.awaiting or self.queue.awaits_peer:
            self.timer.progress(now)
        else:
            self._stop_timer()

    def _stop_timer(self):
        self.timer.stop()
        if self.search is not None:
            self.search.rest()

    def await_peer(self, awaiting, now):
        """Set :attr:`awaiting`."""
        if awaiting != self.awaiting:
            self.awaiting = awaiting
            if awaiting != (self.timer.deadline is not None):
                self.moved(now)

    def _nameable(self, psn, oldest_psn=None):
        """Return true if the peer may send a NAK for this packet."""
        oldest = self.queue.una if oldest_psn is None else min(oldest_psn, self.queue.una)
        if oldest <= psn < self.queue.sent_psn:
            return True
        self.counts["stray_acks"] += 1
        return False

    def _count_not_ready(self, psn):
        """Count an RNR NAK. Of all that answer one probe, one counts, whatever came before it."""
        self._rnr += self._asked
        self._asked = False
        if self.rnr_retry != RNR_RETRY_FOREVER and self._rnr > self.rnr_retry:
            self._fail_in_turn(psn, WCStatus.RNR_RETRY_EXC_ERR)

    def _on_sequence_nak(self, psn, now):
        """Handle a NAK for a missing packet. The loss report that follows lists all missing packets."""
        self.counts["sequence_naks"] += 1
        self.timer.hurry(now)

    def on_receive_limit(self, psn, limited, serial, now):
        """Handle a RECEIVE_LIMIT frame with 24-bit ``psn``.

        The timer runs while the limit holds back new data: the frame that lifts the limit may be lost, and the response
        to a probe repeats it.
        """
        if self.failed is not None:
            return
        serial = near(serial, self._limit_serial, wire.LIMIT_SERIAL_BITS)
        psn = near(psn, self.queue.sent_psn, wire.PSN_BITS)
        if serial > self._limit_serial + LIMIT_STEPS_MAX or limited and psn > self.queue.sent_psn:
            self.counts["bad_limits"] += 1
            return
        self._heard(now)
        self.timer.answered(now)
        if serial <= self._limit_serial:
            return
        self._limit_serial = serial
        self.queue.limit = psn if limited else None
        self.counts["limits"] += 1
        if self.awaits_peer:
            self.timer.restart(now)

    def on_cnp(self, now):
        """Handle a congestion notification of the peer."""
        if self.failed is None and self.flow is not None:
            self.flow.congested(now)

    def on_loss_report(self, node, now):
        """Handle a LOSS_REPORT frame with its unpacked NODE."""
        if self.failed is not None:
            return
        taken = self._recovery.take(node, self.queue)
        if taken is None:
            return
        self._heard(now)
        self.timer.answered(now)
        if taken:
            if self.search is not None:
                self.search.lost()
            if self.flow is not None:
                self.flow.lost(taken, self.queue.sent_psn, now)
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
            self.timer.round_trip.discard()
            self.frames.append(ControlFrame(wire.Opcode.REPORT_REQUEST, self.queue.sent_psn, self.expected_rsn))

    # ------------------------------------------------------------------------------------ the clock

    def poll(self, now, spares=False):
        """Advance the time: send probes, repeat requests, or give up.

        With ``spares``, no program waits for the outstanding requests. If the peer then stops responding, the sender
        pauses until it receives a frame, instead of failing.
        """
        if self.failed is not None:
            return
        if self._recovery.held:
            self._ask_again(now)
        if self.timer.deadline is not None and now >= self.timer.deadline and self._peers_turn:
            self._expire(now, spares)
        self.look_for_path(now)

    def _expire(self, now, spares):
        """Probe the peer, or give up."""
        expiry = self.timer.poll(now)
        if expiry is Expiry.PROBE:
            self.counts["probes"] += 1
            self.counts["probes_midway"] += self.queue.has_more
            self.timeouts += 1
            self._asked = True
            self._probe()
            self._ask_paths(now)
        elif expiry is Expiry.EXHAUSTED:
            if spares:
                self.counts["rests"] += 1
                self._stop_timer()
            else:
                self.fail(WCStatus.RETRY_EXC_ERR)

    def look_for_path(self, now):
        """Probe a silent peer, also while the card has work, and look for another path if probes go unanswered."""
        search, queue = self.search, self.queue
        if search is None or self.failed is not None:
            return
        if search.due is None:
            if self.in_card or self.awaiting or queue.una < queue.sent_psn or queue.chunks or queue.waiting:
                search.begin(now)
            return
        if now < search.due:
            return
        peers_turn = self._peers_turn
        if not (peers_turn or self.in_card or queue.has_work or self._recovery.has_work):
            search.rest()
            return
        if not search.silent(now):
            return
        if peers_turn and not search.quick:
            search.due = self.timer.deadline      # whose expiry probes
        elif not (peers_turn or self._repeats_nothing):
            search.later(now)
        else:
            self.counts["path_probes"] += 1
            if peers_turn:
                self.timer.round_trip.probe_sent(now)
            self._send_probe(queue.left_psn if peers_turn else queue.una)
            self._ask_paths(now)

    def _ask_paths(self, now):
        """Ask from other ports whether frames arrive, after a probe."""
        if self.search is not None:
            for port in self.search.probed(now):
                self.frames.append(ControlFrame(wire.Opcode.ACKNOWLEDGE, self.queue.una, syndrome=PathQuery.ASK,
                                                sport=port))

    @property
    def _repeats_nothing(self):
        """True if the card has all retransmissions, and has sent them: a probe notifies the peer of that."""
        return not (self._again_in_card or self._recovery.has_work)

    def _probe(self):
        """Ask the peer for everything that it misses."""
        self._send_probe(self.queue.left_psn)

    def _send_probe(self, psn):
        """Ask the peer for what it misses before ``psn``. The oldest unacknowledged one only asks for an answer."""
        self.frames.append(ControlFrame(wire.Opcode.PROBE, psn, self.expected_rsn))

    @property
    def _card_works(self):
        """True if the card has descriptors that it may send."""
        return self.flow.works if self.paced else self.in_card > 0

    @property
    def _peers_turn(self):
        """True if the timer counts.

        While the card has descriptors that it may send, or will get some, elapsed time does not concern the peer. The
        timer restarts when the card retires the last descriptor.
        """
        queue = self.queue
        return (not self._card_works and self.timer.deadline is not None
                and (self.awaiting or queue.una < queue.sent_psn or queue.held_back)
                and not ((queue.chunks or queue.waiting) and queue.may_leave or self._recovery.has_work))

    @property
    def deadline(self):
        """Time at which :meth:`poll` must be called, or None."""
        due = None if self._card_works or self.timer.deadline is None or not self._peers_turn else self.timer.deadline
        if self.search is not None and (looks := self.search.due) is not None and (due is None or looks < due):
            due = looks
        if not self._recovery.held:
            return due
        asks = self._recovery.deadline
        if due is None or asks is None:
            return asks if due is None else due
        return min(due, asks)

    def abandon(self):
        """Stop sending, without completions: the QP is being destroyed."""
        if self.failed is None:
            self.fail(WCStatus.WR_FLUSH_ERR)
        self.completions.clear()

    def fail(self, status):
        """Enter the error state: the oldest request completes with ``status``, all others are flushed."""
        if self.failed is not None:
            return
        self.failed = status
        if self.paced:
            self._forget_paced()
        self._stop_timer()
        self._recovery.clear()
        for request in self.queue.flush():
            self.completions.append((request, status))
            status = WCStatus.WR_FLUSH_ERR
