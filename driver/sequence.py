"""Sending side of a QP: what is unacknowledged, what was lost, what to do next.

Sans-IO: fed with requests, control frames, transmit completions and the clock; it answers with
WORK fields, control frames and completions that its owner collects. PSNs and RSNs are plain
growing integers here; their low bits go on the wire.
"""

import collections
from dataclasses import dataclass

from weft.hdl import wire

from .enums import WCStatus
from .holes import node_runs
from .segment import CHUNK_BYTES, request_packets, split
from .timer import Expiry, ProgressTimer
from .wrap import near

_NAK_STATUS = {
    wire.Syndrome.NAK_REMOTE_ACCESS: WCStatus.REM_ACCESS_ERR,
    wire.Syndrome.NAK_INVALID_REQUEST: WCStatus.REM_INV_REQ_ERR,
    wire.Syndrome.NAK_REMOTE_OPERATIONAL: WCStatus.REM_OP_ERR,
}
RNR_RETRY_FOREVER = 7


@dataclass
class ControlFrame:
    """A control frame to the peer; ``payload`` is the node of a LOSS_REPORT."""

    opcode: wire.Opcode
    psn: int
    rsn: int = 0
    syndrome: int = 0
    msn: int = 0
    payload: bytes = b""


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
        self.expected_rsn = 0  # RSN of the first hole of the next loss report
        self.frames = collections.deque()
        self.completions = collections.deque()
        self.failed = None
        self.counts = collections.Counter()
        self._waiting = collections.deque()  # requests not cut yet
        self._requests = collections.deque()  # cut, not complete
        self._pieces = []  # by PSN; [_first:] are unacknowledged
        self._piece_psns = []
        self._first = 0
        self._chunks = collections.deque()  # (piece, first, count) of cut requests
        self._retransmit = collections.deque()  # (piece, first, count, rsn)
        self._in_card = 0  # descriptors handed over, not reported finished
        self._held = {}  # rsn -> (node, holes) that came too early
        self._asked = None  # (rsn, time) of the last REPORT_REQUEST
        self._rnr = 0
        self._refused = None  # (first PSN, status) of the oldest request the own card refused

    # ---------------------------------------------------------------------------- from the application

    def post(self, request):
        """Accept a request.

        Raises
        ------
        ValueError
            If it needs more PSNs than may ever be outstanding.
        """
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
                self._pieces.append(piece)
                self._piece_psns.append(piece.psn)
                self._chunks.extend((piece, first, count) for first, count in piece.chunks(self.chunk_bytes))
            self.next_psn = request.end_psn

    def next_work(self):
        """WORK fields for the SEND ring, or None."""
        self._cut()
        if not self._chunks:
            return None
        piece, first, count = self._chunks.popleft()
        self.sent_psn = piece.psn + first + count
        self._in_card += 1
        self.counts["packets"] += count
        return piece.work(first, count)

    def next_retransmission(self):
        """WORK fields for the RETRANSMIT ring, or None."""
        if not self._retransmit:
            return None
        piece, first, count, rsn = self._retransmit.popleft()
        self._in_card += 1
        self.counts["retransmissions"] += count
        return piece.work(first, count, rsn)

    @property
    def has_work(self):
        self._cut()
        return bool(self._chunks)

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
        while (
            self._first < len(self._pieces) and self._pieces[self._first].psn + self._pieces[self._first].packets <= cum
        ):
            self._first += 1
        if self._first > 256 and self._first * 2 > len(self._pieces):
            del self._pieces[: self._first], self._piece_psns[: self._first]
            self._first = 0
        if cum == self.sent_psn:
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
        self._held[rsn] = (runs, node.count)
        while self.expected_rsn in self._held:
            runs, count = self._held.pop(self.expected_rsn)
            self._retransmit_runs(runs, self.expected_rsn)
            self.expected_rsn += count
            self.counts["reports"] += 1
            if self.una < self.sent_psn:
                self.timer.progress(now)
        self._ask_again(now)

    def _ask_again(self, now):
        if not self._held:
            self._asked = None
            return
        if self._asked is None or self._asked[0] != self.expected_rsn or now - self._asked[1] >= self.timer.probe_ns:
            self._asked = (self.expected_rsn, now)
            self.counts["report_requests"] += 1
            self.frames.append(ControlFrame(wire.Opcode.REPORT_REQUEST, self.sent_psn, self.expected_rsn))

    def _piece_at(self, psn):
        """The unacknowledged piece that holds ``psn``, or None. Pieces of and behind a refused request do not count."""
        if self._refused is not None and psn >= self._refused[0]:
            return None
        lo, hi = self._first, len(self._piece_psns)
        while lo < hi:
            mid = (lo + hi) // 2
            if self._piece_psns[mid] <= psn:
                lo = mid + 1
            else:
                hi = mid
        if lo == self._first:
            return None
        piece = self._pieces[lo - 1]
        return piece if psn < piece.psn + piece.packets else None

    def _retransmit_runs(self, runs, rsn):
        """Queue exactly these PSNs; hole i of the report has RSN ``rsn`` + i."""
        longest = max(1, self.chunk_bytes // self.pmtu)
        last = None  # the newest descriptor of this report, which may still grow
        for psn, length in runs:
            while length:
                piece = self._piece_at(psn) if psn < self.sent_psn else None
                if piece is None:
                    self.counts["unknown_holes"] += 1
                    psn, rsn, length, last = psn + 1, rsn + 1, length - 1, None
                    continue
                first = psn - piece.psn
                count = min(length, piece.packets - first, longest)
                if (
                    last
                    and last[0] is piece
                    and last[1] + last[2] == first
                    and last[3] + last[2] == rsn
                    and last[2] + count <= longest
                ):
                    last[2] += count
                else:
                    last = [piece, first, count, rsn]
                    self._retransmit.append(last)
                psn, rsn, length = psn + count, rsn + count, length - count

    # ------------------------------------------------------------------------------------ the clock

    def poll(self, now):
        """Let time pass: probes, repeated requests, giving up."""
        if self.failed is not None:
            return
        if self._held:
            self._ask_again(now)
        if self.una == self.sent_psn:
            return
        if self._in_card or self._chunks or self._retransmit:
            if self.timer.running:
                self.timer.deadline = max(self.timer.deadline, now + 1)  # the card's turn, not the peer's
            return
        if not self.timer.running:
            return
        expiry = self.timer.poll(now)
        if expiry is Expiry.PROBE:
            self.counts["probes"] += 1
            self.frames.append(ControlFrame(wire.Opcode.PROBE, self.sent_psn, self.expected_rsn))
        elif expiry is Expiry.EXHAUSTED:
            self.fail(WCStatus.RETRY_EXC_ERR)

    @property
    def deadline(self):
        """When :meth:`poll` wants to be called, or None."""
        times = [self.timer.deadline] if self.timer.running and self.una < self.sent_psn else []
        if self._held and self._asked:
            times.append(self._asked[1] + self.timer.probe_ns)
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
        for queue in (
            self._requests,
            self._waiting,
            self._chunks,
            self._retransmit,
            self._held,
            self._pieces,
            self._piece_psns,
        ):
            queue.clear()
        self._first = 0
