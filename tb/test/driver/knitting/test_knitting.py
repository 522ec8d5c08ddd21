"""Blocks, quotas, extents and waiting holes in isolation, without a card; the test sets the time."""

import collections
import random
from types import SimpleNamespace

import pytest

from weft.driver.knitting.buffer import KnittingBuffer
from weft.driver.knitting.free_list import STRIP, FreeList
from weft.driver.knitting.holes import node_runs
from weft.driver.knitting.node import choose_encoding
from weft.driver.receive.hole_list import WaitingHoles
from weft.hdl.contract import abi
from weft.model.functional.host import FunctionalDevice
from weft.model.functional.node import damage
from weft.model.loop import EventLoop


class Card:
    """Card that accepts extents at once, or when :meth:`answer` is called."""

    def __init__(self, *, answers=True):
        self.answers, self.extents, self.pending = answers, {}, collections.deque()

    def announce(self, index, address, length, done):
        self.pending.append((index, address, length, done))
        if self.answers:
            self.answer()

    def answer(self):
        while self.pending:
            index, address, length, done = self.pending.popleft()
            self.extents.pop(index, None)
            if length:
                self.extents[index] = address, length
            done()

    def knows(self, line):
        return any(a <= line * 64 < a + n for a, n in self.extents.values())


def make_pool(blocks=32, extents=4, **options):
    card = Card()
    return KnittingBuffer(FunctionalDevice(EventLoop()), card.announce, extent_bytes=blocks * 64, max_extents=extents,
                          **options), card


FIELDS = {"qpn": 1, "generation": 1, "count": 1, "encoding": abi.Encoding.LIST, "base_psn": 0, "rsn": 0}


# ------------------------------------------------------------------------------------------ free list


@pytest.mark.parametrize("seed", range(3))
def test_free_list_gives_each_block_once(seed):
    rng, blocks = random.Random(seed), FreeList()
    extents = {1_000: 40, 5_000: 16, 3_000: 7}
    for base, count in extents.items():
        blocks.add(base, count)
    everything = {base + i for base, count in extents.items() for i in range(count)}
    used = set()
    for _ in range(3_000):
        chance = rng.random()
        if chance < 0.5 and len(blocks):
            wanted = rng.choice([None, *(line + 1 for line in used)]) if rng.random() < 0.8 else None
            free = wanted is not None and blocks.is_free(wanted)
            line = blocks.take(wanted)
            assert line not in used and line in everything and (not free or line == wanted)
            used.add(line)
        elif chance < 0.9 and used:
            line = rng.choice(sorted(used))
            used.discard(line)
            blocks.release(line)
        elif used:
            some = collections.deque(rng.sample(sorted(used), rng.randint(1, len(used))))
            used -= set(some)
            blocks.splice(some)
        assert len(blocks) + len(used) == len(everything)
    blocks.sort_in(10**6)
    with pytest.raises(RuntimeError, match="not in use"):
        blocks.release(min(everything - used))
    while len(blocks):
        used.add(blocks.take())
    assert used == everything
    with pytest.raises(IndexError):
        blocks.take()
    with pytest.raises(ValueError, match="in use"):
        blocks.remove(3_000)
    blocks.splice(collections.deque(used))
    blocks.sort_in(10**6)
    for base in extents:
        blocks.remove(base)
    assert len(blocks) == 0


