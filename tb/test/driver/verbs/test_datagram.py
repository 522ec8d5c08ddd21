"""Datagrams of UD queue pairs between functional cards, by the rules of IBTA 1.7, chapters 9.8.3 and 10."""

import errno
import random
from functools import partial

import pytest

from weft.driver.datagram import packet
from weft.driver.datagram.service import GROUPS_OF_QP_MAX, DatagramService
from weft.driver.engine import neighbours
from weft.driver.terms.enums import EventType, QPState, SendFlags, WCFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.terms.enums import QPAttrMask as Mask
from weft.driver.terms.errors import InvalidValue, OutOfResources, PyverbsRDMAError
from weft.driver.verbs.addr import AH
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.qp import QP, QPAttr, rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import wire
from weft.model.link import LinkConfig
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.test.driver.verbs.datagram_hosts import GROUP, QKEY, DatagramHost, DatagramPair, group_gid, ud_init

RESET, INIT, RTR, RTS, SQD, SQE, ERR = list(QPState)[:7]
GROUP_DEST = packet.MULTICAST_QPN
# Bytes of frames with and without a tag that the ICRC leaves out: source MAC, UDP checksum, congestion bits of BTH.
UNCHECKED = {*range(6, 12), 40, 41, 44, 45, 46, 50}
# Among several bits, one of these may hide another one of DSCP, ECN or TTL, which the ICRC leaves out.
IP_CHECKSUM = {24, 25, 28, 29}


def large_pair(**options):
    return make_pair(ContextConfig(nic_slot_log2=13), **options)


# ------------------------------------------------------------------------------------------------ transfer

@pytest.mark.parametrize("length", [0, 1, 3, 4, 257, 1024, 4096])
@pytest.mark.parametrize("imm", [None, 0xDEAD_BEEF])
def test_a_datagram_arrives_with_its_header(length, imm):
    scene = DatagramPair(pair=large_pair())
    a, b = scene.hosts
    data = random.Random(length).randbytes(length)
    b.recv(wr_id=5)
    a.send(b.qp, data, imm=imm, wr_id=6)
    [sent], [got] = scene.completions(0, 1), scene.completions(1, 1)
    assert (sent.wr_id, sent.status, sent.opcode, sent.qp_num) == (6, WCStatus.SUCCESS, WCOpcode.SEND, a.qp.qp_num)
    flags = WCFlags.GRH if imm is None else WCFlags.GRH | WCFlags.WITH_IMM
    assert (got.wr_id, got.status, got.opcode, got.byte_len) == (5, WCStatus.SUCCESS, WCOpcode.RECV, 40 + length)
    assert (got.qp_num, got.src_qp, got.imm_data, got.wc_flags) == (b.qp.qp_num, a.qp.qp_num, imm or 0, flags)
    header, body = b.received(got)
    ipv4 = wire.IPV4.unpack(header[20:])
    assert body == data and header[:20] == bytes(20) and not wire.ipv4_checksum(header[20:])
    assert (ipv4.version, ipv4.src, ipv4.dst, ipv4.protocol) == (4, a.context.ip, b.context.ip, wire.IP_PROTO_UDP)
    scene.close()


def test_the_header_of_a_receive_leads_back_to_the_sender():
    scene = DatagramPair()
    a, b = scene.hosts
    a.recv(), b.recv()
    a.send(b.qp, b"question")
    [got] = scene.completions(1, 1)
    header, _ = b.received(got)
    b.send(None, b"answer", dest=(AH(b.pd, wc=got, grh=header, port_num=1), got.src_qp))
    assert [wc.opcode for wc in scene.completions(0, 2)] == [WCOpcode.SEND, WCOpcode.RECV]
    with pytest.raises(InvalidValue, match="needs attr"):
        AH(b.pd, wc=got, grh=header[:39])
    scene.close()


