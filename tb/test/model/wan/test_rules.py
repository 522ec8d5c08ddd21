"""Tests of Adamap's compiled rules against the functional model: the same packets, the same decisions.

The test puts packets on the line, one per slot; no message reaches the sender.
"""

import random
from types import SimpleNamespace

import pytest

from weft.hdl.contract import abi
from weft.model.functional import window as oracle
from weft.model.functional.builder import NodeBuilder
from weft.model.functional.cached_node import CachedNode
from weft.model.functional.matcher import Matcher
from weft.model.functional.node import Node, choose_encoding, fits
from weft.model.wan import engine
from weft.model.wan.adamap.node import BITMAP, HOLES, LIST, RUNS, take_hole
from weft.model.wan.experiment import Experiment
from weft.model.wan.path import line
from weft.model.wan.path.queue import BACK
from weft.model.wan.simulation_state import make

FOREVER = 1 << 40
COUNTED = "stale", "late_originals", "placed", "matches", "stalls"   # counts that a packet increases


class Card:
    """The compiled receiver, fed packet by packet."""

    def __init__(self, **settings):
        self.w = make(Experiment(**{
            "rtt_ms": 4, "dma_us": 0, "host_us": 0, "depth": 64, "watermark": 64, "fetch_blocks": 16,
            "cache_entries": 4096, "node_age_us": abi.NODE_AGE_MAX_NS / 1e3} | settings))
        self.s, self.qp = self.w.s, self.w.qp[0]
        self.s["outstanding_max"] = 0
        self.s["back_delay"] = FOREVER
        self.s["ack_every"] = FOREVER

    def give(self, psn, rsn=0, kind=line.ORIGINAL, last=0, qp=0):
        """Deliver one packet and run until it is processed; return the increases of the counts."""
        before = {name: int(self.s[name]) for name in COUNTED}
        at = int(self.s["now"] & self.s["flight_mask"])
        packet = self.w.flight[at]
        for name, value in {"psn": psn, "rsn": rsn, "kind": kind, "last": last, "qp": qp, "lost": 0,
                            "next": -1}.items():
            packet[name] = value
        packet["bucket"] = at
        self.idle()
        return {name: int(self.s[name]) - before[name] for name in COUNTED}

    def idle(self, slots=3):
        """Run for some slots; discard pending reports to free their space."""
        self.w.queue["tail"][BACK] = self.w.queue["head"][BACK]
        engine.run(self.w, int(self.s["now"]) + slots)

    def nodes(self):
        """Return the list: (first PSN, RSN, encoding, holes, open ones) of each node."""
        found, at = [], self.qp["list_head"]
        while at >= 0:
            node = self.w.node[at]
            count, fits = int(node["count"]), int(node["fits"])
            encoding = next(e for e in abi.Encoding if fits >> e & 1)
            holes = tuple(int(hole) for hole in node["offset"][:count])
            open_ = [int(node["first"]) + hole for hole, state in zip(holes, node["state"], strict=False) if not state]
            found.append((int(node["first"]), int(node["rsn"]), encoding, holes, open_))
            at = node["next"]
        return found


def verdict_of(grown):
    """Return the verdict of the compiled window, derived from the counts."""
    if grown["stale"]:
        return oracle.STALE
    if grown["late_originals"]:
        return oracle.LATE
    return oracle.ACCEPT if grown["placed"] else oracle.DUPLICATE


def stretch(rng, losses, length):
    """Return the packets that arrive of ``length`` PSNs: (PSN from the first, is new).

    ``losses`` returns runs of (gap, length). Some packets come late or again, and the last one always arrives.
    """
    psns, psn = [], 0
    while psn < length:
        gap, lost = losses()
        for fresh in range(psn, min(psn + gap, length)):
            psns.append((fresh, True))
            if rng.random() < 0.1:
                psns.append((rng.randint(fresh - 150, fresh), False))
            if rng.random() < 0.1:
                psns.append((fresh - rng.randint(0, 4), False))
        psn += gap + lost
    return [*psns, (length, True)]


def stream(rng):
    """Return (PSN, ends a message) of packets from a bad path.

    They cause nodes of each encoding, in any order, and jumps. A stretch is longer than the window and a few nodes
    together, so that it has separate nodes; it ends a message.
    """
    kinds = [
        lambda: stretch(rng, lambda: (rng.randint(40, 90), 1), 1500),                      # LIST
        lambda: stretch(rng, lambda: (rng.randint(50, 80), rng.randint(8, 12)), 1500),     # RUNS
        lambda: stretch(rng, lambda: (1, rng.randint(0, 4)), 700),                         # BITMAP
        lambda: stretch(rng, lambda: (rng.randint(5, 60), rng.choice((1, 40, 400, 3000))), 700)]
    rng.shuffle(kinds)
    packets, start = [], 0
    for kind in kinds:
        part = kind()
        packets += [(max(0, start + psn), fresh and rng.random() < 0.002) for psn, fresh in part[:-1]]
        start += part[-1][0]
        packets.append((start, True))
        start += 1
    return packets


