"""What a QP was asked to send: cut into descriptors, handed to the card, kept until it is acknowledged."""

import collections

from ..protocol.segment import MESSAGE_BYTES_MAX, PlainWrite, split
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
        self._waiting = collections.deque()   # requests not cut yet
        self._requests = collections.deque()  # cut, not complete
        self._pieces = PieceLog()
        self._chunks = collections.deque()    # (piece, first, count) of cut requests
        self.refused = None

    def __len__(self):
        """Requests not complete."""
        return len(self._waiting) + len(self._requests)

    def check(self, request):
        """Raise ValueError if a request is longer than 2^31 bytes."""
        if (length := request.length) > MESSAGE_BYTES_MAX:
            raise InvalidValue(f"a request of {length} bytes; at most {MESSAGE_BYTES_MAX} are possible")

    def post(self, request):
        """Accept a request that :meth:`check` let pass. What asks for something, or grants it, overtakes the data of
        answers and of granted sends at the end of the queue: the peer has what to do while these are on their way."""
        if request.end is None or request.bulk:
            self._waiting.append(request)
            return
        at = len(self._waiting)
        while at and self._waiting[at - 1].bulk:
            at -= 1
        self._waiting.insert(at, request)

    def post_all(self, requests):
        """The same for requests without an end."""
        self._waiting.extend(requests)

    # --------------------------------------------------------------------------------- to the card

    def _cut(self):
        while self._waiting and not (self._chunks or self.closed) and self.refused is None:
            if type(self._waiting[0]) is PlainWrite:
                self._cut_writes()
                continue
            request = self._waiting.popleft()
            self._requests.append(request)
            for piece in split(request, self.next_psn, self.pmtu):
                self._pieces.add(piece)
                if piece.packets <= self._step:
                    self._chunks.append((piece, 0, piece.packets))
                else:
                    self._chunks.extend([(piece, *part) for part in piece.chunks(self.chunk_bytes)])
            self.next_psn = request.psn + request.packets

    def _cut_writes(self):
        """The writes that come next, as many as are one piece and one chunk each; the first one whatever its size."""
        waiting, psn, step = self._waiting, self.next_psn, self._step
        while waiting and type(waiting[0]) is PlainWrite:
            write = waiting.popleft()
            write.psn, packets = psn, write.packets
            psn += packets
            self._requests.append(write)
            self._pieces.add(write)
            if packets > step:
                self._chunks.extend([(write, *part) for part in write.chunks(self.chunk_bytes)])
                break
            self._chunks.append((write, 0, packets))
        self.next_psn = psn

    @property
    def has_work(self):
        if not self._chunks:
            if not self._waiting:
                return False
            self._cut()
        return bool(self._chunks) and self.sent_psn < self._end

    @property
    def _end(self):
        """PSN from which on nothing may be handed over for now."""
        most = self.una + self.max_outstanding
        return most if self.limit is None or self.limit > most else self.limit

    def next(self):
        """(piece, first, count) of the next descriptor, or None if there is none, or none may be sent."""
        if not self._chunks:
            self._cut()
            if not self._chunks:
                return None
        end = self.una + self.max_outstanding
        if self.limit is not None and self.limit < end:
            end = self.limit
        if self.sent_psn >= end:
            return None
        chunk = piece, first, count = self._chunks.popleft()
        if (allowed := end - piece.psn - first) < count:
            self._chunks.appendleft((piece, first + allowed, count - allowed))
            chunk = piece, first, count = piece, first, allowed
        self.sent_psn = piece.psn + first + count
        return chunk

    @property
    def drained(self):
        """Nothing that was begun is unfinished."""
        return not self._requests

    @property
    def has_more(self):
        """Not everything posted was handed over."""
        return bool(self._waiting or self._chunks)

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
        complete, requests = [], self._requests
        while requests and requests[0].psn + requests[0].packets <= cum:
            complete.append(requests.popleft())
        return complete

    def refuse(self, psn, status):
        """The card refused the descriptor with this PSN: nothing of its request, and of those behind it, is sent."""
        request = self.request_at(psn)
        first = self.una if request is None else request.psn
        if self.refused is None or first < self.refused[0]:
            self.refused = (first, status)
            self._chunks = collections.deque(c for c in self._chunks if c[0].psn < first)

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
        return next((r for r in self._requests if r.psn <= psn < r.end_psn), None)

    def flush(self):
        """Forget everything; the requests that were not complete."""
        requests = [*self._requests, *self._waiting]
        for queue in (self._requests, self._waiting, self._chunks, self._pieces):
            queue.clear()
        return requests