def test_many_datagrams_in_both_directions_and_to_the_own_card():
    scene = DatagramPair(qps=2)
    a, b = scene.hosts
    for host in scene.hosts:
        for n in range(40):
            host.recv(1024 * n, 1024, qp=host.qps[n % 2], wr_id=100 + n)
    for n in range(20):
        a.send(b.qps[n % 2], bytes([n]) * 50, wr_id=n)
        b.send(a.qps[n % 2], bytes([n]) * 60, wr_id=n)
        a.send(a.qps[n % 2], bytes([n]) * 70, qp=a.qps[1], wr_id=50 + n)
        b.send(b.qps[n % 2], bytes([n]) * 70, qp=b.qps[1], wr_id=50 + n)
        scene.settle(5_000)
    for end, host in enumerate(scene.hosts):
        wcs = scene.completions(end, 80)
        assert all(wc.status is WCStatus.SUCCESS for wc in wcs)
        bodies = [host.received(wc, 1024 * (wc.wr_id - 100))[1] for wc in wcs if wc.opcode is WCOpcode.RECV]
        from_peer = 60 if host is a else 50
        assert sorted(bodies) == sorted([bytes([n]) * size for n in range(20) for size in (from_peer, 70)])
    scene.close()


def test_inline_data_lists_and_unsignaled_requests():
    scene = DatagramPair()
    a, b = scene.hosts
    b.recv(sges=[SGE(b.mr.buf, 41, b.mr.lkey), SGE(b.mr.buf + 100, 50, b.mr.lkey)])
    b.recv(1000, wr_id=2)
    wr = SendWR(sg=[SGE(a.mr.buf, 3, a.mr.lkey), SGE(a.mr.buf, 0, 99), SGE(a.mr.buf + 9, 2, a.mr.lkey)], send_flags=0)
    wr.set_wr_ud(a.ah(b.context.ip), b.qp.qp_num, QKEY)
    a.mr.write(b"abcdefghijklm")
    a.qp.post_send(wr)
    a.send(b.qp, b"inline", flags=SendFlags.SIGNALED | SendFlags.INLINE)
    a.mr.write(b"      ", 6, 1 << 16)      # inline data was copied by post_send
    assert [wc.byte_len for wc in scene.completions(1, 2)] == [45, 46]
    assert b.mr.read(1, 40) + b.mr.read(4, 100) == b"abcjk" and b.mr.read(6, 1040) == b"inline"
    assert [wc.wr_id for wc in scene.completions(0, 1)] == [2]
    scene.close()


def test_shared_receive_queue():
    scene = DatagramPair(qps=2, srq=True)
    a, b = scene.hosts
    b.recv(wr_id=1), b.recv(1024, wr_id=2)
    for qp in b.qps:
        a.send(qp, b"to one of two")
    assert [(wc.wr_id, wc.qp_num) for wc in scene.completions(1, 2)] == [(n + 1, b.qps[n].qp_num) for n in range(2)]
    b.qps[0].modify(QPAttr(qp_state=ERR), Mask.STATE)
    assert [event.event_type for event in b.context.async_events] == [EventType.QP_LAST_WQE_REACHED]
    scene.close()


def test_lost_datagrams_are_not_repeated():
    scene = DatagramPair(pair=make_pair(forward=LinkConfig(loss=0.3)))
    a, b = scene.hosts
    a.context.neighbours.add(b.context.ip, b.context.mac)
    for n in range(60):
        b.recv(1024 * n, 1024)
    for _ in range(60):
        a.send(b.qp, b"x")
        scene.settle(2_000)
    assert len(scene.completions(0, 60)) == 60
    scene.settle()
    assert 20 < len(b.cq) < 60
    scene.close()


# ------------------------------------------------------------------------------------------------ errors

def test_more_than_a_packet_is_a_local_length_error():
    scene = DatagramPair()      # slots of 2048 bytes: packets of 1024
    a, b = scene.hosts
    b.recv()
    a.send(b.qp, bytes(1025), wr_id=1)
    a.send(b.qp, bytes(1024), wr_id=2)
    assert [(wc.wr_id, wc.status) for wc in scene.completions(0, 2)] == [
        (1, WCStatus.LOC_LEN_ERR), (2, WCStatus.WR_FLUSH_ERR)]
    assert a.qp.qp_state is SQE
    a.send(b.qp, b"", wr_id=3)
    assert scene.completions(0, 1)[0].status is WCStatus.WR_FLUSH_ERR
    a.recv()
    b.send(a.qp, b"a QP in SQE receives")
    assert scene.completions(0, 1)[0].status is WCStatus.SUCCESS
    a.to_rts(a.qp)
    a.send(b.qp, bytes(1024), wr_id=4)
    assert scene.completions(0, 1)[0].status is WCStatus.SUCCESS and scene.completions(1, 2)[1].byte_len == 1064
    scene.close()


