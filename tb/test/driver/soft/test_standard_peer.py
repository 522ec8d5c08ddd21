"""Writes of the card to a peer that implements RoCEv2 only: the software endpoint, over a bad link."""

import random

import pytest

from weft.driver.soft.rc.context import SoftContext
from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.qp import RcAttr, SoftConnection, SoftQP
from weft.driver.terms.enums import AccessFlag, SendFlags, WCStatus, WROpcode
from weft.driver.terms.errors import NotSupported
from weft.driver.verbs.addr import GID
from weft.driver.verbs.context import Context, ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPConnection
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import wire
from weft.hdl.contract.params import preset
from weft.model.functional.host import FunctionalDevice, run_apps
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.driver.soft.hosts import BAD_LINK, MACS, Host
from weft.tb.test.driver.soft.rc_pair import ALL, IPS

LENGTH = 60_000


class CardAndPeer:
    """Functional card (host 0) and software endpoint (host 1) at the two ends of a link.

    A card with a pool of ``paced`` descriptors paces the QP.
    """

    def __init__(self, seed=0, link=None, paced=0):
        self.loop = EventLoop()
        self.device = FunctionalDevice(self.loop, seed=seed, preset=preset("test").with_(pace_descriptors=paced))
        self.links = [Link(self.loop, lambda frame: self.peer.arrive(frame), link, f"{seed}/0"),
                      Link(self.loop, self.device.card.receive, link, f"{seed}/1")]
        self.frames = []
        self.device.transmit = lambda frame: (self.frames.append(frame), self.links[0].send(frame))
        self.soft = SoftContext(mac=MACS[1], ip=IPS[1], random=random.Random(seed))
        self.peer = Host(self.loop, self.soft, self.links[1].send)
        self.peer_cq = CQ(self.soft, 64)
        self.peer_mr = SoftMR(PD(self.soft), LENGTH, ALL)
        self.peer_qp = SoftQP(self.peer_mr.pd, rc_init_attr(self.peer_cq))
        self.context = Context(self.device, mac=MACS[0], ip=IPS[0], config=ContextConfig(
            random=random.Random(seed), congestion="swift" if paced else "none"))
        self.cq = CQ(self.context, 64)
        self.mr = MR(PD(self.context), LENGTH, AccessFlag.LOCAL_WRITE)
        self.qp = QP(self.mr.pd, rc_init_attr(self.cq, max_inline_data=64))

    def connect(self, **attributes):
        there, here = self.peer_qp.connection, self.qp.connection
        self.peer_qp.connect(SoftConnection(here.qpn, here.psn, MACS[0], IPS[0]), RcAttr())
        self.qp.connect(QPConnection(there.qpn, there.psn, str(GID.of_ipv4(IPS[1]))), standard=True, **attributes)

    def post(self, wr_id, opcode=WROpcode.RDMA_WRITE, at=0, length=LENGTH, imm=0, rkey=None, flags=SendFlags.SIGNALED):
        wr = SendWR(wr_id, sg=[SGE(self.mr.buf + at, length, self.mr.lkey)], opcode=opcode, imm_data=imm,
                    send_flags=flags)
        wr.set_wr_rdma(self.peer_mr.rkey if rkey is None else rkey, self.peer_mr.buf + at)
        self.qp.post_send(wr)

    def wait(self, count):
        """Return number and status of ``count`` requests, in order."""
        done = []

        def wait():
            while len(done) < count:
                done.extend((wc.wr_id, wc.status) for wc in self.cq.wait(count - len(done), 10**10))
        run_apps(self.loop, [(self.device, wait)], 10**10)
        return done

    def opcodes(self):
        return {frame[wire.BTH_OFFSET] for frame in self.frames if frame[12:14] == b"\x08\x00"}


