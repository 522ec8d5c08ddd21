"""RoCEv2 endpoint at the Simple NIC of a card, together with queue pairs of the card."""

import random

import pytest

from weft.driver.soft.ports import Pump, SimpleNicPort, for_host_qpns
from weft.driver.soft.rc.context import SoftContext
from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.qp import RcAttr, SoftQP
from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.driver.terms.errors import InvalidValue
from weft.driver.verbs.context import Context, ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi, wire
from weft.model.functional.host import connected_pair, run_apps
from weft.tb.test.driver.soft.hosts import BAD_LINK, MACS
from weft.tb.test.driver.soft.rc_pair import ALL, IPS

FIRST, COUNT = 0x40_0000, 256
LENGTH = 30_000


class CardHost:
    """Card with its context and with a software endpoint at its Simple NIC."""

    def __init__(self, i, device):
        config = ContextConfig(ring_log2={abi.Ring.NIC_RX: 8, abi.Ring.NIC_TX: 7}, nic_slot_log2=13,
                               random=random.Random(i))
        self.context = Context(device, mac=MACS[i], ip=IPS[i], config=config)
        self.context.host_qpns.claim(FIRST, COUNT)
        self.soft = SoftContext(mac=MACS[i], ip=IPS[i], first_qpn=FIRST, max_qp=COUNT, random=random.Random(i))
        self.port = SimpleNicPort(self.context, for_host_qpns)
        self._pump = Pump(self.soft, self.port)
        self.cq = CQ(self.soft, 64)
        self.mr = SoftMR(PD(self.soft), 2 * LENGTH, ALL)
        self.qp = SoftQP(self.mr.pd, rc_init_attr(self.cq))

    def until(self, condition):
        device = self.context.device
        while not condition():
            self.context.progress()
            deadline = self._pump.round(device.now_ns())
            self.context.wait(20_000 if deadline is None else max(1, min(20_000, deadline - device.now_ns())))


def test_every_operation_over_two_cards_at_the_largest_packet_size():
    loop, devices, links = connected_pair(seed=4, forward=BAD_LINK)
    hosts = [CardHost(i, device) for i, device in enumerate(devices)]
    for host, peer in zip(hosts, hosts[::-1], strict=True):
        host.qp.connect(peer.qp.connection, RcAttr(path_mtu=MTU.MTU_4096))
    data = random.Random(4).randbytes(LENGTH)
    hosts[0].mr.write(data)
    there = hosts[1].mr
    hosts[1].qp.post_recv(RecvWR(9, sg=[SGE(there.buf + LENGTH, LENGTH, there.lkey)]))
    hosts[1].qp.post_recv(RecvWR(10))       # an empty SEND is the shortest frame
    mine = hosts[0].mr
    for n, (opcode, at, length, to) in enumerate([
            (WROpcode.RDMA_WRITE, 0, LENGTH, 0), (WROpcode.SEND, 0, LENGTH, 0), (WROpcode.SEND, 0, 0, 0),
            (WROpcode.RDMA_READ, LENGTH, LENGTH, LENGTH), (WROpcode.ATOMIC_FETCH_AND_ADD, 0, 8, 0)]):
        wr = SendWR(n, sg=[SGE(mine.buf + at, length, mine.lkey)], opcode=opcode)
        wr.set_wr_atomic(there.rkey, there.buf + to, 1, 0)
        hosts[0].qp.post_send(wr)
    finished = []

    def run(i, count):
        host = hosts[i]
        host.until(lambda: len(host.cq) >= count)
        finished.append(i)
        host.until(lambda: len(finished) == 2)
        return host.cq.poll(99)[1]

    sent, received = run_apps(loop, [(devices[0], lambda: run(0, 5)), (devices[1], lambda: run(1, 2))], 10**10)
    assert [(wc.wr_id, wc.status) for wc in sent] == [(n, WCStatus.SUCCESS) for n in range(5)]
    assert [(wc.wr_id, wc.byte_len) for wc in received] == [(9, LENGTH), (10, 0)]
    added = int.from_bytes(data[:8], "little") + 1
    assert there.read(LENGTH) == added.to_bytes(9, "little")[:8] + data[8:] and there.read(LENGTH, LENGTH) == data
    assert mine.read(LENGTH, LENGTH) == data and mine.read(8) == data[:8]
    assert sum(links[0].counters.lost.values()) and hosts[0].soft.counts["resent"]
    frames = [host.context.statistics()["rx_raw_frames"] for host in hosts]
    assert min(frames) >= 10 and not any(host.port.lost for host in hosts)
    for host in hosts:
        host.port.close()
        host.context.close()


def frame_for(qpn, opcode=4):
    return wire.build_frame(opcode=opcode, dst_mac=MACS[0], src_mac=MACS[1], src_ip=IPS[1], dst_ip=IPS[0],
                            sport=0xC000, dest_qp=qpn, psn=0)


def test_claims_last_until_released_also_over_a_reset():
    _, devices, _ = connected_pair(seed=1)
    context, came = Context(devices[0], mac=MACS[0], ip=IPS[0]), []
    context.raw_frame_handlers.append(lambda frame, entry: came.append((bytes(frame), entry.host)))

    def delivered(qpn):
        came.clear()
        devices[0].card.receive(frame_for(qpn))
        context.progress()
        return came == [(frame_for(qpn), 1)]

    assert not delivered(1) and not delivered(FIRST)
    context.host_qpns.claim(FIRST, COUNT)
    assert [delivered(qpn) for qpn in (FIRST - 1, FIRST, FIRST + COUNT - 1, FIRST + COUNT, 1)] == [0, 1, 1, 0, 0]
    context.host_qpns.claim_qp1()
    context.reset()
    assert delivered(FIRST) and delivered(1) and 1 in context.host_qpns and 0 not in context.host_qpns
    context.host_qpns.release()
    assert not delivered(FIRST) and delivered(1)
    context.host_qpns.claim_qp1(False)
    assert not delivered(1)
    context.close()


def test_unknown_peers_get_half_of_the_slots():
    _, devices, _ = connected_pair(seed=1)
    context = Context(devices[0], mac=MACS[0], ip=IPS[0])
    context.host_qpns.claim(FIRST, COUNT)
    for _ in range(100):
        devices[0].card.receive(frame_for(FIRST))
    counters = context.statistics()
    assert counters["rx_raw_frames"] == 32 and counters["drop_nic_ring_full"] == 68


def test_claimed_numbers_are_not_used_by_the_card():
    _, devices, _ = connected_pair(seed=1)
    context = Context(devices[0], mac=MACS[0], ip=IPS[0])
    context.host_qpns.claim(1 << 23, 1 << 23)
    pd, cq = PD(context), CQ(context, 4)
    qps = [QP(pd, rc_init_attr(cq)) for _ in range(12)]
    assert all(qp.qp_num < 1 << 23 for qp in qps)
    context.host_qpns.release()
    taken = qps[3].qp_num
    with pytest.raises(InvalidValue, match="has one of the 16 QPNs"):
        context.host_qpns.claim(taken // 16 * 16, 16)
    qps[3].close()
    context.host_qpns.claim(taken, 1)
    for first, count in ((0, 3), (8, 16), (-16, 16), (1 << 24, 1), (0, 0)):
        with pytest.raises(InvalidValue, match="power of two"):
            context.host_qpns.claim(first, count)
    with pytest.raises(InvalidValue, match="claimed before"):
        context.host_qpns.claim(64, 64)
