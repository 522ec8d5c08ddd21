"""Write engine of the timing model: groups are granted in round robin, written in that order, and sent on RQ.

The cycles are those of ``hdl/pcie/dma_write.py``, ``write_align.py``, ``piece_beats.py``, ``write_store.py`` and
``rq.py``. A grant determines all its later events, so the model has no events in between. Grants are computed on
demand.
"""

from collections import deque

from .timing import BEAT_BYTES, CYCLE_NS

STREAM, NIC, COMMAND, RINGS, STATUS, MESSAGES = 0, 1, 2, 3, 6, 7     # clients, in the order of the round robin
CLIENTS = 8
GROUPS_GRANTED = 4
PIECES = 3              # pieces between the splitter and the aligner's current piece
WRITE_BYTES = 16        # header of a write on RQ
READ_BYTES_ON_LINK = 24     # size of a read request
RAW_PACE = 4 * CYCLE_NS      # from a raw frame's grant until the request of the next one, see hdl/simple_nic.py
DATA = 2 * CYCLE_NS     # from a group's entry into the order until its first beat
USED = 2 * CYCLE_NS     # from a beat until the aligner uses it
WHOLE = 8 * CYCLE_NS    # from a piece's last beat until its packet may begin on RQ
STORED = 6 * CYCLE_NS   # from a piece's last beat until it is in the store
STORE_BEATS = 64
TICKETS = 64            # newest tickets with a known time of placement; older ones were placed long ago
PACKETS = 1024          # packets that are kept beyond need
READ, WRITTEN = 1, 2    # kinds of requests for which the host's port returns credits
ANSWERED = 146.5        # from the first request at the host's port to its acknowledgement of all; see cocotbext-pcie
ANSWER_BYTES = 8        # of each acknowledgement
ANSWERS = 4             # acknowledgements that are kept
NEVER = float("inf")


