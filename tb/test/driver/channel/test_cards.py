"""Channels over QPs of functional cards that lose frames: every message arrives, and every send finds a receive."""

import random

import pytest

from weft.driver.channel.capacities import Capacities
from weft.driver.channel.channel import Channel, memory_bytes
from weft.driver.terms.enums import AccessFlag, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.model.link import LinkConfig
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.pair.functional_pair import make_pair

SEED = drawn_seed(__name__)
LIMIT_NS = 10**9
ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ


class End:
    """One end of a channel on a card; its QP permits remote reads only."""

    def __init__(self, context, capacities, message_bytes, yields):
        self.context = context
        self.pd, self.cq = PD(context), CQ(context, capacities.max_cqe)
        self.mr = MR(self.pd, memory_bytes(capacities, message_bytes) + 4096, ACCESS)
        self.qp = QP(self.pd, rc_init_attr(self.cq, max_send_wr=capacities.max_send_wr,
                                           max_recv_wr=capacities.max_recv_wr))
        self._arguments = capacities, message_bytes, yields

    def connect(self, peer):
        self.qp.connect(peer, rnr_retry=0, qp_access_flags=AccessFlag.REMOTE_READ)
        capacities, message_bytes, yields = self._arguments
        self.channel = Channel(self.qp, self.cq, self.mr, capacities, message_bytes=message_bytes, yields=yields)


@pytest.mark.parametrize(("data", "imm", "message_bytes"), [(1, 1, 200), (4, 2, 3_000), (16, 4, 20_000)])
def test_all_messages_arrive_in_both_directions(data, imm, message_bytes):
    print(f"again: WEFT_SEED={SEED} python -m pytest tb/test/driver/channel/test_cards.py")
    rng = random.Random(SEED)
    link = LinkConfig(delay_ns=3_000, loss=0.02)
    pair = make_pair(seed=SEED, forward=link, backward=link)
    capacities = Capacities(data, imm, max_read_wr=2)
    ends = [End(c, capacities, message_bytes, yields=(None if imm > 1 else bool(i)))
            for i, c in enumerate(pair.contexts)]
    connections = [end.qp.connection for end in ends]
    for end, peer in zip(ends, connections[::-1], strict=True):
        end.connect(peer)
    left = [[rng.randbytes(rng.choice([0, 1, 256, 257, rng.randrange(message_bytes)]) % (message_bytes + 1))
             for _ in range(60)] for _ in ends]
    wanted, got, reads = [list(messages) for messages in left], [[], []], [0, 0]
    deadline = pair.loop.now_ns + LIMIT_NS
    while any(left) or any(len(g) < 60 for g in got) or any(end.channel.waiting for end in ends):
        assert pair.loop.now_ns < deadline
        for i, end in enumerate(ends):
            if left[i] and rng.random() < 0.5:
                end.channel.send(left[i].pop(0))
            if rng.random() < 0.05:
                other = ends[1 - i].mr
                wr = SendWR(5, WROpcode.RDMA_READ, sg=[SGE(end.mr.buf + end.mr.length - 100, 100, end.mr.lkey)],
                            send_flags=SendFlags.SIGNALED, rkey=other.rkey, remote_addr=other.buf)
                end.channel.post(wr)
                reads[i] += 1
            end.context.progress()
            while (message := end.channel.recv()) is not None:
                got[1 - i].append(message)
        pair.loop.run(pair.loop.now_ns + 2_000)
    assert got == wanted
    while any(len(end.channel.completions) < n for end, n in zip(ends, reads, strict=True)):
        for end in ends:
            end.context.progress()
            end.channel.progress()
        pair.loop.run(pair.loop.now_ns + 2_000)
    assert all(wc.status is WCStatus.SUCCESS for end in ends for wc in end.channel.completions) and sum(reads)
    assert not any(end.qp.sender._rnr for end in ends)
    assert sum(sum(link.counters.lost.values()) for link in pair.links)
