"""Transmit turns: QPs share bytes for any descriptor size, repetitions are charged, and no QP waits for ever."""

import random
from types import SimpleNamespace

import pytest

from weft.driver.queue.ring import ENTRIES_MAX
from weft.driver.queue.transmit_turns import (
    AHEAD_BYTES,
    DEBT_BYTES_MAX,
    LEAST_BYTES,
    QUANTUM_BYTES,
    TransmitTurns,
)
from weft.hdl.contract import abi
from weft.tb.sim.flow.seed import drawn_seed

Ring = abi.Ring
ENOUGH = 100_000


class FakeRing:
    """Ring that holds ``depth`` descriptors until the card takes them."""

    def __init__(self, depth):
        self.depth, self.prod, self.cons, self.pushed = depth, 0, 0, []

    @property
    def space(self):
        return self.depth - (self.prod - self.cons)

    def push_all(self, descriptors, cookies):
        self.prod += len(descriptors)
        self.pushed += cookies

    def advance(self, cons):
        done, self.cons = self.pushed[self.cons:cons], cons
        return done

    def ring_doorbell(self):
        pass


class FakeQP:
    """QP with ``left`` descriptors of ``length`` bytes, and ``again`` repeated ones of ``again_length`` bytes."""

    def __init__(self, length, left=10**9, again=0, again_length=0):
        self.length, self.left, self.again, self.again_length = length, left, again, again_length
        self.sent = self.repeated = self.in_card = 0
        self.sender, self.frames = self, ()

    @staticmethod
    def contain(method, *arguments):
        method(*arguments)

    has_work, bulk, paced = property(lambda self: self.left > 0), False, False
    has_retransmission = property(lambda self: self.again > 0)

    def next_work(self, entries, most_bytes):
        count = min(self.left, entries, -(-most_bytes // self.length) if self.length else entries)
        self.left -= count
        return [SimpleNamespace(length=self.length)] * count

    def next_retransmission(self):
        self.again -= 1
        return SimpleNamespace(length=self.again_length)

    def descriptors(self, works):
        return [bytes(abi.BLOCK_BYTES)] * len(works)

    def on_transmitted(self, now, again, descriptors):
        if again:
            self.repeated += descriptors * self.again_length
        else:
            self.sent += descriptors * self.length


class Card:
    """Card that takes some descriptors between two calls of ``fill``, those to be repeated first."""

    def __init__(self, qps, seed, depth=64):
        self.rng, self.qps = random.Random(seed), qps
        self.rings = {ring: FakeRing(depth) for ring in (Ring.SEND, Ring.RETRANSMIT, Ring.NIC_TX)}
        self.turns = TransmitTurns(self.rings, lambda qp: None, enough_bytes=ENOUGH)

    def run(self, rounds):
        for _ in range(rounds):
            for qp in self.qps:
                self.turns.offer(qp)
            self.turns.fill()
            send, again = self.rings[Ring.SEND], self.rings[Ring.RETRANSMIT]
            taken = self.rng.randint(1, 8)
            repeat = min(taken, again.prod - again.cons)
            status = SimpleNamespace(nic_tx_cons=0, retransmit_cons=again.cons + repeat,
                                     send_cons=min(send.prod, send.cons + taken - repeat))
            self.turns.advance(status, 0)


def seeded():
    seed = drawn_seed()
    print(f"seed {seed}")
    return seed


@pytest.mark.parametrize("depth", [2, 4, 64])
def test_bytes_are_shared_equally_for_any_descriptors(depth):
    seed = seeded()
    rng = random.Random(seed)
    qps = [FakeQP(rng.choice([LEAST_BYTES, 512, 4096, 20_000, 65_536])) for _ in range(8)]
    card = Card(qps, seed, depth)
    card.run(8_000)
    sent = [qp.sent for qp in qps]
    assert max(sent) - min(sent) <= 2 * (QUANTUM_BYTES + 65_536) + 2 * ENOUGH, sent
    assert min(sent) > 4 * QUANTUM_BYTES


@pytest.mark.parametrize("bulk", [False, True])
def test_a_busy_card_gets_less_of_bulk_data(bulk):
    """A card with less than enough work gets twice as much; of bulk data, no more than one descriptor more."""
    card = Card([qp := FakeQP(10_000, left=3)], seeded())
    qp.bulk = bulk
    card.turns.offer(qp)
    card.turns.fill()
    qp.left = 1000
    card.turns.offer(qp)
    card.turns.fill()
    ring = card.rings[Ring.SEND]
    assert len(ring.pushed) == (10 if bulk else 20)
    card.turns.advance(SimpleNamespace(nic_tx_cons=0, retransmit_cons=0, send_cons=len(ring.pushed)), 0)
    card.turns.fill()
    assert ring.space < ENTRIES_MAX, "an idle card gets all"


def test_tiny_descriptors_are_charged_for_their_headers():
    card = Card(qps := [FakeQP(0), FakeQP(LEAST_BYTES)], seeded())
    card.run(2_000)
    count = len([qp for qp, _ in card.rings[Ring.SEND].pushed if qp is qps[0]])
    assert abs(count - qps[1].sent / LEAST_BYTES) < 3 * QUANTUM_BYTES / LEAST_BYTES


def test_retransmissions_are_charged():
    """A QP that repeats as much as another one sends gets no turn for new work meanwhile; later it gets its share."""
    repeats = DEBT_BYTES_MAX // 4096
    loser, other = FakeQP(4096, again=repeats, again_length=4096), FakeQP(4096)
    card = Card([loser, other], seeded())
    while loser.repeated < DEBT_BYTES_MAX:
        card.run(1)
    card.run(400)
    total = loser.sent + loser.repeated
    assert loser.sent and abs(total - other.sent) <= 2 * QUANTUM_BYTES + 2 * ENOUGH


def test_debt_is_bounded():
    """A QP that repeated very much is excluded for a limited time only."""
    loser, other = FakeQP(4096, again=100 * DEBT_BYTES_MAX // 4096, again_length=4096), FakeQP(4096)
    card = Card([loser, other], seeded())
    while loser.again:
        card.run(1)
    loser_before, before = loser.sent, other.sent
    card.run(400)
    assert other.sent - before - (loser.sent - loser_before) <= DEBT_BYTES_MAX + 2 * QUANTUM_BYTES + 2 * ENOUGH


def test_new_work_continues_beside_endless_retransmissions():
    loser, other = FakeQP(4096, left=0, again=10**9, again_length=4096), FakeQP(4096)
    card = Card([loser, other], seeded())
    card.run(4_000)
    assert other.sent >= 4096 * (loser.repeated // (2 * AHEAD_BYTES)) > 0


def test_unused_credit_expires():
    """A QP that had nothing to send for a long time gets no more than its share afterwards."""
    rare, busy = FakeQP(512, left=1), FakeQP(512)
    card = Card([rare, busy], seeded())
    for _ in range(500):
        rare.left = 1
        card.run(2)
    while rare.left or rare in card.turns._turn:
        card.run(1)
    assert card.turns._credit.get(rare, 0) <= 0
    rare.left = 10**9
    before = rare.sent, busy.sent
    card.run(2_000)
    assert abs((rare.sent - before[0]) - (busy.sent - before[1])) <= 2 * QUANTUM_BYTES + 2 * ENOUGH


def test_single_qp_gets_the_whole_ring():
    card = Card([qp := FakeQP(65_536)], seeded())
    card.turns.offer(qp)
    card.turns.fill()
    assert card.rings[Ring.SEND].space < ENTRIES_MAX
    card.turns.remove(qp)
    assert not card.turns._credit and not card.turns._turn


@pytest.mark.parametrize("depth", [2, 4, 64])
def test_waiting_work_continues_only_after_card_progress(depth):
    """The driver therefore need not try before the status block advances."""
    seed = seeded()
    rng, waited = random.Random(seed), 0
    card = Card([FakeQP(rng.choice([0, 512, 20_000, 300_000]), again=rng.choice([0, 500]), again_length=4096)
                 for _ in range(3)], seed, depth)
    for _ in range(1_000):
        card.run(1)
        if card.turns.fill():
            there = {ring: found.prod for ring, found in card.rings.items()}
            assert card.turns.fill() and there == {ring: found.prod for ring, found in card.rings.items()}
            waited += 1
    assert waited
