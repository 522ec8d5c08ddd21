"""Transmit path of the timing model: arbitration of packets, reads of payload, and frames in order on the line.

A chosen packet precedes all packets that are chosen later. Frames of the two bulk clients, payload and raw frames,
merge after the framer. A descriptor for the pacer goes to its pool; its packets are chosen when they are due, in turn
with those of the rings.
"""

from collections import deque
from functools import partial

from weft.hdl.contract import abi, wire

from ..functional.transmit_path import PACED_AT, PACED_BIT, TransmitPath
from ..functional.transmit_path import RAW as RAW_RING
from .frame_merge import PAYLOAD, RAW, Frame, FrameMerge
from .pcie import Read
from .timing import BEAT_BYTES, CYCLE_NS, PREAMBLE_BYTES, edge

Ring = abi.Ring
# Packets between their choice and the first read of their payload: 1 in hdl/transmit/merge.py; 2 before, 5 in and 4
# after the translation of hdl/transmit/check.py; 1 in hdl/pcie/splitter.py.
CHOSEN_MAX = 14
AHEAD = 2                   # packets that may wait for the translation
TRANSLATE = 2 * CYCLE_NS    # between two packets that enter the translation
OVERTAKING = 6                  # payload packets after the translation that an empty packet does not wait for
THROUGH = 2 * CYCLE_NS      # translation of a packet without payload, once at most `OVERTAKING` packets are ahead of it
TAKEN = CYCLE_NS            # from a read on RQ until a packet that waited for it moves up
HEADER = 15 * CYCLE_NS      # from the choice of a packet until its headers are in the framer
MERGED = CYCLE_NS           # from the framer to the merge
SEALED = 8 * CYCLE_NS       # latency of a frame's last beat while its ICRC is computed
RAW_FRAMES = 4              # raw frames that are read at the same time, see hdl/simple_nic.py
RAW_WAITED = 2 * CYCLE_NS   # from the end of one of RAW_FRAMES until another one is taken
RAW_MERGED = 2 * CYCLE_NS   # from the reader of raw frames to the merge, one beat per cycle
BULK_SHARE = 8              # one of BULK_SHARE bulk tags is for raw frames, see hdl/pcie/dma_read.py
FIFO_BEATS = 19             # capacity between the framer and the MAC, without the send buffer
ROWS_AHEAD = 5              # rows of payload that may be read before the framer takes them
ROW_AHEAD = 5 * CYCLE_NS    # from a row's entry into the framer until the row that replaces it is read
POOLED = 6 * CYCLE_NS       # from a descriptor at the arbiter until its QP is due
PACED = 8 * CYCLE_NS        # between two packets that the pacer lets go
HELD_AHEAD = 3 * CYCLE_NS   # release of a slot before its frame, if a full send buffer delays both


