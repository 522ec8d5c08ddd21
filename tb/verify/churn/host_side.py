"""Host side of a card with QP churn: knitting buffer, receivers, report ring, and the sending peers.

The parts of the driver are those of the real driver; a subclass adds the card. Every item between card and host is
tagged with the number of the QP incarnation to which it belongs. The tag decides nothing; it only identifies stale
accepts.
"""

import collections
import heapq
import itertools
import random

from weft.driver.engine.qp_table import QpTable
from weft.driver.knitting.buffer import KnittingBuffer
from weft.driver.knitting.holes import node_runs
from weft.driver.protocol.control import ControlFrame
from weft.driver.queue.meta_report import ReportWorker
from weft.driver.receive.hole_list import LinkDoorbell
from weft.driver.receive.receiver import CumDoorbell, Receiver
from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import preset
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop

GENERATIONS = 256
REORDER = 4


class HostQp:
    """QP of the driver, and the peer that retransmits."""

    deadline = None     # no timers

    def __init__(self, side, qpn, generation, incarnation, receiver, psn):
        self.side, self.index, self.generation = side, qpn, generation
        self.incarnation, self.receiver = incarnation, receiver
        self.next_psn = psn    # next PSN of the peer

    def on_report(self, kind, report):
        """Process a report that the driver assigns to this QP."""
        self.side.taken(self, kind, report)


class _Entries:
    """META_REPORT ring as :class:`ReportWorker` uses it: a limited number of entries, one at a time."""

    def __init__(self):
        self.waiting = collections.deque()     # (entry, incarnation), in order
        self.left = 0
        self.incarnation = None                       # incarnation of the entry being processed

    def poll(self):
        if not self.left or not self.waiting:
            return []
        self.left -= 1
        entry, self.incarnation = self.waiting.popleft()
        return [entry]

    def release(self, at_once=False):
        pass


TEST = preset("test")


class HostSide:
    """Driver and the peers of some QPs, with extents of ``blocks`` blocks.

    ``sums`` counts events by name. ``stale_accepts`` are reports that the driver assigns to a QP of another
    incarnation; the harness of a card adds the stale packets and reads that the card accepts.
    """

    def __init__(self, *, seed=0, qps=6, blocks=16, max_extents=3, params=TEST):
        self.random = random.Random(f"churn {seed}")
        self.qps = qps
        self.device = FunctionalDevice(EventLoop(), seed=None)
        self.extents = {}
        self.pool = KnittingBuffer(self.device, self._announce, extent_bytes=blocks * abi.BLOCK_BYTES,
                                   max_extents=max_extents, number_bits=params.extent_blocks_log2, calm_ns=20_000)
        self.host = {}
        self.generations = collections.Counter()
        self.sums = collections.Counter()
        self.now = 0
        self.pace = 0.3
        self.ring, self.table = _Entries(), QpTable(qps, self.random)
        self.worker = ReportWorker(self.ring, self.table.find)
        self._incarnation = itertools.count(1)
        self._late = []     # heap of (time, number, arguments): retransmissions in flight
        self._number = itertools.count()

    def _announce(self, index, address, length, done):
        self.extents.pop(index, None)
        if length:
            self.extents[index] = range(address // abi.BLOCK_BYTES, (address + length) // abi.BLOCK_BYTES)
        done()

    def in_extent(self, line):
        return any(line in lines for lines in self.extents.values())

    def new_receiver(self, qpn):
        """Return generation, first PSN and receiver of the QPN's next incarnation; without a free block no receiver."""
        self.generations[qpn] += 1
        generation = self.generations[qpn] % GENERATIONS
        psn = self.random.choice([0, self.random.getrandbits(24), (1 << 24) - 5])
        try:
            return generation, psn, Receiver(qpn=qpn, generation=generation, psn=psn, pool=self.pool,
                                             waiting_runs_max=8)
        except MemoryError:
            self.sums["refused"] += 1
            return generation, psn, None

    def enter(self, host):
        """Register a QP that the card knows."""
        self.host[host.index] = host
        self.table.add(host)
        self.sums["created"] += 1

    def leave(self, qpn):
        """Remove a QP that the card no longer knows, and free its blocks."""
        host = self.host.pop(qpn)
        self.table.remove(host)
        self.sums["coarsened"] += host.receiver.counts["coarsened"]
        self.sums["waited"] += host.receiver.counts["waited"]
        self.sums["dropped"] += len(host.receiver.holes.nodes)
        host.receiver.close()
        self.sums["destroyed"] += 1

    def reported(self, entry, incarnation):
        """Append an entry of the card to the report ring, tagged with an incarnation."""
        self.ring.waiting.append((entry, incarnation))

    def take_reports(self, limit=None):
        """Process up to ``limit`` reports: link nodes, and pass loss reports to the peers."""
        self.ring.left = len(self.ring.waiting) if limit is None else limit
        self.worker.progress()
        for host in self.table.due(self.now):
            host.receiver.link_waiting()
            self._execute(host)
        self.pool.balance(self.now)

    def taken(self, host, kind, report):
        """Process a report for which the driver's QP table returned ``host``."""
        self.sums["stale_accepts"] += host.incarnation != self.ring.incarnation
        self.table.mark_active(host)
        host.receiver.on_report(kind, report)
        self.sums["retired"] += kind is abi.ReportKind.RETIRE

    def _execute(self, host):
        receiver = host.receiver
        receiver.settle()
        while receiver.actions:
            action = receiver.actions.popleft()
            if isinstance(action, LinkDoorbell | CumDoorbell):
                self._ring(host, action)
            elif isinstance(action, ControlFrame) and action.opcode is wire.Opcode.LOSS_REPORT:
                self._send_again(host, action)

    def _ring(self, host, doorbell):
        """Send a doorbell to the card."""
        raise NotImplementedError

    def _send_again(self, host, report):
        """Retransmit the holes of a loss report from the peer: some packets are lost again, others are late."""
        node = abi.NODE.unpack(report.payload)
        rsn, chance = report.rsn, self.random.random
        at = self.now + self.random.randint(1, 2_000)
        for start, length in node_runs(node, host.receiver.base):
            for psn in range(start, start + length):
                if chance() >= 0.15:
                    late = self.random.randint(0, 300_000) if chance() < 0.01 else 0
                    self.arrives(at + late, host, psn, rsn)
                rsn += 1

    def arrives(self, at, host, psn, rsn, **flags):
        """Schedule a packet of the QP's present incarnation; it arrives even if the QPN is reused by then."""
        heapq.heappush(self._late,
                       (at, next(self._number), (host.index, host.generation, host.incarnation, psn, rsn), flags))

    @property
    def count(self):
        """Number of nodes that were linked and have left again."""
        return self.sums["retired"] + self.sums["dropped"]

    def leaks(self):
        """Return the number of blocks that are not on the free list after all QPs are destroyed."""
        return self.pool.total_blocks - self.pool.check()["free"]
