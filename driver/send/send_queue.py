"""Send queue of a QP: requests are cut into descriptors, passed to the card, and kept until acknowledged."""

import collections

from weft.hdl.contract.wire import packet_count

from ..protocol.segment import split
from .piece_log import PieceLog

ACKED_AT_ONCE = 256     # packets between two acknowledgement requests, as with mlx5 (log_ack_req_freq is 8)


class SendQueue:
    """Requests in the order in which they were posted. PSNs are growing integers.

    Parameters
    ----------
    psn : int
        First PSN.
    pmtu : int
        Bytes.
    chunk_bytes : int
        Largest payload of one descriptor.
    max_outstanding : int
        Largest number of PSNs that are passed to the card and unacknowledged.

    Attributes
    ----------
    acked_at_once : int
        Packets after which the sender requests an acknowledgement if requests are posted as a list.
    next_psn : int
        PSN of the next request to cut.
    sent_psn : int
        PSN after the last packet that was passed to the card.
    una : int
        Oldest unacknowledged PSN.
    limit : int or None
        PSN from which on nothing may be passed to the card at present.
    waiting, requests, chunks : deque
        Requests that are not cut yet; requests that are cut and incomplete; their remaining parts for the card, as
        (piece, first, count).
    refused : (int, WCStatus) or None
        First PSN of the oldest request that the local card rejected, and the status.
    """

    def __init__(self, *, psn, pmtu, chunk_bytes, max_outstanding):
        self.pmtu, self.chunk_bytes, self.max_outstanding = pmtu, chunk_bytes, max_outstanding
        self.acked_at_once = min(ACKED_AT_ONCE, max_outstanding // 2)
        self._step = max(1, chunk_bytes // pmtu)     # packets per chunk
        self.next_psn = self.sent_psn = self.una = psn
        self.limit = None
        self.waiting, self.requests, self.chunks = collections.deque(), collections.deque(), collections.deque()
        self._pieces = PieceLog()
        self.refused = None

    def __len__(self):
        """Return the number of incomplete requests."""
        return len(self.waiting) + len(self.requests)

    def post(self, requests):
        """Accept requests, in order.

        Requests and grants overtake the bulk data (responses and granted sends) at the end of the queue, so that the
        peer can work while the data is in flight.
        """
        waiting = self.waiting
        for request in requests:
            if request.end is None or request.bulk:
                waiting.append(request)
                continue
            at = len(waiting)
            while at and waiting[at - 1].bulk:
                at -= 1
            waiting.insert(at, request)

    # --------------------------------------------------------------------------------- to the card

    def _cut(self):
        """Cut the next requests: all that fit a chunk each, and one larger request.

        Bulk data, which other requests may overtake, is cut only if it is first.
        """
        waiting, requests, chunks, pieces = self.waiting, self.requests, self.chunks, []
        psn, pmtu, step = self.next_psn, self.pmtu, self._step
        while waiting and self.refused is None and not (chunks and waiting[0].end is not None and waiting[0].bulk):
            request = waiting.popleft()
            requests.append(request)
            if request.single:
                request.psn, request.pmtu, request.last = psn, pmtu, not request.followed
                if (count := request.packets) is None:
                    count = request.packets = packet_count(request.remote_va, request.length, pmtu)
                psn += count
                pieces.append(request)
                if count <= step:
                    chunks.append((request, 0, count))
                    continue
                cut = (request,)
            else:
                cut = split(request, psn, pmtu)
                pieces += cut
                psn += request.packets
            for piece in cut:
                if piece.packets <= step:
                    chunks.append((piece, 0, piece.packets))
                else:
                    chunks.extend([(piece, *part) for part in piece.chunks(self.chunk_bytes)])
            if request.packets > step:
                break
        self.next_psn = psn
        self._pieces.add(pieces)

    @property
    def has_work(self):
        return bool(self.chunks or self.waiting and self.refused is None) and self.sent_psn < self._end

    @property
    def may_leave(self):
        """True if the card would send the next descriptor."""
        return self.has_work

    @property
    def left_psn(self):
        """PSN before which everything has left the card, when it sends nothing more for now."""
        return self.sent_psn

    @property
    def begun_psn(self):
        """PSN from which on nothing has left the card."""
        return self.sent_psn

    @property
    def bulk(self):
        """True if bulk data, which later requests and grants overtake, is at the end of the queue."""
        return bool(self.waiting) and self.waiting[-1].bulk

    @property
    def _end(self):
        """PSN from which on nothing may be passed to the card at present."""
        most = self.una + self.max_outstanding
        return most if self.limit is None or self.limit > most else self.limit

    def next(self, entries=1, most_bytes=1):
        """Return the next descriptors that may be passed to the card.

        Each takes at least one of ``entries``; the last one may exceed the rest. No descriptor follows after
        ``most_bytes`` or more.

        Returns
        -------
        list of :class:`~weft.driver.protocol.segment.Work`
        """
        works, chunks, end, sent, length = [], self.chunks, self._end, self.sent_psn, 0
        while entries > 0 and length < most_bytes:
            if not chunks:
                if self.waiting:
                    self._cut()
                if not chunks:
                    break
            piece, first, count = chunks[0]
            allowed = end - piece.psn - first
            if count <= allowed:
                chunks.popleft()
            elif allowed > 0:
                chunks[0] = piece, first + allowed, count - allowed
                count = allowed
            else:
                break
            works.append(work := piece if count == piece.packets else piece.work(first, count))
            length += work.length
            sent = piece.psn + first + count
            entries -= 1 if piece.inline is None else piece.entries
        self.sent_psn = sent
        return works

    @property
    def drained(self):
        """True if no request that was cut is incomplete."""
        return not self.requests

    @property
    def has_more(self):
        """True if posted requests remain to be passed to the card."""
        return bool(self.waiting or self.chunks)

    @property
    def held_back(self):
        """True if only the limit holds back new data."""
        return self.limit is not None and self.sent_psn >= self.limit and self.has_more

    @property
    def in_flight(self):
        """True if packets that were passed to the card are unacknowledged."""
        return self.una < self.sent_psn

    @property
    def awaits_peer(self):
        """True if progress needs a frame of the peer."""
        return self.una < self.sent_psn or self.held_back

    # ------------------------------------------------------------------------------ completion

    def acknowledge(self, cum):
        """Mark every PSN below ``cum`` as received. Return the requests that this completes."""
        self.una = cum
        self._pieces.acknowledge(cum)
        complete, requests = [], self.requests
        while requests and requests[0].psn + requests[0].packets <= cum:
            complete.append(requests.popleft())
        return complete

    def refuse(self, psn, status):
        """Stop at the descriptor with this PSN, which the card rejected: its request and later ones are not sent."""
        request = self.request_at(psn)
        first = self.una if request is None else request.psn
        if self.refused is None or first < self.refused[0]:
            self.refused = (first, status)
            self.chunks = collections.deque(c for c in self.chunks if c[0].psn < first)

    @property
    def failure(self):
        """First PSN and status of the oldest rejected request if nothing before it is unacknowledged, else None."""
        return self.refused if self.refused is not None and self.una >= self.refused[0] else None

    def piece_at(self, psn):
        """Return the sent, unacknowledged piece that holds ``psn``, or None. Rejected requests have none."""
        if psn >= self.sent_psn:
            return None
        if self.refused is not None and psn >= self.refused[0]:
            return None
        return self._pieces.find(psn)

    def request_at(self, psn):
        """Return the cut, incomplete request that holds ``psn``, or None."""
        return next((r for r in self.requests if r.psn <= psn < r.end_psn), None)

    def flush(self):
        """Remove everything. Return the incomplete requests."""
        requests = [*self.requests, *self.waiting]
        for queue in (self.requests, self.waiting, self.chunks, self._pieces):
            queue.clear()
        return requests
