"""What a QP was asked to send: cut into descriptors, handed to the card, kept until it is acknowledged."""

import collections

from weft.hdl.contract.wire import packet_count

from ..protocol.segment import split
from .piece_log import PieceLog

ACKED_AT_ONCE = 256     # packets between two that ask for an acknowledgement, as with mlx5 (its log_ack_req_freq is 8)


class SendQueue:
    """Requests in the order they were posted; PSNs are growing integers.

    Parameters
    ----------
    psn : int
        First PSN.
    pmtu : int
        Bytes.
    chunk_bytes : int
        Largest piece handed to the card in one descriptor.
    max_outstanding : int
        PSNs handed over and unacknowledged at most.

    Attributes
    ----------
    acked_at_once : int
        Packets after which the sender wants to hear of them, when requests are posted as a list.
    next_psn : int
        Of the next request to be cut.
    sent_psn : int
        Behind the last packet handed over.
    una : int
        Oldest unacknowledged.
    limit : int or None
        PSN from which on nothing is handed over for now.
    waiting, requests, chunks : deque
        Requests that are not cut yet, those that are and are not complete, and what is left to be handed over of
        these, as (piece, first, count).
    refused : (int, WCStatus) or None
        First PSN of the oldest request that the own card refused, and why.
    """

    def __init__(self, *, psn, pmtu, chunk_bytes, max_outstanding):
        self.pmtu, self.chunk_bytes, self.max_outstanding = pmtu, chunk_bytes, max_outstanding
        self.acked_at_once = min(ACKED_AT_ONCE, max_outstanding // 2)
        self._step = max(1, chunk_bytes // pmtu)     # packets of a chunk
        self.next_psn = self.sent_psn = self.una = psn
        self.limit = None
        self.waiting, self.requests, self.chunks = collections.deque(), collections.deque(), collections.deque()
        self._pieces = PieceLog()
        self.refused = None

    def __len__(self):
        """Requests not complete."""
        return len(self.waiting) + len(self.requests)

    def post(self, requests):
        """Accept requests, in order. What asks for something, or grants it, overtakes the data of answers and of
        granted sends at the end of the queue: the peer has what to do while these are on their way."""
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
        """Cut what comes next: as many requests as are a chunk each, and one that is more; data that others may
        overtake only if it is first."""
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
        if not self.chunks:
            if not self.waiting:
                return False
            self._cut()
        return bool(self.chunks) and self.sent_psn < self._end

    @property
    def _end(self):
        """PSN from which on nothing may be handed over for now."""
        most = self.una + self.max_outstanding
        return most if self.limit is None or self.limit > most else self.limit

    def next(self, entries=1, most_bytes=1):
        """:class:`~weft.driver.protocol.segment.Work` of the next descriptors that may be handed over.

        Each takes one of ``entries`` at least, the last one perhaps more than are left; and none comes behind
        ``most_bytes`` or more.
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
        """Nothing that was begun is unfinished."""
        return not self.requests

    @property
    def has_more(self):
        """Not everything posted was handed over."""
        return bool(self.waiting or self.chunks)

    @property
    def held_back(self):
        """The limit is all that keeps new data back."""
        return self.limit is not None and self.sent_psn >= self.limit and self.has_more

    @property
    def in_flight(self):
        """Something handed over is not acknowledged."""
        return self.una < self.sent_psn

    @property
    def awaits_peer(self):
        """The peer has to say something before it is done."""
        return self.una < self.sent_psn or self.held_back

    # ------------------------------------------------------------------------------ what becomes of it

    def acknowledge(self, cum):
        """Every PSN below ``cum`` arrived; the requests that are complete now."""
        self.una = cum
        self._pieces.acknowledge(cum)
        complete, requests = [], self.requests
        while requests and requests[0].psn + requests[0].packets <= cum:
            complete.append(requests.popleft())
        return complete

    def refuse(self, psn, status):
        """The card refused the descriptor with this PSN: nothing of its request, and of those behind it, is sent."""
        request = self.request_at(psn)
        first = self.una if request is None else request.psn
        if self.refused is None or first < self.refused[0]:
            self.refused = (first, status)
            self.chunks = collections.deque(c for c in self.chunks if c[0].psn < first)

    @property
    def failure(self):
        """(first PSN, status) of the oldest request if the card refused it, and everything before it arrived, or
        None."""
        return self.refused if self.refused is not None and self.una >= self.refused[0] else None

    def piece_at(self, psn):
        """The sent, unacknowledged piece that holds ``psn``, or None. Refused requests have none."""
        if psn >= self.sent_psn:
            return None
        if self.refused is not None and psn >= self.refused[0]:
            return None
        return self._pieces.find(psn)

    def request_at(self, psn):
        """The cut request that is not complete and holds ``psn``, or None."""
        return next((r for r in self.requests if r.psn <= psn < r.end_psn), None)

    def flush(self):
        """Forget everything; the requests that were not complete."""
        requests = [*self.requests, *self.waiting]
        for queue in (self.requests, self.waiting, self.chunks, self._pieces):
            queue.clear()
        return requests