@pytest.mark.parametrize("reorder", [1, 8, 128])
@pytest.mark.parametrize("scheme", ["adamap", "adamap-raw"])
def test_window_and_builder_decide_as_the_functional_model(scheme, reorder, seed):
    rng = random.Random(seed)
    encodings = (abi.Encoding.BITMAP,) if scheme == "adamap-raw" else tuple(abi.Encoding)
    card, window = Card(scheme=scheme, reorder=reorder), oracle.Window(128, 0)
    builder, nodes, verdicts = NodeBuilder(64, encodings), [], set()
    for number, (psn, last) in enumerate(stream(rng)):
        judged = window.judge(psn % (1 << 24), ack_req=last, reorder=reorder)
        for first, length in judged.lost:
            nodes += builder.run(1, 0, first, length, False)
        if judged.seal:
            nodes += builder.run(1, 0, 0, 0, True)
        grown = card.give(psn, last=last)
        verdicts.add(judged.verdict)
        assert verdict_of(grown) == judged.verdict, (seed, number, psn)
        assert (card.w.window[0]["base"], card.s["holes"]) == (judged.base, judged.holes), (seed, number, psn)
    card.idle()
    assert [(first, encoding, holes) for first, _, encoding, holes, _ in card.nodes()] == [
        (node.base_psn, node.encoding, node.holes) for node in nodes], seed
    # With a reorder distance of 1 a repeated packet is older than the window: late.
    assert verdicts == {oracle.ACCEPT, oracle.LATE} | ({oracle.DUPLICATE} if reorder > 1 else set()), (seed, verdicts)
    assert {node.encoding for node in nodes} == set(encodings), seed


STEPS = (1,), (2,), (1, 2, 3), (1, 1, 1, 90), (1, 1, 1, 400), (20, 30), (1, 9000)   # from a hole to the next


def test_node_takes_the_holes_that_fit_an_encoding(seed):
    rng = random.Random(seed)
    ended = set()
    for number in range(42):
        node = SimpleNamespace(first=0, count=0, left=0, runs=0, last=-2, fits=LIST | RUNS | BITMAP,
                               offset=[0] * HOLES, state=[0] * HOLES)
        holes, steps = [0], STEPS[number % len(STEPS)]
        while any(fits(encoding, holes) for encoding in abi.Encoding):
            assert take_hole.py_func(node, holes[-1]), (seed, holes)
            best = next(encoding for encoding in abi.Encoding if node.fits >> encoding & 1)
            assert best == choose_encoding(holes) and node.offset[:node.count] == holes, (seed, holes)
            holes.append(holes[-1] + rng.choice(steps))
        assert not take_hole.py_func(node, holes[-1]) and node.count == len(holes) - 1, (seed, holes)
        ended.add((best, holes[-1] >= 1 << abi.OFFSET_BITS))
    assert {(abi.Encoding.LIST, True), (abi.Encoding.RUNS, False), (abi.Encoding.BITMAP, False)} <= ended, (seed, ended)


@pytest.mark.parametrize("slack", [1, 5])
def test_matcher_decides_as_the_functional_model(slack, seed):
    rng = random.Random(seed)
    card, matcher = Card(slack=slack), Matcher(1, 0)
    psn = 0
    for _ in range(150):
        psn += rng.choice((1, 2, 3, 20))
        card.give(psn, last=rng.random() < 0.05)
    card.idle(10)
    for first, rsn, encoding, holes, _ in card.nodes():
        matcher.add(CachedNode(Node(1, 0, first, rsn, encoding, holes), 0))
    owed = [(first + hole, rsn + slot) for first, rsn, _, holes, _ in card.nodes() for slot, hole in enumerate(holes)]
    assert len(owed) > 100
    reasons = set()
    position = 0
    while position < len(owed):
        at = position if rng.random() < 0.9 else max(0, position - rng.randrange(2 * slack + 2))
        position += 1 if rng.random() < 0.9 else rng.choice((1, 2, 30))
        reason = matcher.match(*owed[at], slack)
        reasons.add(reason)
        grown = card.give(*owed[at], kind=line.AGAIN)
        assert grown["matches"] == 1 and grown["stalls"] == 0, (seed, at)
        if position % 8 == 0:
            expected = [(node.rsn, node.open_psns) for node in matcher.nodes]
            assert [(rsn, left) for _, rsn, _, _, left in card.nodes()][:len(expected)] == expected, (seed, at)
        assert card.s["nodes_retired"] == len(matcher.retired), (seed, at)
    assert card.s["residue"] == sum(node.left for node in matcher.retired), seed
    assert abi.Reason.OK in reasons and len(reasons) > 1, (seed, reasons)


def test_the_cache_is_shared_by_need(seed):
    """With as many lists as entries, each list has its head in the cache, and its next node was read."""
    rng, qps = random.Random(seed), 16
    card = Card(qps=qps, cache_entries=qps, depth=4, watermark=4, fetch_blocks=4, reorder=1)
    for qp in range(qps):
        for node in range(4 if qp < 4 else 2):
            card.give(3 * node, qp=qp)
            card.give(3 * node + 2, last=1, qp=qp)
    card.idle(100)
    assert card.w.qp["cached"].tolist() == [1] * qps and card.w.qp["kept"].tolist() == [1] * qps
    assert card.s["evicted"]
    card.s["dma_slots"] = FOREVER       # a read that starts now comes too late
    for node in range(2):
        for qp in rng.sample(range(qps), qps):
            grown = card.give(3 * node + 1, rsn=node, kind=line.AGAIN, qp=qp)
            assert grown["matches"] and not grown["stalls"], (seed, qp, node)
    assert card.s["nodes_retired"] == 2 * qps


def test_idle_list_leaves_an_eighth_of_the_cache(seed):
    entries = 8 * random.Random(seed).randint(1, 8)
    card = Card(cache_entries=entries, reorder=1)
    for node in range(entries + 8):
        card.give(3 * node)
        card.give(3 * node + 2, last=1)
    card.idle(100)
    assert card.qp["cached"] == entries - entries // 8 and card.qp["kept"]
