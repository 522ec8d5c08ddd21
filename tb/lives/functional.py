"""Node lives by the million: window, builder, list and driver of a few QPs without frames, with reports and
retransmissions that come late, get lost, and outlive the QP they are for.

Everything that crosses between card and host carries, besides what the real thing carries, the number of the QP life
it belongs to. Nobody decides by it; it is what tells an accept of something stale from a good one.
"""

import collections
import heapq
import itertools
import random
from types import SimpleNamespace

from weft.driver.knitting.buffer import KnittingBuffer
from weft.driver.knitting.holes import node_runs
from weft.driver.protocol.control import ControlFrame
from weft.driver.receive.hole_list import LinkDoorbell
from weft.driver.receive.receiver import CumDoorbell, Receiver
from weft.hdl import abi, wire
from weft.model.functional import window as judge
from weft.model.functional.builder import NodeBuilder
from weft.model.functional.host import FunctionalDevice
from weft.model.functional.node import encode_body
from weft.model.functional.node_list import NodeList
from weft.model.functional.window import Window
from weft.model.link import EventLoop

GENERATIONS = 256
REORDER = 4


class CardQp:
    """What the card keeps of a QP."""

    def __init__(self, lives, qpn, generation, life, psn, head):
        self.generation, self.life = generation, life
        self.window = Window(lives.window_bits, psn)
        self.nodes = NodeList(qpn, generation, head, lives.pool.extents.read, lives.in_extent)


class HostQp:
    """What the driver keeps of it, and the peer that sends again."""

    def __init__(self, generation, life, receiver, psn):
        self.generation, self.life, self.receiver = generation, life, receiver
        self.next_psn = psn    # the peer sends this one next
        self.missing = set()   # PSNs lost at least once and not placed yet