@pytest.mark.parametrize("paced", [0, 4, 64])
def test_the_card_writes_to_a_standard_peer_over_a_bad_link(paced):
    seed = drawn_seed()
    pair = CardAndPeer(seed, BAD_LINK, paced)
    pair.connect()
    again = f"WEFT_SEED={seed} python -m pytest tb/test/driver/soft/test_standard_peer.py"
    data = random.Random(seed).randbytes(LENGTH)
    pair.mr.write(data)
    pair.peer_qp.post_recv(RecvWR(99))
    for n in range(10):
        pair.post(n, at=LENGTH // 10 * n, length=LENGTH // 10)
    pair.post(10, WROpcode.RDMA_WRITE_WITH_IMM, length=8, imm=77)
    assert pair.wait(11) == [(n, WCStatus.SUCCESS) for n in range(11)], again
    assert pair.peer_mr.read(LENGTH) == data, again
    received = pair.peer_cq.poll(9)[1]
    assert [(wc.wr_id, wc.status, wc.imm_data) for wc in received] == [(99, WCStatus.SUCCESS, 77)], again
    lost = sum(pair.links[0].counters.lost.values())
    assert not lost or pair.qp.sender.counts["retransmissions"], again
    assert pair.opcodes() <= {wire.Opcode.WRITE_ONLY, wire.Opcode.WRITE_ONLY_IMM, wire.Opcode.ACKNOWLEDGE}, again
    assert pair.context.engine.paced.used == 0, again
    pair.context.close()


@pytest.mark.parametrize("lost", ["one in the middle", "the last ones", "all answers at first"])
def test_lost_packets_are_retransmitted(lost):
    pair = CardAndPeer(1, LinkConfig())
    pair.connect()
    pair.mr.write(bytes(range(250)) * (LENGTH // 250))
    first = pair.qp.sender.queue.una
    dropped, until = set(), {"one in the middle": 1, "the last ones": 3, "all answers at first": 2}[lost]

    def drop(frame):
        if frame[12:14] != b"\x08\x00" or len(dropped) >= until:
            return False
        psn = wire.BTH.unpack(frame[wire.BTH_OFFSET:]).psn
        number = (psn - first) % (1 << 24)
        if lost == "one in the middle" and number == 20 or lost == "the last ones" and number >= 56:
            dropped.add(number)
        elif lost == "all answers at first":
            dropped.add(len(dropped))
        else:
            return False
        return True
    pair.links[lost == "all answers at first"].drop = drop
    pair.post(0)
    assert pair.wait(1) == [(0, WCStatus.SUCCESS)] and len(dropped) == until
    assert pair.peer_mr.read(LENGTH) == pair.mr.read(LENGTH, 0)
    counts = pair.qp.sender.counts
    if lost == "one in the middle":
        assert counts["go_backs"] == 1 and not counts["probes"] and counts["retransmissions"] == 59 - 20
    elif lost == "all answers at first":
        assert counts["probes"] and not counts["go_backs"] and counts["retransmissions"] <= 1 + 59


def test_inline_data_go_to_a_standard_peer_within_the_card_limit():
    seed = drawn_seed()
    pair = CardAndPeer(seed, BAD_LINK)
    pair.connect()
    data = random.Random(seed).randbytes(60 * 50)
    pair.mr.write(data)
    for n in range(60):
        pair.post(n, at=50 * n, length=50, flags=SendFlags.SIGNALED | SendFlags.INLINE)
        pair.mr.write(bytes(50), offset=50 * n)
        assert pair.wait(1) == [(n, WCStatus.SUCCESS)], f"WEFT_SEED={seed}"
    assert pair.peer_mr.read(len(data), 0) == data, f"WEFT_SEED={seed}"
    pair.context.close()


def test_rejecting_or_absent_standard_peer_ends_the_connection():
    pair = CardAndPeer(1)
    pair.connect()
    pair.post(1, length=100, rkey=pair.peer_mr.rkey ^ 1)
    assert pair.wait(1) == [(1, WCStatus.REM_ACCESS_ERR)]
    pair = CardAndPeer(2)
    pair.connect(timeout=5, retry_cnt=2)
    pair.links[0].drop = lambda frame: frame[12:14] == b"\x08\x00"
    pair.post(1, length=100)
    start = pair.loop.now_ns
    assert pair.wait(1) == [(1, WCStatus.RETRY_EXC_ERR)]
    assert pair.loop.now_ns - start < 10 * (3 * 4096 << 5)


def test_standard_peer_gets_writes_only():
    pair = CardAndPeer(1)
    pair.connect()
    for opcode in (WROpcode.SEND, WROpcode.RDMA_READ, WROpcode.ATOMIC_FETCH_AND_ADD):
        with pytest.raises(NotSupported, match="RDMA writes only"):
            pair.post(1, opcode, length=8)


def test_a_cut_path_to_a_standard_peer_is_left():
    pair = CardAndPeer(1)
    pair.connect(timeout=8, retry_cnt=7)
    port = pair.qp.engine.sport
    at = wire.ETH.size_bytes + wire.IPV4.size_bytes + 1
    pair.links[0].drop = lambda frame: frame[12:14] == b"\x08\x00" and frame[at] & 1 == port & 1
    pair.post(1, length=100)
    assert pair.wait(1) == [(1, WCStatus.SUCCESS)]
    assert 1 <= pair.context.counts["path_changes"] <= 10 and pair.qp.engine.sport != port
    pair.context.close()
