"""The transmit path in time: reads under way, packets complete in order, one frame at a time on the line."""

from collections import deque

from weft.hdl import abi, wire

from ..functional.transmit_path import TransmitPath
from .pcie import Read
from .timing import BEAT_BYTES, CYCLE_NS, LINE_OVERHEAD_BYTES, PREAMBLE_BYTES, edge

Ring = abi.Ring
AHEAD_NS = 100.0    # packets whose place will be free so soon are taken already
BULK_SHARE = 8      # see hdl/pcie/dma_read.py
FIFO_BEATS = 19     # between the framer and the MAC, besides the send buffer


class _Job:
    """A packet that waits for its payload."""

    __slots__ = ("done", "frame", "last", "open", "ring", "slots")

    def __init__(self, frame, ring, last, slots):
        self.frame, self.ring, self.last = frame, ring, last
        self.slots = slots      # rows of each of its slots
        self.done = [0.0] * len(slots)
        self.open = len(slots)


class _Lane:
    """A client of the bulk reader: slots in ring order."""

    __slots__ = ("free", "jobs", "slots")

    def __init__(self, slots):
        self.slots, self.free = slots, deque()      # times at which taken slots are free again, as far as known
        self.jobs = deque()


class TimedTransmitPath(TransmitPath):
    """:class:`TransmitPath` with the reads of payload and the buffers between."""

    def __init__(self, card):
        super().__init__(card)
        share = max(card.params.bulk_tags // BULK_SHARE, 1)
        self._data, self._raw = _Lane(card.params.bulk_tags - share), _Lane(share)
        self._streams = {}          # ring -> [iterator over packets, the next one, first time it may go]
        self._next_check = 0.0
        self._framer_free = self._line_free = 0.0
        self._buffered = deque()    # (begins to leave the send buffer, has left it, beats), oldest first
        self._beats = 0
        self._woken = 0.0           # when it will be looked again
        self._reads = deque()       # that wait for room

    # -------------------------------------------------------------------------------------- taking packets

    def start(self):
        """Take what there is place for."""
        if self.card.transmit_path is not self:
            return
        now = self.card.loop.now_ns
        if not self._reads:
            while (taken := self._pull(now)) is not None and taken:
                pass
        self._raw_frames_in(now)

    def _wake_at(self, time_ns):
        """Look again when a place is free, or a descriptor has passed its stages."""
        if not self.card.loop.now_ns < self._woken <= time_ns:
            self._woken = time_ns
            self.card.loop.call_at(time_ns, self.start)

    def room(self):
        """There may be room for reads again."""
        reads = self._reads
        while reads and self.card.pcie.room(reads[0][1]):
            at, read = reads.popleft()
            self.card.pcie.read(max(at, self.card.loop.now_ns + self.card.timing.room), read)
        if not reads:
            self.start()

    def _head(self, ring):
        """The stream of a ring, with its next packet; None if there is none."""
        rings = self.card.rings
        stream = self._streams.get(ring)
        while stream is None or stream[1] is None:
            if rings.peek(ring) is None:
                return None
            packets = self.packets(rings.take(ring))
            stream = self._streams[ring] = [packets, next(packets, None),
                                            self.card.loop.now_ns + self.card.timing.descriptor]
            if stream[1] is None:
                self._streams[ring] = None
                rings.finish(ring)
                stream = None
        return stream

    def _pull(self, now):
        """Take the next packet if there is one and place for it: true if there may be another."""
        again = self._head(Ring.RETRANSMIT)
        new = None if again and again[2] <= now + AHEAD_NS else self._head(Ring.SEND)
        if again and (new is None or again[2] <= now + AHEAD_NS or again[2] <= new[2]):
            ring, stream = Ring.RETRANSMIT, again
        elif new:
            ring, stream = Ring.SEND, new
        else:
            return False
        packet, segments = stream[1]
        reads = list(self._pieces(segments))
        at = max(stream[2], self._next_check, self._place(self._data, len(reads)))
        if at > now + AHEAD_NS:
            if at != float("inf"):
                self._wake_at(at - AHEAD_NS / 2)
            return False
        self._next_check = at + max(1, len(segments)) * CYCLE_NS
        stream[1] = next(stream[0], None)
        self.count(packet)
        memory = self.card.memory
        payload = b"".join([memory.read(address, n) for address, n in segments])
        frame = packet.frame(payload, src_mac=self.card.mac, src_ip=self.card.ip)
        job = _Job(frame, ring, stream[1] is None, [-(-n // BEAT_BYTES) for _, n in reads])
        if job.last:
            self._streams[ring] = None
        self._data.jobs.append(job)
        self._ask(job, reads, at, self._data)
        return True

    def _pieces(self, segments):
        """Reads of a packet: none crosses a multiple of the largest read."""
        most = min(self.card.params.bulk_slot_bytes, self.card.pcie.host.max_read_bytes)
        for address, left in segments:
            while left:
                piece = min(left, most - address % most)
                yield address, piece
                address, left = address + piece, left - piece

    def _place(self, lane, count):
        """When so many slots are free."""
        free = lane.free
        now = self.card.loop.now_ns
        while free and free[0] <= now:
            free.popleft()
            lane.slots += 1
        missing = count - lane.slots
        if missing <= 0:
            return now
        return free[missing - 1] if missing <= len(free) else float("inf")

    def _ask(self, job, reads, at, lane):
        for _ in reads:
            if lane.slots:
                lane.slots -= 1
            else:
                lane.free.popleft()
        if not reads:
            job.done.append(at)
            self._complete(lane)
        for number, (address, length) in enumerate(reads):
            def answered(done, number=number):
                job.done[number] = done
                job.open -= 1
                self._complete(lane)
            read = Read(address, length, answered)
            if self._reads or not self.card.pcie.room(read):
                self._reads.append((at, read))
            else:
                self.card.pcie.read(at, read)

    # ------------------------------------------------------------------------------------ sending frames

    def _raw_frames_in(self, now):
        rings = self.card.rings
        while rings.peek(Ring.NIC_TX) is not None:
            if (free := self._place(self._raw, 2)) > now:
                if free != float("inf"):
                    self._wake_at(free)
                return
            entry = rings.take(Ring.NIC_TX)
            found = abi.NIC_TX.unpack(entry)
            frame = next(self._raw_frames(entry), None)
            if frame is None:
                rings.finish(Ring.NIC_TX)
                continue
            reads = list(self._pieces([(found.address, found.length)]))
            job = _Job(frame, Ring.NIC_TX, True, [-(-n // BEAT_BYTES) for _, n in reads])
            self._raw.jobs.append(job)
            self._ask(job, reads, now + self.card.timing.frame_descriptor, self._raw)

    def _complete(self, lane):
        """Frames whose payload is here, in order, go through the framer and the send buffer to the line."""
        jobs, timing, loop = lane.jobs, self.card.timing, self.card.loop
        while jobs and not jobs[0].open:
            job = jobs.popleft()
            length = len(job.frame)
            beats = -(-length // BEAT_BYTES)
            start = end = self._framer_free
            for done, rows in zip(job.done, job.slots or [1], strict=True):
                end = max(end, edge(done + timing.payload)) + rows * CYCLE_NS
                if job.slots:
                    lane.free.append(end)
            end = max(end, start + beats * CYCLE_NS, edge(self._send_place(beats)))
            self._framer_free = end
            raw = job.ring is Ring.NIC_TX
            self._line(job.frame, length, end + (timing.send_raw if raw else timing.send), beats)
            if job.last:
                loop.call_at(end + (timing.retire_raw if raw else timing.retire), self.card.rings.finish, job.ring)
        if lane.jobs or lane.free:
            self.start()

    def _send_place(self, beats):
        """When the send buffer has space for the last beat of a frame: the ones before leave it beat by beat."""
        over, at = self._beats + beats - self.card.params.tx_buffer_beats - FIFO_BEATS, 0.0
        while over > 0 and self._buffered:
            begins, ends, held = self._buffered[0]
            if held > over:
                return begins + (ends - begins) * over / held
            self._buffered.popleft()
            self._beats -= held
            over, at = over - held, ends
        return at

    def _line(self, frame, length, ready, beats):
        gbps = self.card.line_gbps
        start = max(self._line_free, ready)
        wire_bytes = max(length, wire.MIN_FRAME_BYTES) + LINE_OVERHEAD_BYTES
        self._line_free = start + wire_bytes * 8 / gbps
        sent = start + (PREAMBLE_BYTES + length) * 8 / gbps
        self._buffered.append((start, start + length * 8 / gbps, beats))
        self._beats += beats
        self.card.loop.call_at(sent, self.card.send_frame, frame)
