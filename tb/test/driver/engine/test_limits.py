"""Limits on what a peer can make a host store, send or do, and fair sharing between QPs."""

import collections
from random import Random
from types import SimpleNamespace

import pytest

from weft.driver.engine.qp_table import QpTable
from weft.driver.queue.ring import ENTRIES_MAX
from weft.driver.queue.transmit_turns import AHEAD_BYTES, TransmitTurns
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi, wire
from weft.model.link import LinkConfig
from weft.tb.sim.pair.functional_pair import make_endpoints, make_pair
from weft.tb.test.driver.receive.test_receiver import PSN, actions, event, make_receiver, node, retire
from weft.tb.test.driver.verbs.test_failures import service

Ring = abi.Ring


class Sent:
    """Ring that keeps the pushed entries, with ``space`` free entries at first."""

    def __init__(self, space):
        self.space, self.entries, self.cookies = space, [], collections.deque()
        self.prod = self.cons = 0

    def push_all(self, entries, cookies):
        self.space -= len(entries)
        self.prod += len(entries)
        self.entries += entries
        self.cookies += cookies

    def advance(self, cons):
        done = [self.cookies.popleft() for _ in range(cons - self.cons)]
        self.cons, self.space = cons, self.space + len(done)
        return done

    def ring_doorbell(self):
        pass


