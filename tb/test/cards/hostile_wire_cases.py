"""Bad frames at the wire of card B during a transfer: the card drops, counts and reports each, and continues."""

import random
from collections import Counter

import cocotb
from cocotb.task import bridge

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import AccessFlag, QPAttrMask, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPAttr, rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi, wire
from weft.hdl.contract.abi import Reason, split_qpn
from weft.hdl.contract.wire import Opcode
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.test.cards import hostile_frames as frames
from weft.tb.test.cards.hostile_frames import Target, data_frame
from weft.tb.test.cards.hostile_pair import HostilePair

FILE_BYTES = 40_000
PIECE = 2500
QPS = 2
NIC_LOG2 = 3
REORDER = 16
TIMEOUT_NS = 2_000_000
HOST_QPN = 0xAB_CDEF
UNKNOWN_PEER = 0x0A_00_00_99


class Sender:
    """Card A: writes all the time, in pieces that are acknowledged one by one, and finally a whole file."""

    def __init__(self, pair, rng):
        self.pair, self.data, self.stop, self.done, self.pieces = pair, rng.randbytes(FILE_BYTES), False, False, 0
        self.endpoint = Endpoint(pair.contexts["a"], FILE_BYTES, qps=QPS)
        self.endpoint.mr.write(self.data)

    def run(self, offer):
        endpoint, at = self.endpoint, 0
        while not self.stop:
            length = min(PIECE, FILE_BYTES - at)
            wr = SendWR(wr_id=at, sg=[SGE(endpoint.mr.buf + at, length, endpoint.mr.lkey)],
                        opcode=WROpcode.RDMA_WRITE, send_flags=SendFlags.SIGNALED)
            wr.set_wr_rdma(offer.rkey, offer.va + at)
            endpoint.qps[self.pieces % QPS].post_send(wr)
            (wc,) = endpoint.cq.wait(1, TIMEOUT_NS)
            assert wc.status is WCStatus.SUCCESS, wc
            self.pieces += 1
            at = (at + length) % FILE_BYTES
        send_file(endpoint, offer, timeout_ns=TIMEOUT_NS)
        self.done = True


class Receiver:
    """Card B: the file's endpoint, and the targets of an attack."""

    def __init__(self, pair):
        self.pair, self.context = pair, pair.contexts["b"]
        self.endpoint = Endpoint(self.context, FILE_BYTES, qps=QPS)
        pd, other = self.endpoint.pd, PD(self.context)
        write = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE
        # Not whole pages: both ends lie inside a page.
        buffer = self.context.device.alloc(4 * abi.PAGE_4K, contiguous=False)
        self.mr = MR(pd, 9000, write, buffer.va + 100, buffer=buffer)
        self.read_only = MR(pd, 4096, AccessFlag.LOCAL_WRITE)
        self.other_pd = MR(other, 4096, write)
        gone = MR(pd, 4096, write)
        self.gone = (gone.rkey, gone.buf)
        gone.close()
        self.domains = [pd, other]
        init = rc_init_attr(self.endpoint.cq, max_send_wr=4, max_recv_wr=4)
        self.victim, self.closed = QP(pd, init), QP(pd, init)
        for qp in (self.victim, self.closed):
            pair.spy(qp)

    def target(self, qp, psn):
        return Target(qp.qp_num, psn, self.mr.rkey, self.mr.buf, self.mr.length)


def connect(sender, receiver):
    """Connect the file's QPs, and two QPs of B whose peer is silent."""
    sender.endpoint.connect(receiver.endpoint.connections)
    receiver.endpoint.connect(sender.endpoint.connections)
    peer = sender.endpoint.connections[0]
    receiver.victim.connect(peer)
    receiver.closed.connect(peer, qp_access_flags=AccessFlag.LOCAL_WRITE)
    post_receives(receiver.endpoint)