class NodeLives:
    """A card, a driver and the peers of some QPs.

    Parameters
    ----------
    seed : hashable
    qps : int
    blocks : int
        Blocks of an extent.
    max_extents : int
    """

    window_bits = 64

    def __init__(self, *, seed=0, qps=6, blocks=16, max_extents=3):
        self.random = random.Random(f"lives {seed}")
        self.qps = qps
        self.extents = {}
        self.pool = KnittingBuffer(FunctionalDevice(EventLoop()), self._announce, extent_bytes=blocks * abi.BLOCK_BYTES,
                                   max_extents=max_extents, calm_ns=20_000)
        self.builder = NodeBuilder(4)
        self.card, self.host = {}, {}
        self.generations = collections.Counter()
        self.sums = collections.Counter()
        self.now = 0
        self.pace = 0.3
        self._life = itertools.count(1)
        self._late = []     # heap of (time, number, function, arguments): retransmissions on their way
        self._number = itertools.count()
        self._reports = collections.deque()   # in order, as the ring keeps them

    def _announce(self, index, address, length, done):
        self.extents.pop(index, None)
        if length:
            self.extents[index] = range(address // abi.BLOCK_BYTES, (address + length) // abi.BLOCK_BYTES)
        done()

    def in_extent(self, line):
        return any(line in lines for lines in self.extents.values())

    # ------------------------------------------------------------------------------------- lifecycle

    def create(self, qpn):
        self.generations[qpn] += 1
        generation, life = self.generations[qpn] % GENERATIONS, next(self._life)
        psn = self.random.choice([0, self.random.getrandbits(24), (1 << 24) - 5])
        try:
            receiver = Receiver(qpn=qpn, generation=generation, psn=psn, pool=self.pool, waiting_runs_max=8)
        except MemoryError:
            self.sums["refused"] += 1
            return
        self.card[qpn] = CardQp(self, qpn, generation, life, psn, receiver.holes.head_block)
        self.host[qpn] = HostQp(generation, life, receiver, psn)
        self.sums["created"] += 1

    def destroy(self, qpn):
        """With nodes linked, reports in the ring and retransmissions on the way: these arrive later."""
        card, host = self.card.pop(qpn), self.host.pop(qpn)
        self.sums["coarsened"] += host.receiver.counts["coarsened"]
        self.sums["waited"] += host.receiver.counts["waited"]
        self.builder.run(qpn, card.generation, 0, 0, False)
        self.sums["dropped"] += len(host.receiver.holes.nodes)
        host.receiver.close()
        self.sums["destroyed"] += 1

    # ------------------------------------------------------------------------------------- card side

    def send_new(self, qpn, lost):
        """The peer sends original packets; ``lost`` says which of them get lost."""
        card, host = self.card[qpn], self.host[qpn]
        for gone in lost:
            psn = host.next_psn
            host.next_psn += 1
            if gone:
                host.missing.add(psn)
                continue
            self._judged(qpn, card, card.window.judge(psn % (1 << 24), reorder=REORDER))

    def seal(self, qpn):
        """A probe: everything sent counts as sent, the node is sealed."""
        card, host = self.card[qpn], self.host[qpn]
        self._judged(qpn, card, card.window.judge(host.next_psn % (1 << 24), probe=True))

    def _judged(self, qpn, card, judged):
        for psn, length in judged.lost:
            self._sealed(self.builder.run(qpn, card.generation, psn, length, False))
        if judged.seal:
            self._sealed(self.builder.run(qpn, card.generation, 0, 0, True))

    def _sealed(self, nodes):
        for node in nodes:
            self._reports.append((abi.ReportKind.NODE, SimpleNamespace(
                qpn=node.qpn, generation=node.generation, base_psn=node.base_psn, count=len(node.holes),
                encoding=node.encoding, body=encode_body(node.encoding, node.holes)), self.card[node.qpn].life))

    def retransmission(self, qpn, generation, life, psn, rsn):
        """A retransmitted packet arrives, perhaps for a QP that is gone."""
        card = self.card.get(qpn)
        if card is None or card.generation != generation:
            self.sums["stale_refused"] += 1
            return
        verdict = card.window.judge(psn % (1 << 24), retransmission=True)
        if verdict.verdict != judge.MATCH:
            self.sums["not_matched"] += 1
            return
        self.sums["stale_accepts"] += card.life != life
        if card.nodes.match(psn, rsn % (1 << 24), REORDER) is abi.Reason.OK:
            self.host[qpn].missing.discard(psn)
            self.sums["matched"] += 1
        self._retired(qpn, card)

    def pass_over(self, qpn):
        """The probe's other half: what was asked for and is not here was lost again."""
        card, host = self.card[qpn], self.host[qpn]
        card.nodes.probe(host.receiver.holes.next_rsn % (1 << 24))
        self._retired(qpn, card)

    def _retired(self, qpn, card):
        while card.nodes.retired:
            node = card.nodes.retired.popleft()
            self._reports.append((abi.ReportKind.RETIRE, SimpleNamespace(
                qpn=qpn, generation=card.generation, line=node.line, residue=node.open.bit_count(), open=node.open),
                card.life))

    # ------------------------------------------------------------------------------------- host side

    def take_reports(self, limit):
        """The driver takes up to so many reports, links, and its loss reports reach the peers."""
        touched = {}
        for _ in range(min(limit, len(self._reports))):
            kind, report, life = self._reports.popleft()
            host = self.host.get(report.qpn)
            if host is None or host.generation != report.generation:
                self.sums["stale_reports"] += 1
                continue
            self.sums["stale_accepts"] += host.life != life
            touched[report.qpn] = host
            self._take(host, kind, report)
        for qpn, host in self.host.items():
            if qpn in touched or host.receiver.holes.waits_for_blocks:
                host.receiver.link_waiting()
                self._carry_out(qpn, host)
        self.pool.balance(self.now)

    def _take(self, host, kind, report):
        if kind is abi.ReportKind.NODE:
            host.receiver.on_node(report)
        elif kind is abi.ReportKind.UNMATCHED:
            host.receiver.on_unmatched(report)
        else:
            host.receiver.on_retire(report)
            self.sums["retired"] += 1

    def _carry_out(self, qpn, host):
        receiver = host.receiver
        receiver.settle()
        while receiver.actions:
            action = receiver.actions.popleft()
            if isinstance(action, LinkDoorbell | CumDoorbell):
                self._ring(qpn, host, action)
            elif isinstance(action, ControlFrame) and action.opcode is wire.Opcode.LOSS_REPORT:
                self._send_again(qpn, host, action)

    def _ring(self, qpn, host, doorbell):
        card = self.card[qpn]
        if isinstance(doorbell, LinkDoorbell) and card.generation == host.generation:
            card.nodes.linked += doorbell.nodes

    def _send_again(self, qpn, host, report):
        """The peer sends the holes of a loss report: some are lost again, others come late."""
        node = abi.NODE.unpack(report.payload)
        rsn, chance = report.rsn, self.random.random
        at = self.now + self.random.randint(1, 2_000)
        for start, length in node_runs(node, host.receiver.base):
            for psn in range(start, start + length):
                if chance() >= 0.15:
                    late = self.random.randint(0, 300_000) if chance() < 0.01 else 0
                    heapq.heappush(self._late, (at + late, next(self._number), (
                        qpn, host.generation, host.life, psn, rsn)))
                rsn += 1

    # ------------------------------------------------------------------------------------------ time

    def step(self):
        """A moment: something happens to one QP, what is due arrives, the driver works now and then."""
        rng = self.random
        self.now += rng.randint(1, 400)
        qpn = rng.randrange(self.qps)
        if qpn not in self.card:
            self.create(qpn)
        elif rng.random() < 0.006:
            self.destroy(qpn)
        else:
            chance = rng.random()
            if chance < 0.8:
                loss = rng.choice([0, 0.3, 0.9])
                self.send_new(qpn, [rng.random() < loss for _ in range(rng.randint(1, 3))])
            if chance > 0.3:
                self.seal(qpn)
            if chance > 0.8:
                self.pass_over(qpn)
        while self._late and self._late[0][0] <= self.now:
            self.retransmission(*heapq.heappop(self._late)[2])
        if rng.random() < self.pace:
            self.take_reports(rng.choice([1, 4, 64]))
        if rng.random() < 0.001:
            self.pace = rng.choice([0.02, 0.3, 0.3])   # a driver that is late for a while

    def finish(self):
        """Let everything arrive, destroy the QPs, and see whether each block is back; then as a mapping, the sums."""
        while self._late:
            self.now = max(self.now, self._late[0][0])
            self.retransmission(*heapq.heappop(self._late)[2])
        for qpn in list(self.card):
            self.destroy(qpn)
        self.take_reports(len(self._reports))
        uses = self.pool.check()
        self.sums["leaks"] = self.pool.total_blocks - uses["free"]
        self.sums |= {"stale_accepts": self.sums["stale_accepts"], **self.pool.counts}
        return self.sums


def live(count, *, seed=0, **options):
    """Run until so many nodes have been linked and have left again, retired or with their QP; the sums."""
    lives = NodeLives(seed=seed, **options)
    while lives.sums["retired"] + lives.sums["dropped"] < count:
        lives.step()
    return lives.finish()
