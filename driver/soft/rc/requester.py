"""The requester of a reliable connection: requests out, acknowledgements in (IBTA 1.7, chapters 9.7.3 and 9.7.6)."""

import collections

from weft.hdl.contract import wire

from ...protocol.aeth import Answer, answer_of, rnr_wait_ns
from ...protocol.wrap import near
from ...terms.enums import WCStatus
from ...terms.wc import WC
from .credits import credit_count
from .opcodes import READ_RESPONSES, RcOpcode
from .request import ATOMIC, COMPLETION, LocalError

WINDOW = 64           # packets that are sent and not acknowledged
ACK_EVERY = 16        # of which so many may pass before an acknowledgement is asked for
FOR_EVER = 7          # of the RNR retry count
NAK_STATUS = {wire.Syndrome.NAK_INVALID_REQUEST: WCStatus.REM_INV_REQ_ERR,
              wire.Syndrome.NAK_REMOTE_ACCESS: WCStatus.REM_ACCESS_ERR,
              wire.Syndrome.NAK_REMOTE_OPERATIONAL: WCStatus.REM_OP_ERR}


class Requester:
    """Sends requests in order and, after a NAK, a gap in the responses or a time-out, again from the first that is not
    acknowledged (go-back-N). They complete in order; a failed one takes all behind it along.

    Parameters
    ----------
    qp : SoftQP
        Of which it uses ``memory``, ``pd``, ``scq``, ``counts``, ``attr`` and ``fail``.
    psn : int
        First PSN; inside they grow for ever.

    Attributes
    ----------
    requests : deque of Request
        Posted and not completed.
    una, send_psn, max_psn : int
        Oldest PSN that is not acknowledged, next to be sent, first that never was.
    """

    def __init__(self, qp, psn):
        self.qp, self.counts = qp, qp.counts
        self.requests = collections.deque()
        self.una = self.send_psn = self.max_psn = self.next_psn = psn
        self._ssn = 0
        self._completed = 0            # messages that the peer completed, as far as is known
        self._limit = None             # last ssn that the peer has receives for
        self._retries = self._rnr_retries = 0
        self._since = None             # when something moved last, while something is on its way
        self._rnr_until = None
        self._gap = None               # PSN of a gap that was answered by going back

    def post(self, request):
        """Queue a request."""
        request.first_psn, request.pmtu = self.next_psn, self.qp.pmtu
        request.packets = max(1, -(-request.length // request.pmtu)) if request.opcode not in ATOMIC else 1
        self.next_psn = request.end_psn
        self._ssn += 1
        request.ssn = self._ssn
        self.requests.append(request)

    # ---------------------------------------------------------------------------------------- out

    def next_packet(self, now):
        """The packet to be sent now, or None."""
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
        """The request whose packet may be sent now, or None."""
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
        """The peer may have no receive for it: it goes one packet at a time (chapter 9.7.7.2)."""
        return request.takes_receive and self._limit is not None and request.ssn > self._limit

    # --------------------------------------------------------------------------------------- time

    def check_time(self, now):
        """Go back to the first unacknowledged packet if nothing moved for too long."""
        if self._since is not None and self.qp.timeout_ns and now - self._since >= self.qp.timeout_ns:
            self.counts["timeouts"] += 1
            self._gap = None
            self._go_back()

    @property
    def deadline(self):
        """When there is something to do, or None."""
        if self._rnr_until is not None:
            return self._rnr_until
        return self._since + self.qp.timeout_ns if self._since is not None and self.qp.timeout_ns else None

    def _go_back(self):
        """Send again from the first unacknowledged packet, unless it was too often."""
        if self._retries >= self.qp.attr.retry_cnt:
            self._fail(self.requests[0], WCStatus.RETRY_EXC_ERR)
            return
        self._retries += 1
        self.send_psn, self._since = self.una, None

    # ----------------------------------------------------------------------------------------- in

    def on_response(self, packet, now):
        """An acknowledgement, or a response to a READ or an atomic. What answers nothing is counted and dropped."""
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
            self._take_credits(packet)       # one that comes unasked may tell of new receives alone
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
        """A NAK of the oldest packet that is not acknowledged."""
        if kind is Answer.SEQUENCE_NAK:
            if self._gap != psn and self._rnr_until is None:    # of what followed the packet that has to wait
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
        """Take the answer to a READ or an atomic; whether it has the form of one."""
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
        """Everything below ``psn`` is acknowledged, unless a response is missing: then false, and it is asked for
        again, once for each gap (implied NAK)."""
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
        """Everything below ``psn`` has ended."""
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
        """A request failed; those before it still end."""
        request.status = status
        self._moved(self.una, 0)

    def _complete(self, request, status):
        length = request.length if status is WCStatus.SUCCESS else 0
        self.qp.scq.push(WC(request.wr_id, status, COMPLETION[request.opcode], qp_num=self.qp.qp_num, byte_len=length))

    def flush(self):
        """Complete everything with WR_FLUSH_ERR."""
        self._since = self._rnr_until = None
        while self.requests:
            self._complete(self.requests.popleft(), WCStatus.WR_FLUSH_ERR)
