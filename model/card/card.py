"""Timed card, as its driver and its line see it."""

from collections import deque
from itertools import islice

from weft.hdl.contract import abi
from weft.hdl.contract.params import REPORT_PACE, REPORTS_TOGETHER, STATUS_PACE

from ..functional.card import FunctionalCard
from .commands import Commands
from .interrupts import Interrupts
from .pacer import TimedPacer
from .pcie import Pcie
from .receive import TimedReceivePath
from .rings import TimedRings
from .second_level import SecondLevel, TimedList
from .timing import CYCLE_NS, TIMING
from .transmit import TimedTransmitPath
from .write_engine import NEVER, RINGS, STATUS

Ring = abi.Ring
NIC_ENTRIES = RINGS + abi.CARD_TO_HOST.index(Ring.NIC_RX)
REPORTS = RINGS + abi.CARD_TO_HOST.index(Ring.META_REPORT)


class TimedCard(FunctionalCard):
    """:class:`FunctionalCard` with queues, latencies and widths. The functional card makes all decisions.

    Parameters
    ----------
    memory, loop, send_frame, interrupt, preset, line_gbps
        As in :class:`FunctionalCard`.
    host : HostTiming or None
    timing : Timing
    seed : hashable
        Seed of the host's latencies.
    """

    rings_type, transmit_type, receive_type, list_type = TimedRings, TimedTransmitPath, TimedReceivePath, TimedList
    pacer_type = TimedPacer

    def __init__(self, memory, loop, send_frame, interrupt, *, host=None, timing=TIMING, seed=0, **options):
        self.timing, self._host, self._seed, self.interrupts, self.pcie = timing, host, seed, None, None
        super().__init__(memory, loop, send_frame, interrupt, **options)

    def _reset(self):
        if self.pcie:
            self.pcie.writes.ended = True
        self.pcie = Pcie(self.loop, self.timing, self._host, self._seed)
        self._paced = {}            # client -> time from which it may write again
        self._posts = {}            # client -> its writes that the engine has not taken
        self._asking = set()        # clients with a request for their oldest writes
        self._reports_free = 0.0    # time from which reports may be written that are less than a group
        self._status_busy = self._status_changed = False
        self._status_free = 0.0     # time from which the status block may be written again
        self.second_level = SecondLevel(self)
        self.commands = Commands(self)
        self.interrupts = self.interrupts or Interrupts(self)       # a reset of the card does not reset them
        self.interrupts.renewed()
        super()._reset()

    # ----------------------------------------------------------------------------------------- host memory

    def line_read(self, time_ns, client, read):
        """Request a read of descriptors or nodes. Such reads alternate with payload, of which many reads may wait."""
        self.pcie.line(time_ns, client, read)

    def post(self, client, address, data, time_ns, then=lambda last: None):
        """Give an entry to a client of the write engine, to be written at a time or, with NEVER, at :meth:`release`.

        The client requests the write a cycle later, and the next write when the engine has taken this one. Then it
        calls ``then``. Reports are written in groups, see ``hdl/ring/writer.py``.
        """
        queue = self._posts.setdefault(client, deque())
        entry = [time_ns, address, data, then]
        queue.append(entry)
        if len(queue) == 1 or client == REPORTS:
            self._post_at(client, queue)
        return entry

    def release(self, client, entry, time_ns):
        """Allow the write of an entry from a time on."""
        entry[0], queue = time_ns, self._posts[client]
        if queue[0] is entry:
            self._post_at(client, queue)

    def _post_at(self, client, queue):
        if client in self._asking or not queue or self._posts.get(client) is not queue:
            return
        at = max(queue[0][0], self._paced.get(client, 0.0))
        if at == NEVER:
            return
        if at > self.loop.now_ns:
            self.loop.call_at(at, self._post_at, client, queue)
        elif client != REPORTS:
            self._post(client, queue, 1)
        elif count := self._together(queue):
            self._reports_free = self.loop.now_ns + REPORT_PACE * CYCLE_NS
            self._post(client, queue, count)
        else:
            self.loop.call_at(self._reports_free, self._post_at, client, queue)

    def _together(self, queue):
        """Return the number of waiting reports that are written together now."""
        now = self.loop.now_ns
        most = min(REPORTS_TOGETHER, 1 << self.rings._log2(Ring.META_REPORT))
        first = (queue[0][1] - self.registers["meta_report_base"]) // abi.BLOCK_BYTES
        to_end = most - first % most
        count = 0
        for entry in islice(queue, to_end):
            if entry[0] > now:
                break
            count += 1
        return count if count == to_end or now >= self._reports_free else 0

    def _post(self, client, queue, count):
        self._asking.add(client)
        entries, pcie = list(islice(queue, count)), self.pcie
        address, data = entries[0][1], b"".join(entry[2] for entry in entries)

        def granted(last, packet):
            if self.pcie is not pcie:
                return      # after a reset of the card
            pcie.writes.then(packet, self.memory.write, address, data)
            self._paced[client] = last
            for *_, then in entries:
                then(last)
                queue.popleft()
            self._asking.discard(client)
            self._post_at(client, queue)

        pcie.writes.ask(client, self.loop.now_ns + CYCLE_NS, address, len(data), granted)

    def frame_written(self, entry, last):
        """Release the entry of a raw frame after the write engine took the last beat of the frame."""
        self.release(NIC_ENTRIES, entry, last + CYCLE_NS)

    def report_status(self):
        """Schedule a write of the status block; it includes changes until then."""
        if self._status_busy:
            self._status_changed = True
        else:
            self._status_busy = True
            self.loop.call_at(max(self.loop.now_ns + self.timing.status, self._status_free), self._write_status)

    def _write_status(self):
        address, data, pcie = self.registers["status_block"], self.rings.status(), self.pcie
        paced = self.loop.now_ns + STATUS_PACE * CYCLE_NS
        self._status_changed = False

        def granted(last, packet):
            if self.pcie is not pcie:
                return
            pcie.writes.then(packet, self.memory.write, address, data)
            self._status_busy, self._status_free = False, max(last + CYCLE_NS, paced)
            if self._status_changed:
                self.report_status()

        pcie.writes.ask(STATUS, self.loop.now_ns + CYCLE_NS, address, len(data), granted)

    def receive(self, frame, at=None):
        """Process a frame from the line: see :meth:`TimedReceivePath.receive`."""
        self.receive_path.receive(frame, at)

    # ----------------------------------------------------------------------------------------------- work

    def pump(self):
        for ring in abi.HOST_TO_CARD:
            self.rings.fetch(ring)
        while self.backlog and self.rings.space(Ring.META_REPORT):
            self.rings.put(Ring.META_REPORT, self.backlog.popleft())
        self.receive_path.go_on()
        self.commands.go_on()
        if self.pacer is not None and self.enabled:
            self.transmit_path.start()

    def descriptors(self, ring):
        """Process descriptors of a ring that arrived."""
        if ring is Ring.COMMAND:
            self.commands.go_on()
        elif self.enabled:
            self.transmit_path.start()

    def _link(self, word):
        super()._link(word)
        incarnation = self._incarnation(word.qpn, word.generation)
        if incarnation:
            self.second_level.look(incarnation)
