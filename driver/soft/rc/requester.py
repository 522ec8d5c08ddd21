"""Requester of a reliable connection: requests out, acknowledgements in (IBTA 1.7, chapters 9.7.3 and 9.7.6)."""

import collections

from weft.hdl.contract import wire

from ...protocol.aeth import Answer, answer_of, rnr_wait_ns
from ...protocol.wrap import near
from ...terms.enums import WCStatus
from ...terms.wc import WC
from .opcodes import READ_RESPONSES, RcOpcode
from .packet import credit_count
from .request import ATOMIC, COMPLETION, LocalError

WINDOW = 64           # limit of packets that are sent and not acknowledged
ACK_EVERY = 16        # packets between two requests for an acknowledgement
FOR_EVER = 7          # RNR retry count without limit
NAK_STATUS = {wire.Syndrome.NAK_INVALID_REQUEST: WCStatus.REM_INV_REQ_ERR,
              wire.Syndrome.NAK_REMOTE_ACCESS: WCStatus.REM_ACCESS_ERR,
              wire.Syndrome.NAK_REMOTE_OPERATIONAL: WCStatus.REM_OP_ERR}


class Requester:
    """Sends requests in order, with go-back-N retransmission.

    After a NAK, a gap in the responses or a time-out, transmission restarts at the first unacknowledged packet.
    Requests complete in order; a failed one causes the later ones to be flushed.

    Parameters
    ----------
    qp : SoftQP
        Uses its ``memory``, ``pd``, ``scq``, ``counts``, ``attr`` and ``fail``.
    psn : int
        First PSN; internally PSNs do not wrap.

    Attributes
    ----------
    requests : deque of Request
        Posted and not completed.
    una, send_psn, max_psn : int
        Oldest unacknowledged PSN, next one to send, first one that was never sent.
    """

    def __init__(self, qp, psn):
        self.qp, self.counts = qp, qp.counts
        self.requests = collections.deque()
        self.una = self.send_psn = self.max_psn = self.next_psn = psn
        self._ssn = 0
        self._completed = 0            # messages that the peer has completed, as far as known
        self._limit = None             # last ssn for which the peer has receives
        self._retries = self._rnr_retries = 0
        self._since = None             # time of the last progress, while packets are in flight
        self._rnr_until = None
        self._gap = None               # PSN of a gap that has caused a retransmission

    def post(self, request):
        """Queue a request."""
        request.first_psn, request.pmtu = self.next_psn, self.qp.pmtu
        request.packets = max(1, -(-request.length // request.pmtu)) if request.opcode not in ATOMIC else 1
        self.next_psn = request.end_psn
        self._ssn += 1
        request.ssn = self._ssn
        self.requests.append(request)

    # ------------------------------------------------------------------------------------ sending

    def next_packet(self, now):
        """Return the next packet to send, or None."""
        request = self._sendable(now)
        if request is None:
            return None
        number = self.send_psn - request.first_psn
        try:
            packet = request.packet(number, self.qp.memory, self.qp.pd)
        except LocalError:
            self._fail(request, WCStatus.LOC_PROT_ERR)
            return None
        packet.psn = self.send_psn % (1 << wire.PSN_BITS)
        self.counts["resent"] += self.send_psn < self.max_psn
        self.send_psn = request.end_psn if request.is_read else self.send_psn + 1
        self.max_psn = max(self.max_psn, self.send_psn)
        last = self.send_psn == request.end_psn
        packet.ack_req = int(last or self.send_psn % ACK_EVERY == 0 or self._stopped_by_credits(request))
        if self._since is None:
            self._since = now
        return packet

    def _sendable(self, now):
        """Return the request whose packet may be sent now, or None."""
        if self._rnr_until is not None:
            if now < self._rnr_until:
                return None
            self._rnr_until = None
        request, reads = None, 0
        for candidate in self.requests:
            if candidate.end_psn > self.send_psn:
                request = candidate
                break
            reads += candidate.responded
        if (request is None or self.send_psn - self.una >= WINDOW
                or request.end_psn - self.una >= wire.PSN_OUTSTANDING_MAX):
            return None
        if reads and (request.fence or request.responded and reads >= self.qp.attr.max_rd_atomic):
            return None
        return None if self._stopped_by_credits(request) and self.send_psn > self.una else request

    def _stopped_by_credits(self, request):
        """Return true if the peer may have no receive: then one packet at a time is sent (chapter 9.7.7.2)."""
        return request.takes_receive and self._limit is not None and request.ssn > self._limit

    # --------------------------------------------------------------------------------------- time

    def check_time(self, now):
        """Go back to the first unacknowledged packet if the time-out has expired without progress."""
        if self._since is not None and self.qp.timeout_ns and now - self._since >= self.qp.timeout_ns:
            self.counts["timeouts"] += 1
            self.qp.change_path()
            self._gap = None
            self._go_back()

    @property
    def deadline(self):
        """Time of the next action, or None."""
        if self._rnr_until is not None:
            return self._rnr_until
        return self._since + self.qp.timeout_ns if self._since is not None and self.qp.timeout_ns else None

    def _go_back(self):
        """Restart transmission at the first unacknowledged packet, or fail if the retry limit is reached."""
        if self._retries >= self.qp.attr.retry_cnt:
            self._fail(self.requests[0], WCStatus.RETRY_EXC_ERR)
            return
        self._retries += 1
        self.send_psn, self._since = self.una, None

    # ---------------------------------------------------------------------------------- receiving

    def on_response(self, packet, now):
        """Process an acknowledgement, or a response to a READ or an atomic; count and drop unexpected ones."""
        psn = near(packet.psn, self.una, wire.PSN_BITS)
        if packet.opcode is RcOpcode.ACKNOWLEDGE:
            self._on_ack(packet, psn, now)
        elif not self.una <= psn < self.max_psn:
            self.counts["ghost_responses"] += 1
        elif self._advance(psn, now) and self.requests:
            request = self.requests[0]
            wanted = READ_RESPONSES if request.is_read else {RcOpcode.ATOMIC_ACKNOWLEDGE} if request.responded else ()
            if packet.opcode not in wanted or not self._store(request, packet, psn):
                self.counts["wrong_responses"] += 1
                return
            request.answered += 1
            self._moved(psn + 1, now)

    def _on_ack(self, packet, psn, now):
        kind = answer_of(packet.syndrome)
        known = self.una <= psn < self.max_psn
        if kind is Answer.ACK and (known or psn == self.una - 1):
            self._take_credits(packet)       # an unsolicited one may report new receives alone
        elif not known:
            self.counts["ghost_responses"] += 1
        if not known:
            return
        if kind is Answer.ACK:
            self._advance(psn + 1, now)
        elif kind is Answer.UNKNOWN:
            self.counts["wrong_responses"] += 1
        elif self._advance(psn, now) and self.requests:
            self._on_nak(kind, packet.syndrome, psn, now)

    def _on_nak(self, kind, syndrome, psn, now):
        """Process a NAK of the oldest unacknowledged packet."""
        if kind is Answer.SEQUENCE_NAK:
            if self._gap != psn and self._rnr_until is None:    # unless caused by packets after an RNR NAK
                self._gap = psn
                self.counts["sequence_naks"] += 1
                self._go_back()
        elif kind is Answer.RNR_NAK:
            self._on_rnr(syndrome, now)
        else:
            self._fail(self.requests[0], NAK_STATUS[syndrome])

    def _on_rnr(self, syndrome, now):
        self.counts["rnr_naks"] += 1
        if self._rnr_retries >= self.qp.attr.rnr_retry != FOR_EVER:
            self._fail(self.requests[0], WCStatus.RNR_RETRY_EXC_ERR)
            return
        self._rnr_retries += 1
        self._rnr_until, self.send_psn, self._since = now + rnr_wait_ns(syndrome), self.una, None

    def _take_credits(self, packet):
        count = credit_count(packet.syndrome)
        completed = near(packet.msn, self._completed, wire.PSN_BITS)
        if completed < self._completed or completed > self._ssn:
            return
        self._completed = completed
        self._limit = None if count is None else completed + count

    def _store(self, request, packet, psn):
        """Store the response to a READ or an atomic; return false if its form is wrong."""
        number = psn - request.first_psn
        if not request.is_read:
            data = packet.original.to_bytes(8, "little")
            offset = 0
        else:
            data = packet.payload
            offset, count = request.span(number)
            last = packet.opcode in (RcOpcode.READ_RESPONSE_LAST, RcOpcode.READ_RESPONSE_ONLY)
            if len(data) != count or last != (number == request.packets - 1):
                return False
        try:
            request.store(offset, data, self.qp.memory, self.qp.pd)
        except LocalError:
            request.status = WCStatus.LOC_PROT_ERR
        return True

    # ---------------------------------------------------------------------------------- progress

    def _advance(self, psn, now):
        """Acknowledge everything below ``psn``; return false if a response before it is missing.

        A missing response is requested again, once for each gap (implied NAK).
        """
        for request in self.requests:
            if request.first_psn >= psn:
                break
            if request.responded and request.first_psn + request.answered < min(psn, request.end_psn):
                missing = request.first_psn + request.answered
                self._moved(missing, now)
                if self._gap != missing:
                    self._gap = missing
                    self.counts["implied_naks"] += 1
                    self._go_back()
                return False
        if psn > self.una:
            self._moved(psn, now)
        return True

    def _moved(self, psn, now):
        """Complete everything below ``psn``."""
        if psn > self.una:
            self.una, self.send_psn = psn, max(self.send_psn, psn)
            self._retries = self._rnr_retries = 0
            self._gap = None
            self._since = now if self.send_psn > psn else None
        while self.requests and (self.requests[0].end_psn <= self.una
                                 or self.requests[0].status is not WCStatus.SUCCESS):
            request = self.requests.popleft()
            if request.status is not WCStatus.SUCCESS or request.signaled:
                self._complete(request, request.status)
            if request.status is not WCStatus.SUCCESS:
                self.qp.fail()
                return

    def _fail(self, request, status):
        """Mark a request as failed; earlier ones still complete."""
        request.status = status
        self._moved(self.una, 0)

    def _complete(self, request, status):
        length = request.length if status is WCStatus.SUCCESS else 0
        self.qp.scq.push(WC(request.wr_id, status, COMPLETION[request.opcode], qp_num=self.qp.qp_num, byte_len=length))

    def flush(self):
        """Complete all requests with WR_FLUSH_ERR."""
        self._since = self._rnr_until = None
        while self.requests:
            self._complete(self.requests.popleft(), WCStatus.WR_FLUSH_ERR)
