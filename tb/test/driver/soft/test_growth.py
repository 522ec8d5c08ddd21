"""Hostile frames at the endpoints: no object exceeds its limit, and nothing remains.

The port either takes the frames of the endpoint or blocks.
"""

import random

import pytest

from weft.driver.protocol import arp
from weft.driver.soft.raw.packet import BROADCAST, Opcode, Packet
from weft.driver.soft.raw.packet import build as build_raw
from weft.driver.soft.raw.qp import MAX_OOO
from weft.driver.soft.rc.context import ARP_ANSWERS
from weft.driver.soft.rc.qp import RcAttr, SoftQP
from weft.driver.terms.enums import MTU, QPState, WROpcode
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.judge.growth import sizes
from weft.tb.test.driver.soft import test_raw_hostile, test_rc_hostile
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.raw_pair import RawPair
from weft.tb.test.driver.soft.rc_pair import IPS, RcPair
from weft.tb.test.driver.soft.rc_traffic import traffic

SEED = drawn_seed("growth")
AGAIN = f"WEFT_SEED={SEED} python -m pytest tb/test/driver/soft/test_growth.py"
RAW_LIMITS = {"TransmitQueue._frames": 64, "QueuePair.ooo_queue": MAX_OOO, "CompletionQueue._queue": 128}
RC_LIMITS = {"Replies._queue": 5, "Replies._resources": 4, "SoftContext._answers": ARP_ANSWERS, "CQ._queue": 64}
ROUNDS, FRAMES = 4, 400


def within(found, before, limits):
    """Check that no object exceeds its limit or its earlier size; return the objects that are at their limit."""
    for where, entries in found.items():
        assert entries <= max(limits.get(where, 0), before[where]), (where, entries, AGAIN)
    return {where for where, limit in limits.items() if found[where] == limit}


@pytest.mark.parametrize("space", [0, 1024])
def test_the_documents_endpoint(space):
    rng, pair = random.Random(SEED), RawPair(size=8192)
    for n in range(20):
        pair.post(0, Opcode.READ if n % 2 else Opcode.WRITE, length=300, wr_id=n)
    pair.done(0, 20)
    own, end = [frame for _, frame in pair.frames], pair.ends[1]
    before, full = sizes(end), set()
    pair.hosts[1].port.space = space
    for _ in range(ROUNDS):
        for n in range(FRAMES):
            pair.hosts[1].arrive(test_raw_hostile.mutated(rng, rng.choice(own)))
            pair.hosts[1].arrive(build_raw(Packet(
                rng.choice([Opcode.PING, Opcode.DISCOVER]), rng.choice([MACS[1], BROADCAST]), rng.getrandbits(48),
                dst_qp=rng.randrange(2), seq=rng.getrandbits(32))))
            ahead = (pair.state(1).rx_expected_seq + n % 100) % (1 << 32)
            pair.hosts[1].arrive(test_raw_hostile.packet(pair, seq=ahead))
        full |= within(sizes(end), before, RAW_LIMITS)
    assert full >= {"CompletionQueue._queue"} | ({"TransmitQueue._frames"} if space == 0 else set()), AGAIN
    end.rdma_qp_destroy(pair.qp[1][0])
    end.take_frames()
    left = sizes(end)
    assert sum(left.values()) <= sum(before.values()) and end.buffers.used == 0, AGAIN


@pytest.mark.parametrize("space", [0, 1024])
def test_the_rocev2_endpoint(space):
    """Queue pairs are attacked one after the other; some enter ERR, and all leave no state."""
    rng, own, pair = random.Random(SEED), traffic(SEED).frames, RcPair(connected=False)
    end, cq = pair.ends[1], pair.cq[1]
    pair.qp[1].close()
    before, full, ended = sizes(end), set(), 0
    pair.hosts[1].port.space = space
    for _ in range(10 * ROUNDS):
        qp = SoftQP(pair.pd[1], rc_init_attr(cq, max_recv_wr=16))
        qp.connect(pair.qp[0].connection, RcAttr(path_mtu=MTU.MTU_256))
        pair.qp[1] = qp
        for n in range(4):
            pair.post(1, WROpcode.SEND, length=8, wr_id=n)
        posted = sizes(end)
        for _ in range(FRAMES // 10):
            pair.hosts[1].arrive(arp.question(rng.getrandbits(40), rng.getrandbits(32), IPS[1]))
            pair.hosts[1].arrive(test_rc_hostile.mutated(rng, rng.choice(own)[1], qp))
        full |= within(sizes(end), posted, RC_LIMITS)
        ended += qp.qp_state is QPState.ERR
        qp.close()
        cq.poll(1 << 20)
    end.take_frames()
    left = sizes(end)
    assert ended and all(left[where] <= before[where] for where in left), AGAIN
    assert space or "SoftContext._answers" in full, AGAIN
