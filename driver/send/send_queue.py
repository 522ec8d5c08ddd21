"""What a QP was asked to send: cut into descriptors, handed to the card, kept until it is acknowledged."""

import collections

from ..protocol.segment import MESSAGE_BYTES_MAX, split
from ..terms.errors import InvalidValue
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
    closed : bool
        Requests that were not begun wait.
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
        self.closed = False
        self.waiting, self.requests, self.chunks = collections.deque(), collections.deque(), collections.deque()
        self._pieces = PieceLog()
        self.refused = None

    def __len__(self):
        """Requests not complete."""
        return len(self.waiting) + len(self.requests)

    def check(self, request):
        """Raise ValueError if a request is longer than 2^31 bytes."""
        if (length := request.length) > MESSAGE_BYTES_MAX:
            raise InvalidValue(f"a request of {length} bytes; at most {MESSAGE_BYTES_MAX} are possible")

    def post(self, request):
        """Accept a request that :meth:`check` let pass. What asks for something, or grants it, overtakes the data of
        answers and of granted sends at the end of the queue: the peer has what to do while these are on their way."""
        if request.end is None or request.bulk:
            self.waiting.append(request)
            return
        at = len(self.waiting)
        while at and self.waiting[at - 1].bulk:
            at -= 1
        self.waiting.insert(at, request)

    def post_all(self, requests):
        """The same for requests without an end."""
        self.waiting.extend(requests)

    # --------------------------------------------------------------------------------- to the card

    def _cut(self):
        while self.waiting and not (self.chunks or self.closed) and self.refused is None:
            if self.waiting[0].plain:
                self._cut_writes()
                continue
            request = self.waiting.popleft()
            self.requests.append(request)
            for piece in split(request, self.next_psn, self.pmtu):
                self._pieces.add(piece)
                if piece.packets <= self._step:
                    self.chunks.append((piece, 0, piece.packets))
                else:
                    self.chunks.extend([(piece, *part) for part in piece.chunks(self.chunk_bytes)])
            self.next_psn = request.psn + request.packets

    def _cut_writes(self):
        """The writes that come next, as many as are one piece and one chunk each; the first one whatever its size."""
        waiting, writes, chunks, psn, step = self.waiting, [], self.chunks, self.next_psn, self._step
        while waiting and waiting[0].plain:
            write = waiting.popleft()
            writes.append(write)
            write.psn, packets = psn, write.packets
            psn += packets
            if packets > step:
                chunks.extend([(write, *part) for part in write.chunks(self.chunk_bytes)])
                break
            chunks.append((write, 0, packets))
        self.next_psn = psn
        self.requests.extend(writes)
        self._pieces.add_all(writes)

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

    def next(self):
        """(piece, first, count) of the next descriptor, or None if there is none, or none may be sent."""
        if not self.chunks:
            self._cut()
            if not self.chunks:
                return None
        end = self.una + self.max_outstanding
        if self.limit is not None and self.limit < end:
            end = self.limit
        if self.sent_psn >= end:
            return None
        chunk = piece, first, count = self.chunks.popleft()
        if (allowed := end - piece.psn - first) < count:
            self.chunks.appendleft((piece, first + allowed, count - allowed))
            chunk = piece, first, count = piece, first, allowed
        self.sent_psn = piece.psn + first + count
        return chunk

    def next_whole(self, most, most_bytes):
        """The next descriptors that are whole plain writes, ``most`` at most, until they are ``most_bytes`` or more, or
        no more may be sent."""
        if not self.chunks:
            self._cut()
        chunks, end, found, length = self.chunks, self._end, [], 0
        while chunks and length < most_bytes and len(found) < most:
            piece, _, count = chunks[0]
            if not piece.plain or count != piece.packets or piece.psn + count > end:
                break
            chunks.popleft()
            found.append(piece)
            length += piece.length
        if found:
            self.sent_psn = found[-1].end_psn
        return found

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