class Group:
    """Group of writes that a client requests.

    Attributes
    ----------
    at : float
        Time of the request.
    segments : sequence of (address, length)
        Written in order.
    beats : int
        Of all segments.
    granted : callable(last, packet), None
        Called with the time at which its last beat is taken, and its last packet, for :meth:`WriteEngine.then`.
    """

    __slots__ = ("at", "beats", "client", "granted", "segments", "ticket")

    def __init__(self, at, client, segments, granted=None, ticket=None):
        self.at, self.client, self.segments, self.granted, self.ticket = at, client, segments, granted, ticket
        self.beats = sum([-(-length // BEAT_BYTES) for _, length in segments])


class WriteEngine:
    """Engine for all writes of a card to its host.

    Parameters
    ----------
    loop : EventLoop
    timing : Timing
    host : HostTiming

    Attributes
    ----------
    ticket : int
        Number of the newest group of the receive path.
    ended : bool
        True after a reset of the card: no further events.
    up_free : float
        Time at which the newest granted write has left the link.
    read_out, read_left : float
        Times at which the newest read was sent on RQ, and at which it had left the link.
    backlog : float
        Duration of the stream's groups that wait for their grant, nanoseconds.
    """

    def __init__(self, loop, timing, host):
        self._loop, self._timing, self._host = loop, timing, host
        self._pace = CYCLE_NS / (1 - host.stall)     # of a beat on RQ
        self._stream = deque()      # groups of the receive path: payload and raw frames, in their order
        self._asking = [None] * CLIENTS     # groups of the other clients, one each
        self._owner = 0             # client of the last grant
        self._free = 0.0            # earliest time of the next grant
        self._stream_free = self._raw_free = 0.0    # earliest time of the next request of the stream; of a raw frame
        self._split = 0.0           # time at which the newest piece left the splitter
        self._lined = deque([0.0] * PIECES)     # times at which the newest pieces began to be aligned
        self._used = 0.0            # time at which the newest piece's last beat was used
        self._ordered = deque([0.0] * GROUPS_GRANTED)   # times at which the newest groups left the order
        self._last = 0.0            # time at which the newest group's last beat was taken
        self._stored = deque()      # (time at which a packet has left the store, its beats)
        self._held = 0              # beats in the store
        self._rq_free = 0.0
        self._packets = deque()     # [begin on RQ, end there, end on the link, duration on the link], oldest first
        self._wrote = self._link_was = 0.0      # newest removed packet: end on RQ, end on the link
        self._next = NEVER          # time of the next check for grants
        self.up_free = self.read_out = self.read_left = self.backlog = 0.0
        self.ticket, self.ended = 0, False
        self._tickets = [(0, 0.0)] * TICKETS        # (ticket, time of placement), by ticket modulo their count
        self._placed, self._placed_at = 0, 0.0      # the newest of them
        self._answers = deque()     # [time of an acknowledgement of the host's port, its kinds], oldest first
        self._granted_groups = []             # (granted, last, packet) of groups whose clients are not notified yet

    # ---------------------------------------------------------------------------------------------- clients

    def stream(self, time_ns, segments, client=STREAM, granted=None):
        """Request a group of the receive path, which may be empty; return its ticket."""
        self.advance()
        self.ticket += 1
        group = Group(time_ns, client, segments, granted, self.ticket)
        self._stream.append(group)
        self.backlog += group.beats * CYCLE_NS
        if granted:
            self._look_at(time_ns)
        return self.ticket

    def ask(self, client, time_ns, address, length, granted):
        """Request a group of another client, whose previous group was granted; ``time_ns`` is in the future."""
        self._asking[client] = Group(time_ns, client, ((address, length),), granted)
        self._look_at(time_ns)

    def placed(self, ticket):
        """Return the time at which the last beat of a packet was taken; 0.0: long ago; None: not granted yet."""
        self.advance()
        if ticket > self._placed:
            return None
        number, at = self._tickets[ticket % TICKETS]
        return at if number == ticket else 0.0

    def seen(self, packet):
        """Return the time at which a packet is in memory, as known now: later reads may still delay it."""
        return packet[2] + self._timing.pcie_hop

    def then(self, packet, function, *arguments):
        """Call a function when a packet is in memory."""
        at = self.seen(packet)
        self._loop.call_at(at, self._arrive, at, packet, function, arguments)

    def _arrive(self, at, packet, function, arguments):
        if self.seen(packet) > at:      # reads have delayed it since
            self.then(packet, function, *arguments)
        else:
            function(*arguments)

    # ------------------------------------------------------------------ acknowledgements of the host's port

    def _arrives(self, time_ns, kind):
        """Schedule the host's acknowledgement of a request, with credits; one covers several requests."""
        answers = self._answers
        if answers and time_ns <= answers[-1][0]:
            answers[-1][1] |= kind
            return
        if len(answers) == ANSWERS:
            answers.popleft()
        answers.append([time_ns + ANSWERED, kind])

    def acknowledge(self, free):
        """Return the time at which a packet may begin on the link to the card.

        The link is free from ``free`` on, except for due acknowledgements of the host's port.
        """
        answers, now = self._answers, self._loop.now_ns
        while answers and answers[0][0] <= max(free, now):
            due, kinds = answers.popleft()
            free = max(free, due) + ANSWER_BYTES * (1 + (kinds + 1 >> 1)) / self._timing.pcie_bytes_per_ns
        return max(free, now)

    @property
    def again(self):
        """Earliest time later than now at which a group may be granted."""
        return max(self._free, self._loop.now_ns + CYCLE_NS)

    @property
    def backlog_ns(self):
        """Time until the requested groups of the stream are taken."""
        return max(0.0, self._last - self._loop.now_ns) + self.backlog

    def _look_at(self, time_ns):
        if time_ns < self._next:
            self._next = time_ns
            self._loop.call_at(time_ns, self._look, time_ns)

    def _look(self, at):
        """Notify the clients of granted groups, and schedule the next check."""
        if at != self._next or self.ended:
            return
        self._next = NEVER
        self.advance()
        granted_groups, self._granted_groups = self._granted_groups, []
        for granted, last, packet in granted_groups:
            granted(last, packet)
        waiting = [group.at for group in self._asking if group]
        waiting += [group.at for group in self._stream if group.granted]
        if waiting:
            self._look_at(max(min(waiting), self.again))

    # ----------------------------------------------------------------------------------------------- grants

    def advance(self):
        """Grant all groups whose time has come."""
        now = self._loop.now_ns
        while True:
            stream = self._stream
            while stream and not stream[0].segments and (at := max(stream[0].at, self._stream_free)) <= now:
                self._stream_free = at + CYCLE_NS
                self._note(stream.popleft().ticket, max(at, self._placed_at) + CYCLE_NS)
            first = NEVER
            if stream and stream[0].segments:
                first = max(stream[0].at, self._stream_free)
                if stream[0].client == NIC:
                    first = max(first, self._raw_free)
            asks = first
            for group in self._asking:
                if group is not None and group.at < asks:
                    asks = group.at
            at = max(asks, self._free)
            if at > now:
                return
            self._grant(at, stream[0] if first <= at else None)

    def _note(self, ticket, at):
        self._placed, self._placed_at = ticket, at
        self._tickets[ticket % TICKETS] = ticket, at

    def _grant(self, at, head):
        """Grant the group of the next requesting client; ``head`` is the stream's group if the stream requests."""
        for step in range(1, CLIENTS + 1):
            client = (self._owner + step) % CLIENTS
            if head is not None and head.client == client:
                group = self._stream.popleft()
                break
            group = self._asking[client]
            if group is not None and group.at <= at:
                self._asking[client] = None
                break
        self._owner = client
        last = self._write(at, group.segments, client)
        if group is head:
            self._stream_free = at + CYCLE_NS
            if client == NIC:
                self._raw_free = at + RAW_PACE
            self.backlog -= group.beats * CYCLE_NS
            self._note(group.ticket, last)
        if group.granted:
            self._granted_groups.append((group.granted, last, self._packets[-1]))

    def _write(self, granted, segments, client):
        """Write a group; return the time at which its last beat is taken."""
        size, timing = self._host.max_payload_bytes, self._timing
        header = timing.message_header_bytes if client == MESSAGES else timing.write_header_bytes
        moved, beat = granted, None
        for address, length in segments:
            moved = max(moved + CYCLE_NS, self._split)
            if beat is None:
                moved = max(moved, self._ordered.popleft() + CYCLE_NS)
                ordered = max(moved + CYCLE_NS, self._last)
                self._ordered.append(ordered)
                beat = ordered                      # time at which the newest beat was taken, or could have been
            self._split = moved
            while length:
                piece = min(length, size - address % size)
                address, length = address + piece, length - piece
                beat = self._piece(beat, piece)
                cost = (piece + header) / timing.pcie_bytes_per_ns
                self.up_free = max(self.up_free, self._rq_free - CYCLE_NS) + cost
                packet = self._packets[-1]
                packet[2], packet[3] = self.up_free, cost
                self._arrives(self.up_free + timing.pcie_hop, WRITTEN)
        self._free, self._last = moved, beat
        return beat

    def _piece(self, beat, length):
        """Write a piece as a packet on RQ; return the time of its last beat. ``beat``: time of the preceding beat."""
        self._split = max(self._split + CYCLE_NS, self._lined.popleft() + CYCLE_NS)
        lined = max(self._split + 2 * CYCLE_NS, self._used)
        self._lined.append(lined)
        beats = -(-length // BEAT_BYTES)
        last = max(beat + beats * CYCLE_NS, lined + (beats - 1) * CYCLE_NS + CYCLE_NS - USED)
        stored = last + STORED
        while self._held + beats > STORE_BEATS:
            left, count = self._stored.popleft()
            stored, self._held = max(stored, left), self._held - count
        last = stored - STORED
        self._used = last + USED
        begin = max(last + WHOLE, self._rq_free)
        self._rq_free = begin + -(-(WRITE_BYTES + length) // BEAT_BYTES) * self._pace
        self._stored.append((self._rq_free, beats))
        self._held += beats
        if len(self._packets) > PACKETS:
            self._forget()
        self._packets.append([begin, self._rq_free, 0.0, 0.0])
        return last

    # -------------------------------------------------------------------------------------- concurrent reads

    def let_pass(self, at):
        """Send a read at a time, or after the write that is on RQ then. Later writes are delayed."""
        self.advance()
        self._forget()
        packets, wrote = self._packets, self._wrote
        for packet in packets:
            begin, end = packet[0], packet[1]
            if begin > at or (begin == at and wrote > self.read_out):
                break       # reads and writes alternate
            if at < end:
                at = end
            wrote = end
        free, left = at + self._pace, max(self._link_was, self.read_left)
        self.read_out, after = at, False
        for packet in packets:
            begin, end, was, cost = packet
            if begin < at:
                left = max(left, was)
                continue
            if not after:
                after, left = True, self._read_leaves(left, at)
            moves = begin < free
            if moves:
                packet[0], packet[1] = free, free + end - begin
                free = packet[1]
                self._rq_free = max(self._rq_free, free)
            left = max(left, packet[1] - CYCLE_NS) + cost
            if left == was and not moves:
                break
            packet[2] = left
            self.up_free = max(self.up_free, left)
        if not after:
            self.up_free = max(self.up_free, self._read_leaves(left, at))

    def _read_leaves(self, left, at):
        """Send the read over the link after the packets before it."""
        self.read_left = max(left, at) + READ_BYTES_ON_LINK / self._timing.pcie_bytes_per_ns
        self._arrives(self.read_left + self._timing.pcie_hop, READ)
        return self.read_left

    def _forget(self):
        now, packets = self._loop.now_ns, self._packets
        while packets and packets[0][1] < now:
            _, self._wrote, self._link_was, _ = packets.popleft()