class Attack:
    """Runs cases in the thread of card B and checks each."""

    def __init__(self, pair, receiver):
        self.pair, self.receiver, self.tried = pair, receiver, Counter()

    def run(self, cases):
        for case in cases:
            self.check(case)

    def check(self, case):
        pair = self.pair
        pair.inject("b", [case.frame], bad=case.bad)
        drops, errors, raw = pair.new_drops("b"), pair.take_errors("b"), pair.take_raw("b")
        wanted = {case.drop.name.lower(): 1} if case.drop else {}
        assert drops == wanted, f"{case.name}: counted {drops}, not {wanted}"
        assert raw == ([case.frame] if case.raw else []), f"{case.name}: {len(raw)} raw frames delivered"
        assert len(errors) == case.reported, f"{case.name}: {len(errors)} error reports"
        if case.reported:
            self._check_report(case, errors[0])
            pair.contexts["b"].device.read32(abi.REGISTER["status"].offset)   # orders the acceptance by the card
        self.pair.guards["b"].check()
        self.tried[case.drop] += 1

    @staticmethod
    def _check_report(case, report):
        bth = wire.BTH.unpack(case.frame[wire.BTH_OFFSET:])
        reth = wire.RETH.unpack(case.frame[wire.RETH_OFFSET:])
        found = (report.kind, report.reason, report.opcode, report.qpn, report.psn & 0xFF_FFFF, report.va, report.key,
                 report.length, report.src_ip)
        source = wire.IPV4.unpack(case.frame[wire.ETH.size_bytes:]).src
        index, _ = split_qpn(bth.dest_qp, frames.QPN_WIDTH)
        meant = (abi.ReportKind.ERROR, case.drop, bth.opcode, index, bth.psn, reth.va, reth.rkey, reth.dma_length,
                 source)
        assert found == meant, f"{case.name}: reported {found}, not {meant}"


def attack(pair, sender, receiver, rng):
    """Run card B's side of the bench."""
    try:
        hit = Attack(pair, receiver)
        victim, endpoint = receiver.victim, receiver.endpoint
        before = receiver.mr.read(receiver.mr.length, 0)
        live = endpoint.qps[0]
        busy = Target(live.qp_num, sender.endpoint.qps[0].sender.queue.next_psn % (1 << 24),
                      endpoint.mr.rkey, endpoint.mr.buf, FILE_BYTES)
        late = receiver.target(victim, (victim.attr.rq_psn - 9) % (1 << 24))
        hit.run(frames.truncated(busy))
        hit.run(frames.spoiled(busy))
        hit.run(frames.forbidden(
            late, other_pd=(receiver.other_pd.rkey, receiver.other_pd.buf),
            read_only=(receiver.read_only.rkey, receiver.read_only.buf), gone=receiver.gone,
            closed_qpn=receiver.closed.qp_num))
        hit.run(frames.stale(late))
        hit.run(frames.raw_frames(rng, pair.contexts["b"].engine.nic.slot_bytes))
        assert receiver.mr.read(receiver.mr.length, 0) == before, "a refused frame changed the MR"
        window(pair, hit, receiver)
        full_raw_ring(pair, rng)
        assert {reason for reason in hit.tried if reason} >= {
            Reason.BAD_FRAME, Reason.TRUNCATED, Reason.BAD_ICRC, Reason.BAD_HEADER, Reason.UNKNOWN_OPCODE,
            Reason.UNKNOWN_QP, Reason.BAD_KEY, Reason.OUT_OF_RANGE, Reason.NO_PERMISSION, Reason.WRONG_PD,
            Reason.LENGTH_MISMATCH, Reason.STALE_GENERATION, Reason.STALE_PSN, Reason.STALE_RSN,
            Reason.DUPLICATE, Reason.FRAME_TOO_LONG, Reason.WRONG_PEER, Reason.FAR_PSN}
    finally:
        sender.stop = True
    receive_file(endpoint, timeout_ns=TIMEOUT_NS)
    pair.until("b", lambda: sender.done)
    assert endpoint.mr.read(FILE_BYTES, 0) == sender.data
    assert pair.new_drops("b") == {}
    return hit.tried


def window(pair, hit, receiver):
    """Send frames that are in order, duplicates, and out of order on the victim QP."""
    victim = receiver.victim
    psn = victim.attr.rq_psn

    def at(number, **changes):
        return data_frame(receiver.target(victim, (psn + number) % (1 << 24)), **changes)

    at.psn = psn
    hit.run([
        frames.Case("in order", at(0)),
        frames.Case("after a gap", at(2, payload=b"gap", offset=5000)),
        frames.Case("twice", at(2, payload=b"gap", offset=5000), Reason.DUPLICATE),
        frames.Case("into the gap", at(1, payload=b"", rkey=0)),   # without payload no key is checked
        frames.Case("retransmission of the next", at(3, opcode=Opcode.RETX_WRITE), Reason.STALE_PSN),
        frames.Case("retransmission after the list", at(1, opcode=Opcode.RETX_WRITE, rsn=0xFF_FFFF), Reason.STALE_RSN),
        frames.Case("unrequested retransmission", at(1, opcode=Opcode.RETX_WRITE), Reason.STALE_RSN),
        frames.Case("the next", at(3, payload=b"end", ack_req=1)),
    ])
    pair.contexts["b"].progress()
    hit.run([frames.Case("acknowledged", at(3, payload=b"end", ack_req=1), Reason.STALE_PSN)])
    assert receiver.mr.read(3, 5000) == b"gap"
    hit.run(frames.of_unknown_peers(receiver.target(victim, (psn + 4) % (1 << 24)), UNKNOWN_PEER))
    hit.run(frames.far(receiver.target(victim, (psn + 4) % (1 << 24)), 1 << victim.attr.outstanding_log2))
    hit.run([frames.Case("the peer's, after all that", at(4, payload=b"", ack_req=1))])
    pair.contexts["b"].progress()
    assert victim.receiver.cum == psn + 5, "no window moved"
    assert victim.qp_state is QPState.RTS
    stopped(hit, victim, at)