@pytest.mark.parametrize("sge", [(0, 8, 0x1234), (-8, 16, None), (1 << 17, 1, None)], ids=str)
def test_memory_that_cannot_be_read_is_a_protection_error(sge):
    scene = DatagramPair()
    a, b = scene.hosts
    at, length, key = sge
    wr = SendWR(3, sg=[SGE(a.mr.buf + at, length, a.mr.lkey if key is None else key)])
    wr.set_wr_ud(a.ah(b.context.ip), b.qp.qp_num, QKEY)
    a.qp.post_send(wr)
    assert [wc.status for wc in scene.completions(0, 1)] == [WCStatus.LOC_PROT_ERR] and a.qp.qp_state is SQE
    scene.close()


def test_memory_that_cannot_be_written_ends_the_receiver():
    scene = DatagramPair()
    a, b = scene.hosts
    b.recv(sges=[SGE(b.mr.buf, 4096, 0x1234)])
    b.recv(wr_id=2)
    a.send(b.qp, b"x")
    assert [wc.status for wc in scene.completions(1, 2)] == [WCStatus.LOC_PROT_ERR, WCStatus.WR_FLUSH_ERR]
    assert b.qp.qp_state is ERR
    scene.close()


def test_too_short_and_missing_receives_drop_the_datagram():
    scene = DatagramPair()
    a, b = scene.hosts
    a.send(b.qp, b"no receive")
    scene.settle()
    b.recv(length=40 + 9, wr_id=1)
    a.send(b.qp, bytes(10))
    scene.settle()
    a.send(b.qp, bytes(9))
    assert [(wc.wr_id, wc.byte_len) for wc in scene.completions(1, 1)] == [(1, 49)]
    counts = b.context.counts
    assert (counts["datagrams_without_receive"], counts["datagrams_too_long"]) == (1, 1)
    scene.close()


def test_qkeys():
    scene = DatagramPair()
    a, b = scene.hosts
    b.recv(wr_id=1)
    a.send(b.qp, b"wrong", qkey=QKEY ^ 1)
    scene.settle()
    assert not len(b.cq) and b.context.query_port(1).qkey_viol_cntr == 1
    a.send(b.qp, b"the QP's own", qkey=1 << 31 | 99)
    assert scene.completions(1, 1)[0].byte_len == 52
    b.qp.modify(QPAttr(qkey=QKEY + 1), Mask.QKEY)
    b.recv(wr_id=2)
    a.send(b.qp, b"outdated")
    scene.settle()
    assert not len(b.cq)
    a.send(b.qp, b"renewed", qkey=QKEY + 1)
    assert scene.completions(1, 1)[0].byte_len == 47
    scene.close()


def test_an_unreachable_host_delays_no_other_queue_pair(monkeypatch):
    monkeypatch.setattr(neighbours, "ASK_NS", 2_000)
    scene = DatagramPair(qps=2)
    a, b = scene.hosts
    b.recv(wr_id=1), b.recv(1024, wr_id=2)
    a.send(None, b"lost", dest=(a.ah(0x0A00_0063), 99), wr_id=1)
    a.send(b.qp, b"after it", wr_id=2)
    a.send(b.qp, b"beside it", qp=a.qps[1], wr_id=3)
    assert [wc.wr_id for wc in scene.completions(0, 1)] == [3]
    assert [(wc.wr_id, wc.status) for wc in scene.completions(0, 2)] == [(1, WCStatus.SUCCESS), (2, WCStatus.SUCCESS)]
    assert len(scene.completions(1, 2)) == 2 and a.context.counts["datagrams_unreachable"] == 1
    scene.close()


# ------------------------------------------------------------------------------------------------ states

TABLE = {      # transcribed from IBTA 10.3.1: required and optional attributes of a UD queue pair
    (RESET, INIT): ("PKEY_INDEX PORT QKEY", ""), (INIT, INIT): ("", "PKEY_INDEX PORT QKEY"),
    (INIT, RTR): ("", "PKEY_INDEX QKEY"), (RTR, RTS): ("SQ_PSN", "CUR_STATE QKEY"),
    (RTS, RTS): ("", "CUR_STATE QKEY"), (RTS, SQD): ("", "EN_SQD_ASYNC_NOTIFY"), (SQD, RTS): ("", "CUR_STATE QKEY"),
    (SQD, SQD): ("", "PKEY_INDEX QKEY"), (SQE, RTS): ("", "CUR_STATE QKEY"), (RESET, RESET): ("", "")} | {
    (state, goal): ("", "") for state in (INIT, RTR, RTS, SQD, SQE, ERR) for goal in (RESET, ERR)}
