"""Host with RoCEv2 in software: frames and time in, frames and the next deadline out."""

import collections
from random import SystemRandom

from ...device.index_pool import IndexPool
from ...protocol import arp
from ...terms.checks import unsigned
from ...verbs.locking import NO_LOCK
from .mr import MemoryTable
from .packet import BadPacket, parse

FIRST_QPN = 16
ARP_ANSWERS = 16   # limit of answers that wait to be sent
BURST = 16     # frames of a queue pair before the next one's turn


class SoftContext:
    """Host. PDs and CQs are those of the verbs, created with this object instead of a card's context.

    Parameters
    ----------
    mac, ip : int
    max_qp, max_mr : int
        Largest numbers of queue pairs and memory regions.
    first_qpn : int
        First of the ``max_qp`` numbers of queue pairs.
    random : random.Random
        Source of first PSNs and key tags; by default the system's, which is unpredictable.

    Attributes
    ----------
    counts : Counter
        Number of packets that were dropped, rejected or repeated, by name.
    memory : MemoryTable
    qps : dict of int to SoftQP
    pds, cqs, async_events
        As in :class:`~weft.driver.verbs.context.Context`.
    """

    def __init__(self, *, mac, ip, max_qp=1024, max_mr=1024, first_qpn=FIRST_QPN, random=None):
        self.mac, self.ip, self.random = unsigned("mac", mac, 48), unsigned("ip", ip, 32), random or SystemRandom()
        self.counts = collections.Counter()
        self.memory = MemoryTable(max_mr, self.random)
        self.qps, self.pds, self.cqs = {}, {}, {}
        self.async_events = collections.deque()
        self.first_qpn, self._numbers = unsigned("first_qpn", first_qpn, 24), IndexPool(max_qp, "queue pairs")
        self._pds = 0
        self._turns, self._answers = collections.deque(), collections.deque()
        self._now = 0

    # ------------------------------------------------------------------------- for PDs, CQs and QPs

    lock = NO_LOCK     # no method waits, and one thread uses the object

    def check_open(self):
        """Do nothing: a context in software is always open."""

    def progress(self):
        """Return false: work is done in :meth:`process`, which needs the time."""
        return False

    def new_pd(self):
        self._pds += 1
        return self._pds

    def add_qp(self, qp):
        """Register a queue pair and return its number; raise MemoryError if the table is full."""
        number = self.first_qpn + self._numbers.take()
        self.qps[number] = qp
        self._turns.append(qp)
        return number

    def remove_qp(self, qp):
        """Remove a queue pair and free its number."""
        del self.qps[qp.qp_num]
        self._turns.remove(qp)
        self._numbers.release(qp.qp_num - self.first_qpn)

    # ---------------------------------------------------------------------------- frames and time

    def receive(self, frame, now):
        """Process a received frame. Errors in it are counted and never raised. ARP requests are answered."""
        if arp.is_arp(frame):
            self._on_arp(frame)
            return
        try:
            packet = parse(frame, self.mac, self.ip)
        except BadPacket as bad:
            self.counts[bad.fault.name.lower()] += 1
            return
        qp = self.qps.get(packet.dest_qp)
        if qp is None:
            self.counts["unknown_qp"] += 1
        else:
            qp.on_packet(packet, now)

    def _on_arp(self, frame):
        reply = arp.answer(frame, self.mac, self.ip)
        if reply is None:
            self.counts["arp_ignored"] += 1
        elif len(self._answers) >= ARP_ANSWERS:
            self.counts["arp_dropped"] += 1
        else:
            self._answers.append(reply)

    def process(self, now):
        """Do everything that is due.

        Returns
        -------
        int or None
            Latest time of the next call. Call also after a frame was received, and after frames were taken.
        """
        self._now = now
        return min((due for qp in list(self._turns) if (due := qp.process(now)) is not None), default=None)

    def take_frames(self, most=1024):
        """Return up to ``most`` frames for the NIC, of all queue pairs in turn.

        The time of the frames is that of the last :meth:`process`.
        """
        frames = [self._answers.popleft() for _ in range(min(most, len(self._answers)))]
        idle = 0
        while len(frames) < most and idle < len(self._turns):
            qp = self._turns[0]
            self._turns.rotate(-1)
            before = len(frames)
            while len(frames) < min(most, before + BURST) and (frame := qp.next_frame(self._now)) is not None:
                frames.append(frame)
            idle = idle + 1 if len(frames) == before else 0
        return frames