def stopped(hit, victim, at):
    """Check that nothing is written after a call that forbids writes has returned."""
    victim.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
    place = {"payload": b"late", "offset": 100}
    hit.run([
        frames.Case("into a QP in ERR", at(5, **place, ack_req=1), Reason.UNKNOWN_QP),
        frames.Case("empty, into a QP in ERR", at(5, payload=b"", rkey=0, ack_req=1), Reason.UNKNOWN_QP),
        frames.Case("sent again into a QP in ERR", at(3, **place, opcode=Opcode.RETX_WRITE), Reason.UNKNOWN_QP),
        frames.Case("wrong key into a QP in ERR", at(5, rkey=1), Reason.UNKNOWN_QP),
        *[frames.Case(f"{opcode.name} for a QP in ERR", at(6, payload=b"", opcode=opcode), Reason.UNKNOWN_QP)
          for opcode in frames.CONTROL]])
    assert hit.receiver.mr.read(4, 100) != b"late" and victim.receiver.cum == at.psn + 5


def full_raw_ring(pair, rng):
    """Send more raw frames than half of NIC_RX has slots for, before the driver reads: the rest is kept for packets."""
    frame, half = next(frames.raw_frames(rng, 1 << 11)).frame, 1 << NIC_LOG2 - 1
    pair.inject("b", [frame] * (half + 5))
    assert pair.new_drops("b") == {"nic_ring_full": 5}
    assert pair.take_raw("b") == [frame] * half
    pair.inject("b", [frame])
    assert pair.take_raw("b") == [frame] and not pair.new_drops("b")
    # Packets for software on the host are accepted from any peer, too.
    frame = data_frame(Target(HOST_QPN, 0, 0, 0, 0), opcode=0x04)
    pair.inject("b", [frame])
    assert not pair.take_raw("b") and pair.new_drops("b") == {"unknown_opcode": 1}
    host_qpns = pair.contexts["b"].host_qpns
    host_qpns.claim(HOST_QPN, 1)
    pair.inject("b", [frame] * (half + 5))
    assert pair.new_drops("b") == {"nic_ring_full": 5}
    assert pair.take_raw("b") == [frame] * half
    host_qpns.release()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def bad_frames(dut):
    rng = random.Random(bench_seed())
    pair = HostilePair(dut, ContextConfig(ring_log2={abi.Ring.NIC_RX: NIC_LOG2}, reorder_distance=REORDER,
                                          node_age_ns=200_000, retransmit_slack=REORDER, probe_timeout_ns=200_000))
    await pair.start()
    sender = await bridge(Sender)(pair, rng)
    receiver = await bridge(Receiver)(pair)
    await bridge(connect)(sender, receiver)
    sending = cocotb.start_soon(bridge(sender.run)(receiver.endpoint.offer))
    tried = await bridge(attack)(pair, sender, receiver, rng)
    await sending
    writes = pair.guards["b"].writes
    dut._log.info("%d cases, %d pieces written meanwhile; %s", tried.total(), sender.pieces, dict(writes))
    assert sender.pieces > 20 and writes["frames"] and writes["META_REPORT"]
    await bridge(close)(sender, receiver)
    pair.finish()


def close(sender, receiver):
    """Destroy everything; check that every block of the knitting buffer is free."""
    sender.endpoint.close()
    for domain in receiver.domains:
        domain.close()
    for side in (sender.endpoint, receiver.endpoint):
        blocks = side.context.knitting.check()
        assert blocks["free"] == sum(blocks.values()), blocks