class Busy:
    """QP with ``again`` retransmissions and ``new`` new requests."""

    def __init__(self, name, again, new, length=1024):
        self.name, self.again, self.new, self.length, self.sender = name, again, new, length, self
        self.in_card, self.frames = 0, ()

    has_retransmission = property(lambda self: self.again > 0)
    has_work, bulk, paced = property(lambda self: self.new > 0), False, False

    def next_retransmission(self):
        self.again -= 1
        return SimpleNamespace(length=self.length, again=True)

    def next_work(self, entries, most_bytes):
        count = min(self.new, entries, -(-most_bytes // 65_536))
        self.new -= count
        return [SimpleNamespace(length=65_536, again=False)] * count

    def descriptors(self, works):
        return [(self.name, work.again) for work in works]

    def on_transmitted(self, now, again, descriptors):
        pass

    @staticmethod
    def contain(method, *arguments):
        method(*arguments)


def make_turns(*qps, space=16):
    rings = {ring: Sent(space) for ring in (Ring.SEND, Ring.RETRANSMIT, Ring.NIC_TX)}
    turns = TransmitTurns(rings, lambda qp: None, enough_bytes=1 << 20)
    for qp in qps:
        turns.offer(qp)
    return turns, rings


def test_one_qp_does_not_fill_the_retransmit_ring():
    greedy, modest = Busy("greedy", 10_000, 0), Busy("modest", 5, 0)
    turns, rings = make_turns(greedy, modest)
    turns.fill()
    assert collections.Counter(name for name, _ in rings[Ring.RETRANSMIT].entries) == {"greedy": 10, "modest": 5}, (
        "place is left for a descriptor of two entries")
    first = Busy("first", 10_000, 0)
    turns, rings = make_turns(first, Busy("second", 100, 0), space=ENTRIES_MAX)
    for number in range(1, 21):      # space for one at a time
        turns.fill()
        rings[Ring.RETRANSMIT].cons, rings[Ring.RETRANSMIT].space = number, ENTRIES_MAX
    names = collections.Counter(name for name, _ in rings[Ring.RETRANSMIT].entries)
    assert names == {"first": 10, "second": 10}


def test_new_work_waits_for_a_limited_number_of_retransmissions():
    """The card sends retransmissions first, so their number is limited while new work waits in the card."""
    turns, rings = make_turns(Busy("greedy", 10_000, 0, length=4_096), Busy("honest", 0, 8), space=64)
    status = SimpleNamespace(nic_tx_cons=0, send_cons=0, retransmit_cons=0)
    ahead = 0
    for _ in range(100):
        turns.fill()
        again = rings[Ring.RETRANSMIT].prod - rings[Ring.RETRANSMIT].cons
        ahead += again
        status.retransmit_cons = rings[Ring.RETRANSMIT].prod
        if not again:
            assert ahead * 4_096 <= AHEAD_BYTES + 64 * 4_096
            ahead = 0
            status.send_cons += 1        # no retransmission is ahead of it
        turns.advance(status, 0)
        if status.send_cons == 8:
            break
    assert status.send_cons == 8, "new work starves"


def test_one_probe_repeats_a_limited_number_of_reports():
    receiver, _ = make_receiver(blocks=400)
    for number in range(200):
        node(receiver, (PSN + 1_000 * number, 1))
    actions(receiver)
    event(receiver, abi.ReportKind.PROBE, PSN + 10**6, PSN + 10**6, 200, rsn=0)
    receiver.settle()
    again = [a for a in actions(receiver) if getattr(a, "opcode", None) is wire.Opcode.LOSS_REPORT]
    assert len(again) == 64 and [report.rsn for report in again] == list(range(64))


def test_excess_waiting_messages_fail_at_the_peer():
    receiver, _ = make_receiver()
    receiver._messages_max = 10
    for number in range(30):
        event(receiver, abi.ReportKind.MESSAGE_END, PSN + number, PSN + number + 1, 0, imm=number)
        receiver.settle()
    assert len(receiver.messages) == 10 and receiver.counts["messages_refused"] == 20
    receiver.acknowledge()
    nak = actions(receiver)[-1]
    assert (nak.psn, nak.syndrome) == (PSN + 10, wire.Syndrome.NAK_REMOTE_OPERATIONAL)


def test_retired_node_is_freed_before_an_older_hole_is_filled():
    receiver, pool = make_receiver()
    node(receiver, (PSN, 1))
    for number in range(1, 2_000):
        node(receiver, (PSN + 10 * number, 1))
        actions(receiver)
        head = receiver.holes.nodes[0]
        retire(receiver, head.line, 1 if head.runs[0][0] == PSN else 0)
    assert len(receiver.holes._open) < 200 and receiver.holes.oldest == PSN
    pool.check()


@pytest.mark.parametrize("unknown_peer", [True, False])
def test_probe_floods_of_known_and_unknown_peers_fill_no_queue(unknown_peer):
    """Many packets are lost, and no loss report arrives: each probe asks for all reports again."""
    pair = make_pair(forward=LinkConfig(loss=0.3), seed=5)
    ends = make_endpoints(pair, 400_000, path_mtu=1)
    qp, context = ends[1].qps[0], pair.contexts[1]
    pair.links[1].drop = lambda frame: frame[wire.BTH_OFFSET] == wire.Opcode.LOSS_REPORT
    wr = SendWR(sg=[SGE(ends[0].mr.buf, 400_000, ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE)
    wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
    ends[0].qps[0].post_send(wr)
    for _ in range(60):
        for each in pair.contexts:
            each.progress()
        pair.loop.run(pair.loop.now_ns + 1_000)
    assert len(qp.receiver.holes.nodes) > 10
    probe = wire.build_frame(
        opcode=wire.Opcode.PROBE, dst_mac=context.mac, src_mac=2, src_ip=9 if unknown_peer else pair.contexts[0].ip,
        dst_ip=context.ip, sport=0xC000, dest_qp=qp.qp_num, psn=qp.receiver.base % (1 << 24),
        extensions=wire.RSNH.pack(rsn=0))
    sent, pair.devices[1].transmit = context.counts["LOSS_REPORT"], lambda frame: None
    for _ in range(600):
        pair.devices[1].card.receive(probe)
        pair.loop.run(pair.loop.now_ns + 100)
        context.progress()
        assert len(context.engine.nic.queue) <= context.engine.nic.QUEUED_MAX
    if unknown_peer:
        assert context.statistics()["drop_wrong_peer"] == 600 and context.counts["LOSS_REPORT"] == sent
    else:
        assert context.counts["LOSS_REPORT"] > sent


def test_raw_frames_of_a_program_have_a_limit():
    context = make_pair().contexts[0]
    frame = wire.ETH.pack(dst=1, src=2, ethertype=0x8915) + bytes(46)
    for _ in range(context.rings[Ring.NIC_TX].depth + context.engine.nic.QUEUED_MAX):
        context.send_raw(frame)
    with pytest.raises(BufferError, match="wait"):
        context.send_raw(frame)
    assert len(context.engine.nic.queue) <= context.engine.nic.QUEUED_MAX


def test_immediates_wait_for_receives_only():
    """The receiver accepts as many as a sender may have outstanding."""
    pair = make_pair()
    ends = make_endpoints(pair, 4_096, window=64, rnr_retry=0)
    finished = []

    def sending():
        for n in range(64):
            wr = SendWR(n, sg=[SGE(ends[0].mr.buf, 8, ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE_WITH_IMM)
            wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
            ends[0].qps[0].post_send(wr)
        got = ends[0].cq.wait(1, 10**9)
        finished.append(True)
        return got

    assert pair.run(sending, service(pair, finished))[0][0].status is WCStatus.RNR_RETRY_EXC_ERR
    assert len(ends[1].qps[0].engine.operations.responder) == 64


class Idle:
    """QP with a deadline, which counts how often the deadline is read."""

    receiver = SimpleNamespace(holes=SimpleNamespace(waits_for_blocks=False))

    def __init__(self, index, at):
        self.index, self.generation, self.at, self.looks = index, 0, at, 0

    @property
    def deadline(self):
        self.looks += 1
        return self.at


def test_round_costs_due_work_only():
    table = QpTable(2_000, Random(1))
    qps = [Idle(number, None if number % 3 else 1_000 + number) for number in range(1_000)]
    for qp in qps:
        table.add(qp)
    assert list(table.due(0)) == qps and table.deadline == 1_000
    for qp in qps:
        qp.looks = 0
    for now in range(1_000):
        assert not list(table.due(now)) and table.deadline == 1_000
    assert not sum(qp.looks for qp in qps)
    qps[0].at = 5_000
    assert list(table.due(1_000)) == [qps[0]] and table.deadline == 1_003
    qps[1].at = 1_001
    table.mark_active(qps[1])
    assert table.deadline == 1_001, "it may have changed its mind"
    assert list(table.due(1_000)) == [qps[1]] and list(table.due(1_001)) == [qps[1]]
    table.remove(qps[3])
    assert qps[3] not in list(table.due(10_000)) and not table.active


def test_due_qp_stays_due_when_another_fails():
    table = QpTable(16, Random(1))
    qps = [Idle(number, 50) for number in range(4)]
    for qp in qps:
        table.add(qp)
    assert list(table.due(0)) == qps
    for qp in table.due(50):
        assert qp is qps[0]
        break               # as an exception does
    assert list(table.due(50)) == [*qps[1:], qps[0]]
