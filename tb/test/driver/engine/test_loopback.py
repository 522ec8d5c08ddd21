"""Connections of a card with itself: no frame leaves the card; everything else is as between two cards."""

import random

import pytest

from weft.driver.terms.enums import MTU, AccessFlag, QPState, WCStatus, WROpcode
from weft.driver.verbs.context import Context
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.device import add_device, remove_device
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.sim.flow.seed import drawn_seed

SEED = drawn_seed(__name__)
WRITE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE


class End:
    """Program with a separate context, which shares the card with the other program."""

    def __init__(self, name):
        self.context = Context(name=name)
        self.pd, self.cq = PD(self.context), CQ(self.context, 256)
        self.mr = MR(self.pd, 1 << 17, WRITE)
        self.qp = QP(self.pd, rc_init_attr(self.cq))

    def write(self, peer, at, length, to, *, imm=None, wr_id=0, rkey=None):
        wr = SendWR(wr_id, sg=[SGE(self.mr.buf + at, length, self.mr.lkey)], imm_data=imm or 0,
                    opcode=WROpcode.RDMA_WRITE if imm is None else WROpcode.RDMA_WRITE_WITH_IMM)
        wr.set_wr_rdma(peer.mr.rkey if rkey is None else rkey, peer.mr.buf + to)
        self.qp.post_send(wr)


@pytest.fixture
def ends():
    device, frames = FunctionalDevice(EventLoop()), []
    device.transmit = frames.append
    name = add_device(device, mac=0x02_0000_0000_01, ip=0x0A00_0001)
    both = [End(name), End(name)]
    for end, peer in zip(both, both[::-1], strict=True):
        end.qp.connect(peer.qp.connection, path_mtu=MTU.MTU_256, timeout=4)
    yield both
    for end in both:
        end.context.close()
    remove_device(name)
    assert not frames and not device.memory._pages and not device.card.tables.qps


def test_random_writes_arrive_in_order_and_once(ends):
    print(f"WEFT_SEED={SEED} python -m pytest tb/test/driver/engine/test_loopback.py")
    rng = random.Random(SEED)
    reference = [bytearray(1 << 17) for _ in ends]
    for end in ends:
        end.mr.write(rng.randbytes(1 << 16))
        for n in range(60):
            end.qp.post_recv(RecvWR(n))
    wanted = [[], []]
    for n in range(60):
        for i, (end, peer) in enumerate(zip(ends, ends[::-1], strict=True)):
            at, to, length = rng.randrange(1 << 15), (1 << 16) + rng.randrange(1 << 15), rng.choice([0, 1, 255, 9000])
            imm = rng.getrandbits(32) if rng.random() < 0.5 else None
            end.write(peer, at, length, to, imm=imm, wr_id=n)
            reference[1 - i][to:to + length] = end.mr.read(length, at)
            if imm is not None:
                wanted[1 - i].append((imm, length))
    sent, got = [0, 0], [[], []]
    while min(sent) < 60 or got != wanted:
        for i, end in enumerate(ends):
            for wc in end.cq.poll(8)[1]:
                assert wc.status is WCStatus.SUCCESS
                if wc.opcode == 1:
                    assert wc.wr_id == sent[i]
                    sent[i] += 1
                else:
                    got[i].append((wc.imm_data, wc.byte_len))
    for end, memory in zip(ends, reference, strict=True):
        assert end.mr.read(1 << 16, 1 << 16) == memory[1 << 16:]


@pytest.mark.parametrize(("how", "status"), [
    ("key", WCStatus.REM_ACCESS_ERR), ("end", WCStatus.REM_ACCESS_ERR), ("lkey", WCStatus.LOC_PROT_ERR),
    ("gone", WCStatus.RETRY_EXC_ERR)])
def test_loopback_errors_equal_those_between_two_cards(ends, how, status):
    a, b = ends
    a.write(b, 0, 100, 0, wr_id=1)
    if how == "gone":
        a.cq.wait(1)
        b.qp.reset()
    if how == "lkey":
        wr = SendWR(2, sg=[SGE(a.mr.buf, 8, a.mr.lkey ^ 1)], opcode=WROpcode.RDMA_WRITE)
        wr.set_wr_rdma(b.mr.rkey, b.mr.buf)
        a.qp.post_send(wr)
    else:
        a.write(b, 0, 1000, (1 << 17) - 500 if how == "end" else 0, rkey=b.mr.rkey ^ (how == "key"), wr_id=2)
    a.write(b, 0, 100, 0, wr_id=3)
    found = [] if how != "gone" else [(1, WCStatus.SUCCESS)]
    while len(found) < 3:
        found += [(wc.wr_id, wc.status) for wc in a.cq.wait(1, timeout_ns=10**9)]
    assert found == [(1, WCStatus.SUCCESS), (2, status), (3, WCStatus.WR_FLUSH_ERR)]
    assert a.qp.qp_state is QPState.ERR
    assert (b.qp.qp_state is QPState.ERR) is (how in ("key", "end"))


def test_packets_without_a_peer_arrive_when_the_peer_exists(ends):
    a, b = ends
    late = QP(b.pd, rc_init_attr(b.cq))
    early = QP(a.pd, rc_init_attr(a.cq))
    a.qp.close()
    a.qp = early
    early.connect(late.connection, timeout=14)
    a.mr.write(b"early")
    a.write(b, 0, 5, 100, wr_id=5)
    a.context.serve(200_000)
    assert not len(a.cq)
    late.connect(early.connection)
    assert [(wc.wr_id, wc.status) for wc in a.cq.wait(1, timeout_ns=10**9)] == [(5, WCStatus.SUCCESS)]
    assert b.mr.read(5, 100) == b"early"


def test_contexts_of_one_card_close_in_sequence(ends):
    a, b = ends
    a.context.close()
    with pytest.raises(ValueError, match="closed"):
        a.context.progress()
    assert a.qp.closed and a.mr.closed and not b.qp.closed
    third = QP(b.pd, rc_init_attr(b.cq))
    b.qp.reset()
    b.qp.connect(third.connection)
    third.connect(b.qp.connection)
    b.write(b, 0, 10, 20)
    assert [wc.status for wc in b.cq.wait(1, timeout_ns=10**9)] == [WCStatus.SUCCESS]
