"""Sending side of a QP: what is unacknowledged, what was lost, what to do next.

Sans-IO: fed with requests, control frames, transmit completions and the clock; it answers with
WORK fields, control frames and completions that its owner collects. PSNs and RSNs are plain
growing integers here; their low bits go on the wire.
"""

import collections

from weft.hdl import wire

from .control import ControlFrame
from .enums import WCStatus
from .holes import node_runs
from .loss_reports import LossReports
from .piece_log import PieceLog
from .retransmission import RetransmissionQueue
from .segment import CHUNK_BYTES, MESSAGE_BYTES_MAX, request_packets, split
from .timer import Expiry, ProgressTimer
from .wrap import near

_NAK_STATUS = {
    wire.Syndrome.NAK_REMOTE_ACCESS: WCStatus.REM_ACCESS_ERR,
    wire.Syndrome.NAK_INVALID_REQUEST: WCStatus.REM_INV_REQ_ERR,
    wire.Syndrome.NAK_REMOTE_OPERATIONAL: WCStatus.REM_OP_ERR,
}
RNR_RETRY_FOREVER = 7


class Sender:
    """Sending side of one QP.

    Parameters
    ----------
    psn : int
        First PSN.
    pmtu : int
        Bytes.
    probe_ns, timeout_ns, retry_cnt : int
        See :class:`ProgressTimer`.
    rnr_retry : int
        Receiver-not-ready answers before giving up; 7 means never.
    chunk_bytes : int
        Largest piece handed to the card in one descriptor.
    max_outstanding : int
        PSNs unacknowledged at most, less than 2^23.

    Attributes
    ----------
    frames, completions : deque
        To be collected: :class:`ControlFrame`, and (:class:`Request`, WCStatus) in order.
    failed : WCStatus or None
        Why the QP is in error.
    limit : int or None
        PSN from which on the peer wants no new data for now.
    counts : Counter
        Statistics by name.
    """

    def __init__(
        self,
        *,
        psn,
        pmtu,
        probe_ns,
        timeout_ns,
        retry_cnt=7,
        rnr_retry=RNR_RETRY_FOREVER,
        chunk_bytes=CHUNK_BYTES,
        max_outstanding=wire.PSN_OUTSTANDING_MAX - 1,
    ):
        self.pmtu, self.chunk_bytes = pmtu, chunk_bytes
        self.max_outstanding = min(max_outstanding, wire.PSN_OUTSTANDING_MAX - 1)
        self.rnr_retry = rnr_retry
        self.timer = ProgressTimer(probe_ns, timeout_ns, retry_cnt)
        self.next_psn = psn  # of the next request to be cut
        self.sent_psn = psn  # behind the last packet handed over
        self.una = psn  # oldest unacknowledged
        self.frames = collections.deque()
        self.completions = collections.deque()
        self.failed = None
        self.counts = collections.Counter()
        self._waiting = collections.deque()  # requests not cut yet
        self._requests = collections.deque()  # cut, not complete
        self._pieces = PieceLog()
        self._chunks = collections.deque()  # (piece, first, count) of cut requests
        self._retransmit = RetransmissionQueue(max(1, chunk_bytes // pmtu))
        self._in_card = 0  # descriptors handed over, not reported finished
        self._reports = LossReports(probe_ns)
        self._rnr = 0
        self.limit = None
        self._limit_serial = 0
        self._refused = None  # (first PSN, status) of the oldest request the own card refused

    # ---------------------------------------------------------------------------- from the application

    def post(self, request):
        """Accept a request.

        Raises
        ------
        ValueError
            If it is longer than 2^31 bytes, or needs more PSNs than may ever be outstanding.
        """
        if request.length > MESSAGE_BYTES_MAX:
            raise ValueError(f"a request of {request.length} bytes; at most {MESSAGE_BYTES_MAX} are possible")
        if request_packets(request, self.pmtu) > self.max_outstanding:
            raise ValueError(f"a request of {request.length} bytes needs more than {self.max_outstanding} packets")
        if self.failed is not None:
            self.completions.append((request, WCStatus.WR_FLUSH_ERR))
        else:
            self._waiting.append(request)

    @property
    def outstanding(self):
        """Requests not completed."""
        return len(self._waiting) + len(self._requests)

    @property
    def idle(self):
        return not self.outstanding

    # --------------------------------------------------------------------------------- to the card

    def _cut(self):
        while self._waiting and not self._chunks and self._refused is None:
            request = self._waiting[0]
            if self.next_psn + request_packets(request, self.pmtu) - self.una > self.max_outstanding:
                return
            self._waiting.popleft()
            self._requests.append(request)
            for piece in split(request, self.next_psn, self.pmtu):
                self._pieces.add(piece)
                self._chunks.extend((piece, first, count) for first, count in piece.chunks(self.chunk_bytes))
            self.next_psn = request.end_psn

    def next_work(self):
        """WORK fields for the SEND ring, or None."""
        if not self.has_work:
            return None
        piece, first, count = self._chunks.popleft()
        if self.limit is not None and piece.psn + first + count > self.limit:
            allowed = self.limit - piece.psn - first
            self._chunks.appendleft((piece, first + allowed, count - allowed))
            count = allowed
        self.sent_psn = piece.psn + first + count
        self._in_card += 1
        self.counts["packets"] += count
        return piece.work(first, count)

    def next_retransmission(self):
        """WORK fields for the RETRANSMIT ring, or None."""
        if not self._retransmit:
            return None
        piece, first, count, rsn = self._retransmit.next()
        self._in_card += 1
        self.counts["retransmissions"] += count
        return piece.work(first, count, rsn)

    @property
    def has_work(self):
        self._cut()
        return bool(self._chunks) and (self.limit is None or self.sent_psn < self.limit)

    @property
    def held_back(self):
        """The peer's limit is all that keeps new data back."""
        return self.limit is not None and self.sent_psn >= self.limit and bool(self._chunks or self._waiting)

    @property
    def has_retransmission(self):
        return bool(self._retransmit)

    def on_transmitted(self, now):
        """The card finished one descriptor of this QP."""
        self._in_card -= 1
        if self.failed is None and self.una < self.sent_psn:
            self.timer.progress(now)

    def on_refused(self, psn, status, now):
        """The card refused a descriptor with 32-bit ``psn``: its request fails, once those before it are complete."""
        if self.failed is not None:
            return
        psn = near(psn, self.una, 32)
        first = next((r.psn for r in self._requests if r.psn <= psn < r.end_psn), self.una)
        if self._refused is None or first < self._refused[0]:
            self._refused = (first, status)
            self._chunks = collections.deque(c for c in self._chunks if c[0].psn < first)
        self._fail_if_next()
        if self.failed is None:
            self.timer.progress(now)

    def _fail_if_next(self):
        if self._refused is not None and self.una >= self._refused[0]:
            self.fail(self._refused[1])

    # --------------------------------------------------------------------------------- from the peer

    def on_ack(self, psn, syndrome, now):
        """An ACKNOWLEDGE frame with 24-bit ``psn``."""
        if self.failed is not None:
            return
        if syndrome in _NAK_STATUS:
            self._on_nak(near(psn, self.una, wire.PSN_BITS), _NAK_STATUS[syndrome], now)
            return
        cum = near((psn + 1) % (1 << wire.PSN_BITS), self.una, wire.PSN_BITS)
        if syndrome >> 5 == wire.Syndrome.RNR_NAK >> 5:
            cum -= 1  # it names the packet that found no receive request
            self._acknowledge(cum, now)
            self.timer.answered()
            self._rnr += 1
            if self.rnr_retry != RNR_RETRY_FOREVER and self._rnr > self.rnr_retry:
                self.fail(WCStatus.RNR_RETRY_EXC_ERR)
            return
        self._acknowledge(cum, now)

    def _acknowledge(self, cum, now):
        if not self.una <= cum <= self.sent_psn:
            self.counts["stray_acks"] += 1
            return
        self.timer.answered()
        if cum == self.una:
            return
        self.una = cum
        self._rnr = 0
        while self._requests and self._requests[0].end_psn <= cum:
            self.completions.append((self._requests.popleft(), WCStatus.SUCCESS))
        self._pieces.acknowledge(cum)
        if cum == self.sent_psn and not self.held_back:
            self.timer.stop()
        else:
            self.timer.progress(now)
        self._fail_if_next()

    def _on_nak(self, psn, status, now):
        if not self.una <= psn < self.sent_psn:
            self.counts["stray_acks"] += 1
            return
        self._acknowledge(psn, now)
        self.fail(status)

    def on_receive_limit(self, psn, limited, serial, now):
        """A RECEIVE_LIMIT frame with 24-bit ``psn``. The timer runs while it holds new data back: the news of its end
        may get lost, and a probe is answered with it."""
        if self.failed is not None:
            return
        serial = near(serial, self._limit_serial, wire.LIMIT_SERIAL_BITS)
        self.timer.answered()
        if serial < self._limit_serial:
            return
        self._limit_serial = serial
        self.limit = near(psn, self.sent_psn, wire.PSN_BITS) if limited else None
        self.counts["limits"] += 1
        if self.held_back or self.una < self.sent_psn:
            self.timer.progress(now)

    def on_loss_report(self, node, now):
        """A LOSS_REPORT frame with its unpacked NODE."""
        if self.failed is not None:
            return
        rsn = near(node.rsn, self.expected_rsn, 32)
        if rsn < self.expected_rsn:
            self.counts["repeated_reports"] += 1
            self.timer.answered()
            return
        try:
            runs = node_runs(node, self.una)
        except ValueError:
            self.counts["bad_reports"] += 1
            return
        self.timer.answered()
        self._reports.add(rsn, runs, node.count)
        for first, ready in self._reports.take():
            self.counts["unknown_holes"] += self._retransmit.add(ready, first, self._piece_at)
            self.counts["reports"] += 1
            if self.una < self.sent_psn:
                self.timer.progress(now)
        self._ask_again(now)

    @property
    def expected_rsn(self):
        """RSN of the first hole of the next loss report."""
        return self._reports.expected

    def _ask_again(self, now):
        if self._reports.ask(now):
            self.counts["report_requests"] += 1
            self.frames.append(ControlFrame(wire.Opcode.REPORT_REQUEST, self.sent_psn, self.expected_rsn))

    def _piece_at(self, psn):
        """The sent, unacknowledged piece that holds ``psn``, or None. Refused requests have none."""
        if psn >= self.sent_psn:
            return None
        if self._refused is not None and psn >= self._refused[0]:
            return None
        return self._pieces.find(psn)

    # ------------------------------------------------------------------------------------ the clock

    def poll(self, now):
        """Let time pass: probes, repeated requests, giving up."""
        if self.failed is not None:
            return
        if self._reports:
            self._ask_again(now)
        if self.una == self.sent_psn and not self.held_back:
            return
        if self._in_card or self.has_work or self._retransmit:
            if self.timer.running:
                self.timer.deadline = max(self.timer.deadline, now + 1)  # the card's turn, not the peer's
            return
        if not self.timer.running:
            return
        expiry = self.timer.poll(now)
        if expiry is Expiry.PROBE:
            self.counts["probes"] += 1
            self.counts["probes_midway"] += bool(self._waiting or self._chunks)
            self.frames.append(ControlFrame(wire.Opcode.PROBE, self.sent_psn, self.expected_rsn))
        elif expiry is Expiry.EXHAUSTED:
            self.fail(WCStatus.RETRY_EXC_ERR)

    @property
    def deadline(self):
        """When :meth:`poll` wants to be called, or None."""
        times = [self.timer.deadline] if self.timer.running and (self.una < self.sent_psn or self.held_back) else []
        if self._reports.deadline is not None:
            times.append(self._reports.deadline)
        return min(times, default=None)

    @property
    def in_card(self):
        """Descriptors handed over and not reported finished."""
        return self._in_card

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
        for request in [*self._requests, *self._waiting]:
            self.completions.append((request, status))
            status = WCStatus.WR_FLUSH_ERR
        for queue in (self._requests, self._waiting, self._chunks, self._retransmit, self._reports, self._pieces):
            queue.clear()