PATHS = {RESET: (), INIT: (INIT,), RTR: (INIT, RTR), RTS: (INIT, RTR, RTS), SQD: (INIT, RTR, RTS, SQD),
         SQE: (INIT, RTR, RTS), ERR: (INIT, ERR)}


def bits(names):
    return Mask(sum(Mask[name] for name in names.split()))


@pytest.mark.parametrize("start", PATHS, ids=lambda state: state.name)
def test_every_transition_is_as_in_the_table(start):
    scene = DatagramPair()
    a, b = scene.hosts

    def bring():
        qp = QP(a.pd, ud_init(a.cq))
        for before, goal in zip((RESET, *PATHS[start]), PATHS[start], strict=False):
            qp.modify(QPAttr(qp_state=goal, qkey=QKEY), Mask.STATE | bits(TABLE[before, goal][0]))
        if start is SQE:
            a.send(b.qp, bytes(1025), qp=qp)
            scene.completions(0, 1)
        assert qp.qp_state is start
        return qp

    def refused(qp, mask, goal):
        with pytest.raises(PyverbsRDMAError) as error:
            qp.modify(QPAttr(qp_state=goal, cur_qp_state=start), mask)
        assert error.value.error_code == errno.EINVAL and qp.qp_state is start

    for goal in QPState:
        qp = bring()
        if (start, goal) not in TABLE:
            refused(qp, Mask.STATE, goal)
            refused(qp, Mask.STATE | Mask(sum(Mask)) & ~Mask.CUR_STATE, goal)
            continue
        need, may = map(bits, TABLE[start, goal])
        for bit in need:
            refused(qp, Mask.STATE | need & ~bit, goal)
        for bit in (*Mask, Mask(1 << 30)):
            if not bit & (need | may | Mask.STATE):
                refused(qp, Mask.STATE | need | bit, goal)
        number = qp.qp_num
        qp.modify(QPAttr(qp_state=goal, cur_qp_state=start), Mask.STATE | need | may)
        assert qp.qp_state is goal and qp.qp_num == number
        qp.close()
    scene.close()


def test_requests_in_every_state():
    scene = DatagramPair()
    a, b = scene.hosts
    b.recv(wr_id=1), b.recv(1024, wr_id=2)
    qp = QP(a.pd, ud_init(a.cq))
    send = partial(a.send, b.qp, b"x", qp=qp)
    for attr, mask in ((QPAttr(qp_state=INIT, qkey=QKEY), bits(TABLE[RESET, INIT][0])), (QPAttr(qp_state=RTR), 0),
                       (QPAttr(qp_state=RTS, sq_psn=1), Mask.SQ_PSN)):
        with pytest.raises(InvalidValue, match="cannot send"):
            send()
        qp.modify(attr, Mask.STATE | mask)
    a.recv(qp=qp, wr_id=8)
    qp.modify(QPAttr(qp_state=SQD, en_sqd_async_notify=1), Mask.STATE | Mask.EN_SQD_ASYNC_NOTIFY)
    assert [event.event_type for event in a.context.async_events] == [EventType.SQ_DRAINED]
    send(wr_id=4)
    scene.settle()
    assert not len(a.cq) and not len(b.cq)
    a.to_rts(qp)
    assert [wc.wr_id for wc in scene.completions(0, 1)] == [4]
    qp.modify(QPAttr(qp_state=ERR), Mask.STATE)
    send(wr_id=5)
    a.recv(qp=qp, wr_id=9)
    assert [(wc.wr_id, wc.status) for wc in scene.completions(0, 3)] == [
        (n, WCStatus.WR_FLUSH_ERR) for n in (8, 5, 9)]
    qp.reset()
    with pytest.raises(InvalidValue, match="cannot send"):
        send()
    qp.close()
    assert len(scene.completions(1, 1)) == 1
    scene.close()