class _Job:
    """Frame that waits for its payload.

    Attributes
    ----------
    reads : list of (address, length)
        Reads that were not requested yet.
    slots : list of (time of the last byte, rows)
        In order; the time is known ahead.
    open : int
        Reads without a response.
    merging : Frame or None
        The frame at the merge.
    finish : callable
        Ends the descriptor after its last frame.
    """

    __slots__ = ("at", "chosen", "finish", "frame", "lane", "last", "length", "merging", "open", "reads", "slots")

    def __init__(self, frame, finish, lane, last, chosen, at, reads):
        self.frame, self.length, self.finish, self.lane, self.last, self.at = frame, len(frame), finish, lane, last, at
        self.chosen, self.reads, self.open = chosen, reads, len(reads)
        self.slots, self.merging = [], None

    @property
    def beats(self):
        return -(-self.length // BEAT_BYTES)


class _Retirement:
    """Order in which the descriptors of a ring finish: one without a packet of the ring waits for those before it."""

    __slots__ = ("_begun", "_finished", "_passed", "_ring", "_rings")

    def __init__(self, rings, ring):
        self._rings, self._ring, self._begun, self._finished = rings, ring, 0, 0
        self._passed = deque()      # of each that waits: descriptors that began before it

    def begin(self):
        """Note a descriptor that :meth:`finish` ends."""
        self._begun += 1

    def finish(self):
        """End the oldest descriptor that began."""
        self._rings.finish(self._ring)
        self._finished += 1
        while self._passed and self._passed[0] == self._finished:
            self._passed.popleft()
            self._rings.finish(self._ring)

    def passed(self):
        """Note a descriptor that went to the pacer, or sends nothing."""
        if self._begun == self._finished:
            self._rings.finish(self._ring)
        else:
            self._passed.append(self._begun)


class _Lane:
    """Client of the bulk reader: slots in ring order, frames in order."""

    __slots__ = ("asked", "asking", "empty", "freed", "jobs", "slots")

    def __init__(self, slots):
        self.slots = slots
        self.freed = deque()        # times at which further slots are free, ascending
        self.asking = deque()       # jobs with reads to request
        self.asked = 0              # jobs that have requested all reads
        self.empty = deque()        # empty packets before translation: total of payload jobs ahead of each
        self.jobs = deque()         # all jobs, oldest first

    def next_read(self):
        """Return the time of the next read with a slot, or None."""
        if not self.asking:
            return None
        at = self.asking[0].at
        if self.slots:
            return at
        return max(at, self.freed[0]) if self.freed else None


class TimedTransmitPath(TransmitPath):
    """:class:`TransmitPath` with the reads of payload and the buffers between the stages."""

    def __init__(self, card):
        super().__init__(card)
        share = max(card.params.bulk_tags // BULK_SHARE, 1)
        self._data, self._raw = _Lane(card.params.bulk_tags - share), _Lane(share)
        self._lanes = None, self._data, self._raw       # by source of reads
        card.pcie.next_read, card.pcie.take_read = self.next_read, self.take_read
        self._streams = {}          # ring -> [iterator over packets, the next one, first time it may be chosen]
        self._next_choice, self._full = 0.0, False
        self._retire = {ring: _Retirement(card.rings, ring) for ring in (RAW_RING, Ring.RETRANSMIT, Ring.SEND)}
        self._next_paced = 0.0      # time from which the pacer may let another packet go
        self._entered = 0.0         # time from which the newest packet waits for translation
        self._translated = deque([0.0] * AHEAD)     # times at which the newest packets entered the translation
        self._framing = False       # the time at which the first job's last beat leaves the framer is known
        self._framer_free = self._line_free = 0.0
        self._rows_end = self._slot_free = 0.0      # newest slot: its last row in the framer; its release
        self._merge = FrameMerge(card.loop, self._merged, lambda: card.transmit_path is self)
        self._raw_read = self._raw_passed = 0.0     # newest raw frame: end of its read; end of its merge
        self._raw_from = 0.0        # time from which another one may be taken
        self._raw_after = deque()  # beats of raw frames that were read and have not passed the merge
        self._buffered = deque()    # (begins to leave the send buffer, has left it, beats), oldest first
        self._beats = 0
        self._woken = 0.0           # time of the next call of start()
        self._most = min(card.params.bulk_slot_bytes, card.pcie.host.max_read_bytes)

    def start(self):
        """Process what is possible now."""
        if self.card.transmit_path is not self:
            return
        self._choose()
        self._choose_raw()

    def _wake_at(self, time_ns):
        """Schedule :meth:`start` for the time at which a descriptor has passed its stages."""
        if not self.card.loop.now_ns < self._woken <= time_ns:
            self._woken = time_ns
            self.card.loop.call_at(time_ns, self.start)

    # --------------------------------------------------------------------------------------- choosing packets

    def _head(self, ring):
        """Return the stream of a ring, with its next packet; None if there is none."""
        stream = self._streams.get(ring)
        if stream is not None:
            return stream
        rings, card = self.card.rings, self.card
        while rings.peek(ring) is not None:
            came = rings.came(ring)
            entry = rings.take(ring)
            if entry[PACED_AT] & PACED_BIT and self.pool(entry, ring, came + card.timing.descriptor + POOLED):
                self._retire[ring].passed()
                continue
            packets = self.packets(entry, ring)
            first = next(packets, None)
            if first is not None:
                stream = self._streams[ring] = [packets, first, came + card.timing.descriptor]
                self._retire[ring].begin()
                return stream
            rings.finish(ring)
        return None

    def _paced_at(self):
        """Return the time from which a paced packet may be chosen, or None."""
        pacer = self.card.pacer
        due = pacer.due if pacer is not None and self.card.enabled else None
        return None if due is None else edge(max(due, self._next_paced))

    def _choose(self):
        """Choose packets when they reach the arbiter, retransmissions first."""
        lane, now, timing = self._data, self.card.loop.now_ns, self.card.timing
        if self._full:      # the arbiter was blocked until now
            self._next_choice = max(self._next_choice, now)
        while True:
            again, new = self._head(Ring.RETRANSMIT), self._head(Ring.SEND)
            paced_at = self._paced_at()
            self._full = len(lane.asking) + len(lane.empty) >= CHOSEN_MAX
            if self._full or (again is None and new is None and paced_at is None):
                return
            first = min(stream[2] for stream in (again, new) if stream) if again or new else paced_at
            if paced_at is not None and paced_at < first:
                first = paced_at
            at = max(self._next_choice, first, self._entered)
            if at > now:
                self._wake_at(at)
                return
            if paced_at is not None and paced_at <= at and (
                    self._paced_turn or not (again and again[2] <= at or new and new[2] <= at)):
                self._choose_paced(at)
                continue
            ring, stream = (Ring.RETRANSMIT, again) if again and again[2] <= at else (Ring.SEND, new)
            self._paced_turn = True
            frame, segments = stream[1]
            self._pass_translation(at, segments)
            stream[1] = next(stream[0], None)
            last = stream[1] is None
            if last:
                self._streams[ring] = None
            if self.load(frame, segments):
                self._enter(lane, frame, self._retire[ring].finish, last, timing.check, segments)
            elif last:
                self._retire[ring].finish()

    def _pass_translation(self, at, segments):
        """Note the time of a choice."""
        self._next_choice = at + max(1, len(segments)) * CYCLE_NS
        self._entered = max(at, self._translated.popleft()) + CYCLE_NS
        self._translated.append(max(self._entered + CYCLE_NS, self._translated[-1] + TRANSLATE))

    def _choose_paced(self, at):
        """Choose the packet that the pacer lets go."""
        self._paced_turn, self._next_paced = False, at + PACED
        taken = self.paced_packet()
        self._pass_translation(at, taken[2] if taken else ())
        if taken is not None:
            descriptor, frame, segments = taken
            self._enter(self._data, frame, partial(self._paced_done, descriptor),
                        descriptor.number == descriptor.total, self.card.timing.check, segments)

    def _choose_raw(self):
        """Take raw frames, up to the limit of outstanding ones."""
        rings, now, timing = self.card.rings, self.card.loop.now_ns, self.card.timing
        retirement = self._retire[RAW_RING]
        while (entry := rings.peek(RAW_RING)) is not None and len(self._raw.jobs) < RAW_FRAMES:
            found = abi.NIC_TX.unpack(entry)
            if found.opcode != abi.NicTxOpcode.FRAME and any(not job.slots and not job.reads for job in self._raw.jobs):
                return      # the place of an inline frame is taken
            taken = max(now, rings.came(RAW_RING) + CYCLE_NS, self._raw_from)
            frame = next(self._raw_frames(rings.take(RAW_RING)), None)
            if frame is None:
                retirement.passed()
                continue
            retirement.begin()
            if found.opcode == abi.NicTxOpcode.FRAME:
                lag, segments = timing.frame_descriptor, [(found.address, found.length)]
            else:
                lag, segments = timing.inline_frame, ()
            self._enter(self._raw, frame, retirement.finish, True, taken - now + lag, segments)

    def _enter(self, lane, frame, finish, last, lag, segments):
        now = self.card.loop.now_ns
        job = _Job(frame, finish, lane, last, now, now + lag, self._pieces(segments))
        lane.jobs.append(job)
        if job.open:
            lane.asking.append(job)
            if lane.asking[0] is job:
                self._want(lane)
        elif lane is self._data and len(lane.asking) > OVERTAKING:
            lane.empty.append(lane.asked + len(lane.asking))
        if lane.jobs[0] is job:
            if lane is self._data:
                self._frame()
            elif not job.open:
                self._read_raw()

    def _want(self, lane):
        """Announce the time of a lane's next read."""
        at = lane.next_read()
        if at is not None:
            self.card.pcie.wanted(at)

    def _pieces(self, segments):
        """Return the reads of a frame, last one first; none crosses a multiple of the largest read."""
        pieces, most = [], self._most
        for address, left in segments:
            while left:
                piece = min(left, most - address % most)
                pieces.append((address, piece))
                address, left = address + piece, left - piece
        pieces.reverse()
        return pieces

    def next_read(self, source):
        """Return the time of the next read, of payload (1) or of raw frames (2), or None."""
        return self._lanes[source].next_read()

    def take_read(self, source):
        """Remove and return that read. This may free space for another packet."""
        lane = self._lanes[source]
        job = lane.asking[0]
        address, length = job.reads.pop()
        read = Read(address, length, self._answered(job, len(job.slots), length))
        job.slots.append(None)
        if lane.slots:
            lane.slots -= 1
        else:
            lane.freed.popleft()
        if not job.reads:
            lane.asking.popleft()
            lane.asked += 1
            if self._full:
                self._wake_at(self.card.loop.now_ns + TAKEN)
            if lane.empty and lane.empty[0] - lane.asked == OVERTAKING:
                self.card.loop.call_in(THROUGH, self._through, lane)
        return read

    def _through(self, lane):
        """Move a packet without payload out of the translation."""
        if self.card.transmit_path is self:
            ahead = lane.empty.popleft()
            if self._full:
                self._wake_at(self.card.loop.now_ns + TAKEN)
            if lane.empty and lane.empty[0] == ahead:
                self.card.loop.call_in(THROUGH, self._through, lane)

    def _answered(self, job, slot, length):
        def answered(done):
            job.slots[slot] = done, -(-length // BEAT_BYTES)
            job.open -= 1
            if not job.open and job.lane.jobs[0] is job:
                if job.lane is self._data:
                    self._frame()
                else:
                    self._read_raw()
        return answered

    # ------------------------------------------------------------------------------------ sending frames

    def _frame(self):
        """Send the first job through the framer: its headers at once, the rest when its payload is there."""
        lane, merge = self._data, self._merge
        job = lane.jobs[0]
        begin = max(self._framer_free + CYCLE_NS, job.chosen + HEADER)
        if job.merging is None:
            job.merging = Frame(begin + MERGED, None, job.beats, job)
            merge.enter(PAYLOAD, job.merging)
        if job.open or self._framing:
            return
        self._framing = True
        beats, rows, end = -(-(job.length - wire.ICRC_BYTES) // BEAT_BYTES), 0, begin
        for done, count in job.slots:
            came = edge(done + self.card.timing.payload)
            end = max(end + CYCLE_NS, came) + (count - 1) * CYCLE_NS
            rows += count
            self._free_slot(came, count, end)
        end += (beats - 1 - rows) * CYCLE_NS
        held = edge(self._send_place(beats)) - end
        if held > 0:
            end += held
            if job.slots:
                self._rows_end += held
                self._slot_free += max(held - HELD_AHEAD, 0.0)
                lane.freed[-1] = self._slot_free
        self._framer_free = end
        self.card.loop.call_at(end, self._framed, job)
        if job.slots and not lane.slots and len(lane.freed) == len(job.slots):
            self._want(lane)
        merge.complete(job.merging, end + SEALED)

    def _free_slot(self, came, count, end):
        """Schedule the release of a slot with ``count`` rows, whose last row is in the framer at ``end``."""
        ahead = end - ROWS_AHEAD * CYCLE_NS if count > ROWS_AHEAD else (
            self._rows_end - (ROWS_AHEAD - count) * CYCLE_NS)
        self._slot_free = max(came + (count - 1) * CYCLE_NS, ahead + ROW_AHEAD,
                              self._slot_free + count * CYCLE_NS)
        self._rows_end = end
        self._data.freed.append(self._slot_free)

    def _framed(self, job):
        """Remove a frame that has left the framer."""
        if self.card.transmit_path is not self:
            return
        lane = self._data
        lane.jobs.popleft()
        self._framing = False
        if job.last:
            self.card.loop.call_in(self.card.timing.retire, job.finish)
        if lane.jobs:
            self._frame()

    def _read_raw(self):
        """Send the first raw frame to the merge, where a few beats of raw frames may wait."""
        job = self._raw.jobs[0]
        if job.merging or job.open or sum(self._raw_after) + job.beats > max(RAW_MERGED / CYCLE_NS, job.beats):
            return
        begin = max(self._raw_read + CYCLE_NS, self._raw_passed)
        if not job.slots:
            begin = max(begin, edge(job.at))
        for done, _ in job.slots:
            begin = max(begin, edge(done + self.card.timing.raw_payload))
        self._raw_read = begin + (job.beats - 1) * CYCLE_NS
        self._raw_after.append(job.beats)
        job.merging = Frame(begin + RAW_MERGED, 0.0, job.beats, job)
        self._merge.enter(RAW, job.merging)
        self.card.loop.call_at(self._raw_read, self._raw_framed, job)

    def _raw_framed(self, job):
        """Free the slots of a raw frame that was read."""
        if self.card.transmit_path is not self:
            return
        lane = self._raw
        if len(lane.jobs) == RAW_FRAMES:
            self._raw_from = self.card.loop.now_ns + RAW_WAITED
        lane.jobs.popleft()
        lane.slots += len(job.slots)
        self.card.loop.call_in(self.card.timing.retire_raw, job.finish)
        self._want(lane)
        self._choose_raw()
        if lane.jobs:
            self._read_raw()

    def _merged(self, job, time_ns):
        """Send a frame to the line."""
        self._line(job.frame, job.length, time_ns + self.card.timing.send, job.beats)
        if job.lane is self._raw:
            self._raw_after.popleft()
            self._raw_passed = time_ns
            if job.lane.jobs:
                self._read_raw()

    def _send_place(self, beats):
        """Return the time at which the send buffer, which drains beat by beat, has space for a frame's last beat."""
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
        self._line_free = start + wire.line_bytes(length) * 8 / gbps
        while self._buffered and self._buffered[0][1] <= self.card.loop.now_ns:
            self._beats -= self._buffered.popleft()[2]
        self._buffered.append((start, start + length * 8 / gbps, beats))
        self._beats += beats
        self.card.send_frame(frame, start + (PREAMBLE_BYTES + length) * 8 / gbps)