def test_lists_start_apart_and_grow_in_adjacent_blocks():
    blocks = FreeList()
    blocks.add(0, 8 * STRIP)
    tails = [blocks.take() for _ in range(4)]
    assert len({t // STRIP for t in tails}) == 4
    for _ in range(STRIP - 1):
        for i, tail in enumerate(tails):
            tails[i] = blocks.take(tail + 1)
            assert tails[i] == tail + 1


def test_returning_a_chain_takes_no_time_per_block():
    class Counting(collections.deque):
        touched = 0

        def popleft(self):
            Counting.touched += 1
            return super().popleft()

    pool, _ = make_pool(blocks=4096, extents=1)
    chain = pool.open_chain()
    for _ in range(3_000):
        chain.link(FIELDS)
    chain.lines = Counting(chain.lines)
    chain.close()
    assert Counting.touched == 0 and pool.free_blocks == 4096
    assert pool.check() == {"free": 4096, "linked": 0}


# ---------------------------------------------------------------------------------------------- quota


def test_share_of_each_shrinks_with_more_requesters():
    pool, _ = make_pool(blocks=256, extents=1, alpha=1)
    first = pool.open_chain()
    while first.link(FIELDS):
        pass
    assert 120 <= len(first.lines) <= 128   # alpha 1: as many as the free blocks
    others = [pool.open_chain() for _ in range(4)]
    for chain in others:
        while chain.link(FIELDS):
            pass
        assert len(chain.lines) >= 1
    sizes = [len(chain.lines) for chain in others]
    assert sizes == sorted(sizes, reverse=True) and pool.free_blocks > 0
    while first.lines:
        first.retire(first.lines[0])
    while others[-1].link(FIELDS):
        pass
    assert len(others[-1].lines) > sizes[-1]
    for chain in (first, *others):
        chain.close()
    assert pool.check()["free"] == 256


@pytest.mark.parametrize("seed", range(3))
def test_empty_chain_always_gets_a_block(seed):
    rng = random.Random(seed)
    pool, card = make_pool(blocks=12, extents=1)
    chains = [pool.open_chain() for _ in range(12)]
    with pytest.raises(MemoryError):
        pool.open_chain()
    for _ in range(1_000):
        chain = rng.choice(chains)
        if rng.random() < 0.6:
            empty = not chain.lines
            assert chain.link(FIELDS) or not empty
        elif chain.lines:
            chain.retire(chain.lines[0])
        pool.check()
        assert all(card.knows(line) for c in chains for line in c.lines)


@pytest.mark.parametrize("length", [1, 3])
def test_a_node_points_to_its_successor_once_there_is_one(length):
    pool, _ = make_pool()
    chain, phases, before = pool.open_chain(), collections.defaultdict(list), None
    for _ in range(200):
        line, data = chain.link(FIELDS)
        node = abi.NODE.unpack(data)
        assert not node.next_line and not node.next_adjacent and pool.extents.read(line) == data and not damage(data)
        if chain.lines[0] != line:
            block = pool.extents.read(before[0])
            pointer = abi.NODE.unpack(block)
            assert (pointer.next_line, pointer.next_adjacent) == (line, line == before[0] + 1)
            assert pointer.next_phase == phases[before[0]][-1] and block[8:] == before[1][8:] and not damage(block)
        phases[line].append(node.next_phase)
        before = line, data
        if len(chain.lines) == length:
            chain.retire(chain.lines[0])
    assert any(len(p) > 2 for p in phases.values())
    assert all(p == [(i + 1) % 2 for i in range(len(p))] for p in phases.values())


def test_an_empty_list_holds_nothing():
    pool, _ = make_pool(blocks=16, extents=1)
    chains = [pool.open_chain() for _ in range(16)]
    assert pool.check() == {"free": 16, "linked": 0}
    for chain in chains:
        chain.link(FIELDS)
    assert pool.check() == {"free": 0, "linked": 16}
    for chain in chains:
        chain.retire(chain.lines[0])
    assert pool.check() == {"free": 16, "linked": 0}


def test_block_number_is_extent_and_offset():
    pool, card = make_pool(blocks=32, extents=3, number_bits=9)
    pool.grow()
    for index, (address, length) in card.extents.items():
        for place in (0, 5, length // 64 - 1):
            assert pool.extents.number(address // 64 + place) == index << 9 | place


def test_only_the_oldest_block_can_be_returned():
    pool, _ = make_pool()
    chain = pool.open_chain()
    chain.link(FIELDS)
    chain.link(FIELDS)
    with pytest.raises(RuntimeError, match="head"):
        chain.retire(chain.lines[1])


# -------------------------------------------------------------------------------------------- extents


def test_blocks_are_used_only_while_the_card_knows_their_extent():
    pool, card = make_pool(blocks=16, extents=3, calm_ns=100)
    card.answers = False
    chain = pool.open_chain()
    while chain.link(FIELDS):
        pass
    pool.balance(0)
    assert pool.changing and len(pool.extents) == 1 and chain.link(FIELDS) is None
    pool.balance(1)   # one change at a time
    assert len(card.pending) == 1
    card.answer()
    assert len(pool.extents) == 2 and chain.link(FIELDS)
    while chain.lines:
        chain.retire(chain.lines[0])
    memory = pool.extents.device.memory
    pages = len(memory._pages)
    pool.balance(10)
    pool.balance(200)
    assert pool.changing and pool.free_blocks == 16 and len(memory._pages) == pages
    pool.check()
    while chain.link(FIELDS):
        assert all(card.knows(line) for line in chain.lines)
    card.answer()
    assert len(pool.extents) == len(card.extents) == 1 and len(memory._pages) == pages - 1
    assert pool.counts["grown"] == 2 and pool.counts["shrunk"] == 1


def test_an_extent_in_use_stays():
    pool, card = make_pool(blocks=16, extents=2, calm_ns=10)
    pool.grow()
    chains = [pool.open_chain() for _ in range(3)]
    for chain in chains:
        chain.link(FIELDS)
    in_use = {next(i for i, (a, n) in card.extents.items() if a <= line * 64 < a + n)
              for c in chains for line in c.lines}
    for now in range(0, 1_000, 10):
        pool.balance(now)
    assert set(card.extents) >= in_use


def test_a_reset_card_learns_every_extent_again():
    pool, card = make_pool(blocks=16, extents=4)
    pool.grow()
    known = dict(card.extents)
    card.answers = False
    pool.grow()      # requested, but not answered
    card.pending.clear()
    card.extents.clear()
    pool.extents.announce_again()
    assert pool.changing
    card.answer()
    assert not pool.changing and len(card.extents) == 3 and known.items() <= card.extents.items()
    assert pool.free_blocks == 48


# -------------------------------------------------------------------------------------- waiting holes


def flat(runs):
    return [p + k for p, n in runs for k in range(n)]


def drain(waiting):
    nodes = []
    while waiting:
        nodes.append(waiting.take_node())
    return nodes


@pytest.mark.parametrize("seed", range(10))
def test_waiting_holes_are_taken_once_in_order_in_full_nodes(seed):
    rng, waiting, expected = random.Random(seed), WaitingHoles(10**6), set()
    for _ in range(rng.randint(1, 40)):
        at, runs = rng.randrange(1 << 18), []
        for _ in range(rng.randint(1, 10)):
            runs.append((at, rng.choice([1, 1, 2, 30, 400])))
            at += runs[-1][1] + rng.choice([1, 2, 9, 300, 70_000])
        assert not waiting.add(runs)
        expected |= set(flat(runs))
    assert waiting.lowest == min(expected)
    nodes = drain(waiting)
    holes = [p for runs, _ in nodes for p in flat(runs)]
    assert holes == sorted(expected) and waiting.added == 0
    for (runs, fields), (following, _) in zip(nodes, nodes[1:], strict=False):
        abi.NODE.pack(**fields)
        assert node_runs(SimpleNamespace(**fields), runs[0][0]) == runs
        more = [*flat(runs), following[0][0]]
        assert choose_encoding([p - more[0] for p in more]) is None, "one more hole would have fitted"


def test_small_nodes_are_merged():
    """Sixty-four reports of one hole each, four PSNs apart, need one node."""
    waiting = WaitingHoles(1_000)
    for psn in range(0, 256, 4):
        waiting.add([(psn, 1)])
    assert len(drain(waiting)) == 1


@pytest.mark.parametrize("seed", range(5))
def test_spans_are_made_only_beyond_the_limit_and_cover_no_more_than_going_back(seed):
    rng, waiting, expected = random.Random(seed), WaitingHoles(32), set()
    made = 0
    for _ in range(400):
        first = rng.randrange(100_000)
        made += waiting.add([(first, rng.randint(1, 3))])
        expected |= {first}
        assert len(waiting) <= 32
    lowest, highest = min(expected), max(expected)
    holes = [p for runs, _ in drain(waiting) for p in flat(runs)]
    assert made and expected <= set(holes) and holes == sorted(set(holes))
    assert lowest == holes[0] and holes[-1] <= highest + 3
    assert len(holes) > len(expected) and waiting.added > 0