def test_invalid_requests_are_rejected_without_effect():
    scene = DatagramPair()
    a, b = scene.hosts
    ah = a.ah(b.context.ip)
    for change in ({"opcode": WROpcode.RDMA_WRITE}, {"opcode": WROpcode.RDMA_READ}, {"ah": None}, {"ah": 7},
                   {"remote_qpn": 1 << 24}, {"remote_qkey": -1}, {"wr_id": 1 << 64}, {"num_sge": 2},
                   {"sg": [SGE((1 << 64) - 1, 2, 0)]}, {"sg": [SGE(0, 1, 0)] * 5},
                   {"sg": [SGE(a.mr.buf, 257, a.mr.lkey)], "send_flags": SendFlags.INLINE}):
        wr = SendWR(sg=[SGE(a.mr.buf, 1, a.mr.lkey)])
        wr.set_wr_ud(ah, b.qp.qp_num, QKEY)
        vars(wr).update(change)
        with pytest.raises(InvalidValue):
            a.qp.post_send(wr)
        assert not a.qp.engine.outstanding
    scene.close()


def test_the_numbers_of_the_cards_qps_are_apart():
    scene = DatagramPair()
    service = DatagramService.of(scene.hosts[0].context.engine)
    reserved = {scene.hosts[0].qp.qp_num}
    numbers = {service.new_number() for _ in range((1 << 12) - 2)} | reserved
    assert len(numbers) == (1 << 12) - 1 and packet.MULTICAST_QPN not in numbers
    assert all(number in scene.hosts[0].context.host_qpns for number in numbers)
    with pytest.raises(OutOfResources, match="UD queue pairs"):
        QP(scene.hosts[0].pd, ud_init(scene.hosts[0].cq))
    for number in numbers - reserved:
        service.free_number(number)
    scene.close()


def test_reset_of_the_card_flushes_and_a_new_incarnation_works():
    scene = DatagramPair()
    a, b = scene.hosts
    a.recv(wr_id=1)
    a.send(None, b"x", dest=(a.ah(0x0A00_0063), 99))
    a.context.progress()
    a.context.reset()
    assert {wc.status for wc in scene.completions(0, 2)} == {WCStatus.WR_FLUSH_ERR} and a.qp.qp_state is ERR
    a.qp.reset()
    a.qp.to_rts(QPAttr(qkey=QKEY))
    a.recv()
    b.send(a.qp, b"again")
    assert [wc.status for wc in scene.completions(0, 1)] == [WCStatus.SUCCESS]
    scene.close()


@pytest.mark.parametrize("goal", [RESET, ERR])
def test_a_queue_that_ended_reports_no_drain(goal):
    scene = DatagramPair()
    a, b = scene.hosts
    a.send(b.qp, b"x")
    a.context.progress()
    assert a.qp.engine.outstanding == 1
    a.qp.modify(QPAttr(qp_state=SQD, en_sqd_async_notify=1), Mask.STATE | Mask.EN_SQD_ASYNC_NOTIFY)
    a.qp.modify(QPAttr(qp_state=goal), Mask.STATE)
    scene.settle()
    assert not a.context.async_events
    scene.close()


# ------------------------------------------------------------------------------------------------ multicast

def test_members_of_a_group_get_its_packets():
    scene = DatagramPair(qps=2)
    a, b = scene.hosts
    for host in scene.hosts:
        for n, qp in enumerate(host.qps):
            qp.attach_mcast(group_gid())
            host.recv(1024 * n, 1024, qp=qp, wr_id=n)
    b.qps[1].detach_mcast(group_gid())
    a.send(None, b"to all", dest=(a.ah(GROUP), GROUP_DEST), imm=7)
    assert {(wc.wr_id, wc.opcode) for wc in scene.completions(0, 3)} == {
        (0, WCOpcode.RECV), (1, WCOpcode.RECV), (2, WCOpcode.SEND)}
    [got] = scene.completions(1, 1)
    header, body = b.received(got)
    assert (got.wr_id, got.src_qp, got.imm_data, body) == (0, a.qp.qp_num, 7, b"to all")
    assert wire.IPV4.unpack(header[20:]).dst == GROUP
    a.send(None, b"without members", dest=(a.ah(GROUP + 1), GROUP_DEST))
    scene.settle()
    assert not len(b.cq)
    for host in scene.hosts:
        host.qps[0].close()
        host.qps[1].close()
        assert not DatagramService.of(host.context.engine).groups
    scene.close()


def test_invalid_groups():
    scene = DatagramPair()
    a, _ = scene.hosts
    with pytest.raises(InvalidValue, match="multicast group"):
        a.qp.attach_mcast(group_gid(0x0A00_0001))
    with pytest.raises(InvalidValue, match="not attached"):
        a.qp.detach_mcast(group_gid())
    for n in range(GROUPS_OF_QP_MAX):
        a.qp.attach_mcast(group_gid(GROUP + n))
    a.qp.attach_mcast(group_gid())
    with pytest.raises(OutOfResources, match="groups"):
        a.qp.attach_mcast(group_gid(GROUP + GROUPS_OF_QP_MAX))
    scene.close()


# ------------------------------------------------------------------------------------------------ hostile frames

def frame_to(host, data, dst_mac=None, **changes):
    fields = {"src_ip": 0x0A00_0063, "dest_ip": host.context.ip, "src_qp": 77, "dest_qp": host.qp.qp_num, "qkey": QKEY}
    return packet.build(packet.Packet(data=data, **fields | changes), src_mac=0x02_0000_0000_63,
                        dst_mac=dst_mac or host.context.mac, sport=0xC001, psn=1)


def inject(scene, frames):
    """Give frames to the second host's card, and let its driver take them."""
    for n, frame in enumerate(frames):
        scene.pair.devices[1].card.receive(frame)
        if n % 16 == 15:
            scene.settle(2_000)
    scene.settle(20_000)


def mutated(rng, frame):
    """Return a frame with flipped bits, cut or extended. Bytes that no checksum covers stay the same."""
    frame, kind = bytearray(frame), rng.randrange(3)
    if kind == 0 or kind == 2 and frame[0] & 1:      # padding of a frame to a group is permitted
        count = rng.randint(1, 3)
        same = UNCHECKED if count == 1 else UNCHECKED | IP_CHECKSUM
        bits = [(at, bit) for at in range(len(frame)) if at not in same for bit in range(8)]
        for at, bit in rng.sample(bits, count):     # different ones: a bit that is flipped twice is whole again
            frame[at] ^= 1 << bit
    elif kind == 1:
        del frame[rng.randrange(len(frame)):]
    else:
        frame += rng.randbytes(rng.randint(1, 40))
    return bytes(frame)


def resealed(rng, frame):
    """Return a frame with a changed byte after the UDP header, and the right ICRC."""
    frame = bytearray(frame[:-4])
    frame[rng.randrange(wire.BTH_OFFSET, len(frame))] = rng.randrange(256)
    return bytes(frame) + wire.icrc(bytes(frame))


def test_hostile_datagrams_complete_nothing(bench_seed):
    """Damaged frames, frames to others, forged ones, other opcodes, and headers without data."""
    rng, scene = random.Random(bench_seed), DatagramPair()
    _, b = scene.hosts
    b.qp.attach_mcast(group_gid())
    for n in range(8):
        b.recv(1024 * n, 1024, wr_id=n)
    untouched = b.mr.read(1 << 16, 0)
    one = frame_to(b, b"attack")
    group = frame_to(b, b"attack", dst_mac=packet.group_mac(GROUP), dest_ip=GROUP, dest_qp=packet.MULTICAST_QPN)
    frames = [mutated(rng, rng.choice((one, group))) for _ in range(300)]
    wrong = ({"qkey": QKEY ^ 1 << rng.randrange(32)}, {"dest_qp": b.qp.qp_num ^ 1}, {"dest_qp": packet.MULTICAST_QPN},
             {"dst_mac": 0x02_0000_0000_77}, {"dest_ip": 0x0A00_0077}, {"src_ip": b.context.ip}, {"dest_qp": 0},
             {"dest_qp": 1})
    frames += [frame_to(b, b"attack", **change) for change in wrong]
    frames += [wire.build_frame(opcode=opcode, dst_mac=b.context.mac, src_mac=1 << 41, src_ip=0x0A00_0063,
                                dst_ip=b.context.ip, sport=0xC001, dest_qp=b.qp.qp_num, psn=0, payload=bytes(size),
                                extensions=wire.DETH.pack(qkey=QKEY, src_qp=1)[: 8 - cut])
               for opcode in range(256) if opcode not in packet.OPCODES for size, cut in ((0, 8), (20, 0))]
    frames += [wire.build_frame(opcode=opcode, dst_mac=b.context.mac, src_mac=1 << 41, src_ip=0x0A00_0063,
                                dst_ip=b.context.ip, sport=0xC001, dest_qp=b.qp.qp_num, psn=0, payload=b"",
                                extensions=wire.DETH.pack(qkey=QKEY, src_qp=1)[:size])
               for opcode in packet.OPCODES for size in (0, 4)]
    inject(scene, frames)
    assert not len(b.cq) and b.mr.read(1 << 16, 0) == untouched and b.qp.qp_state is RTS
    assert b.context.counts["datagrams_with_wrong_qkey"] == 1
    inject(scene, [resealed(rng, one) for _ in range(100)])      # the sender of these knows the Q_Key: some are valid
    assert b.qp.qp_state is RTS and all(wc.status is WCStatus.SUCCESS for wc in b.cq.poll(99)[1])
    for n in range(8):
        b.recv(1024 * n, 1024, wr_id=n)
    inject(scene, [one, group])
    assert [wc.byte_len for wc in scene.completions(1, 2)] == [46, 46]
    scene.close()


def test_every_header_of_a_group_frame_is_checked():
    """A card passes frames to group addresses unchecked."""
    scene = DatagramPair()
    _, b = scene.hosts
    b.qp.attach_mcast(group_gid())
    b.recv()
    good = frame_to(b, b"attack", dst_mac=packet.group_mac(GROUP), dest_ip=GROUP, dest_qp=packet.MULTICAST_QPN)
    at = {"MAC": 5, "tag": 15, "EtherType": 16, "version": 18, "length": 21, "fragment": 24, "protocol": 27,
          "checksum": 28, "group": 37, "port": 41, "UDP length": 43, "data": -5, "ICRC": -1}
    frames = []
    for place in at.values():
        bad = bytearray(good)
        bad[place] ^= 1
        frames.append(bytes(bad))
    inject(scene, frames)
    assert not len(b.cq)
    inject(scene, [good + bytes(9)])      # padding is permitted
    assert [wc.byte_len for wc in scene.completions(1, 1)] == [46]
    scene.close()


def test_a_flood_keeps_no_memory_and_spares_other_queue_pairs():
    scene = DatagramPair(qps=2)
    a, b = scene.hosts
    a.send(b.qps[1], b"resolves the address")
    frame = frame_to(b, bytes(1000))
    inject(scene, [frame] * 200)      # each slot of the ring was used once
    pages = len(b.context.device.memory._pages)
    for _ in range(40):
        for _ in range(200):
            scene.pair.devices[1].card.receive(frame)
        scene.settle(1_000)
    assert len(b.context.device.memory._pages) == pages and not b.context.neighbours.asked
    assert b.context.counts["datagrams_without_receive"] > 500 and b.qp.qp_state is RTS
    b.recv(qp=b.qps[1])
    a.send(b.qps[1], b"after the flood")
    assert scene.completions(1, 1)[0].qp_num == b.qps[1].qp_num
    scene.close()


def test_a_sender_is_bounded_and_overruns_no_card():
    """One receiver with as many receives as datagrams loses none, however many are posted at once."""
    scene = DatagramPair(pair=make_pair(ContextConfig(ring_log2=8)), qps=3)
    a, b = scene.hosts
    a.context.neighbours.add(b.context.ip, b.context.mac)
    for qp in b.qps:
        for n in range(64):
            b.recv(1024 * n, 1024, qp=qp)
    for qp, peer in zip(a.qps, b.qps, strict=True):
        for n in range(64):
            a.send(peer, bytes(100), qp=qp, wr_id=n)
        with pytest.raises(BufferError):
            a.send(peer, bytes(100), qp=qp)
    assert len(scene.completions(0, 192)) == 192 and len(scene.completions(1, 192)) == 192
    scene.close()


def test_datagrams_beside_reliable_connections():
    """The QPNs of both kinds are apart, whichever came first, and a closed host leaves nothing."""
    scene = DatagramPair()
    a, b = scene.hosts
    other = DatagramHost(a.context)
    other.recv()
    b.send(other.qp, b"to the second host object")
    assert scene.completions(1, 1)[0].status is WCStatus.SUCCESS
    scene.run_until(lambda: len(other.cq))
    rc = QP(a.pd, rc_init_attr(a.cq))
    with pytest.raises(InvalidValue, match="only UD"):
        rc.attach_mcast(group_gid())
    assert rc.qp_num not in a.context.host_qpns
    scene.close()
