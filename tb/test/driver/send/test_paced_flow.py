"""Congestion control with a pacer on the card: rate, limit and the use of its pool."""

import random
from statistics import mean
from types import SimpleNamespace

import pytest

from weft.driver.protocol.segment import Request
from weft.driver.queue.paced_turns import PacedTurns
from weft.driver.send.flow_limit import PACKET_OVERHEAD
from weft.driver.send.paced_flow import LEAST, PacedFlow
from weft.driver.send.sender import Sender
from weft.driver.terms.enums import MTU, QPAttrMask, QPState, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.qp_attr import QPAttr
from weft.hdl.contract import abi, params, wire
from weft.model.card.host import TimedDevice
from weft.model.functional.host import FunctionalDevice, LinkConfig
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair
from weft.tb.sim.scenario.play import FixedRate, fix_rate
from weft.tb.test.app.job.test_network_job import INCAST, run_on
from weft.tb.test.driver.send.test_sender import loss_report

LINE, LENGTH, PMTU = 100e9, 1 << 20, 4096
CARDS = pytest.mark.parametrize("device_type", [FunctionalDevice, TimedDevice], ids=["functional", "timed"])
ALGORITHMS = pytest.mark.parametrize("name", ["swift", "rate-match"])
WORD = (1 << 32) - 1


def paced_pair(device_type=FunctionalDevice, pool=64, *, name="swift", loss=0.0, sizes=(), seed=0, **options):
    """Return an :class:`OperationPair` whose cards have a pacer."""
    delay_ns = 5_000
    config = ContextConfig(congestion=name, probe_timeout_ns=10 * delay_ns, ring_log2=8)
    preset = params.preset("test").with_(pace_descriptors=pool, **dict(sizes))
    pair = make_pair(config, seed=seed, forward=LinkConfig(delay_ns=delay_ns, loss=loss), device_type=device_type,
                     preset=preset)
    return OperationPair(LENGTH, pair=pair, **{"path_mtu": MTU.MTU_4096} | options)


def tap(pair):
    """Record (time, QPN, PSN, bytes, retransmission) of the data that the first host sends."""
    frames, device = [], pair.pair.devices[0]
    send = device.transmit

    def sent(frame, *when):
        if getattr(frame, "kind", None) == "DATA":
            at = when[0] if when else device.now_ns()
            frames.append((at, frame.dest_qp, frame.psn, frame.length, frame.retransmission))
        send(frame, *when)

    device.transmit = sent
    return frames


def rate_of(frames, skip=0):
    found = frames[skip:]
    return sum(length + PACKET_OVERHEAD for *_, length, _ in found[1:]) * 8 / (found[-1][0] - found[0][0])


def write_all(pair, count, length=LENGTH, qp=0):
    for n in range(count):
        pair.send(WROpcode.RDMA_WRITE, (0, length), at=0, wr_id=n, qp=qp)


def paced(pair):
    return pair.hosts[0].context.engine.paced


# ------------------------------------------------------------------------------------ the sender alone


def make_sender(name="swift", length=LENGTH):
    flow = PacedFlow(name, pmtu=PMTU, psn=100, line_bps=LINE, delay_ns=10_000)
    sender = Sender(psn=100, pmtu=PMTU, probe_ns=50_000, timeout_ns=1_000_000, flow=flow)
    sender.post([Request(0, [(0, length, 1)], 0, 2)])
    return sender


def fill(sender):
    works = []
    while sender.has_work and (new := sender.next_work()):
        works += new
    sender.on_taken(len(works))
    return works


def end_all(sender, now):
    """Let the card send what it may, and report it; return the PSNs of the probes."""
    flow = sender.flow
    while flow.works:
        assert sender.on_paced(flow._new[0].end & WORD, False, now, now) == 1
    asked = [frame.psn for frame in sender.frames if frame.opcode is wire.Opcode.PROBE]
    sender.frames.clear()
    return asked


def send_window(sender, now):
    """Pass work to the card, and let it leave, until the limit holds it back; return the PSNs of the probes."""
    asked = []
    while fill(sender) or sender.flow.works:
        asked += end_all(sender, now)
    return asked


def answer(sender, asked, now):
    for psn in asked:
        sender.on_ack((psn - 1) % (1 << 24), 0, now, came_ns=now)


@ALGORITHMS
def test_the_limit_is_at_the_end_of_a_descriptor(name):
    """The card has work beyond the window. Everything before the limit leaves, and its answers move the limit."""
    sender, now, beyond = make_sender(name), 0, 0
    flow, queue = sender.flow, sender.queue
    while queue.has_more or queue.in_flight:
        asked = []
        while fill(sender) or flow.works:
            ends = [one.end for one in flow._new]
            assert flow.limit in (flow.end, flow.left, *ends) and len(ends) <= 32
            assert flow.limit <= flow.end or flow.limit == ends[0]
            assert flow.limit - flow.heard <= max(flow._window, ends[0] - flow.left)
            beyond += queue.sent_psn > flow.limit
            asked += end_all(sender, now)
        assert flow.left == min(flow.limit, queue.sent_psn)
        assert asked[-1] == flow.left or flow.left == queue.sent_psn and not queue.has_more
        answer(sender, [*asked, flow.left], now + 10_000)
        now += 10_000
    assert beyond > 3 and flow.least_ns == 10_000
    assert [status for _, status in sender.completions] == [WCStatus.SUCCESS]


def test_a_smaller_window_allows_the_first_descriptor_alone():
    sender = make_sender()
    fill(sender)
    flow = sender.flow
    answer(sender, send_window(sender, 0), 10_000)
    fill(sender)
    end_all(sender, 10_000)
    left = flow.left
    fill(sender)
    assert flow._new[0].end - left > 2
    flow.algorithm = FixedRate(LINE, flow.packet)
    sender.on_ack((left - 3) % (1 << 24), 0, 20_000, came_ns=20_000)
    assert flow.limit == left and not flow.works, "two packets are in flight"
    sender.on_ack((left - 1) % (1 << 24), 0, 20_000, came_ns=20_000)
    assert flow.limit == flow._new[0].end and flow.works


def test_round_trips_are_those_of_the_card():
    sender = make_sender()
    fill(sender)
    first = sender.flow._new[0].end
    sender.on_paced(first, False, 5, 1_000)
    sender.on_ack(first - 1, 0, 30_000, came_ns=12_005)
    assert sender.flow.rtt_ns == 12_000
    fill(sender)
    second = sender.flow._new[0].end
    sender.on_paced(second, False, (1 << 48) - 10, 40_000)      # 48 bits wrap
    sender.on_ack(second - 1, 0, 60_000, came_ns=(1 << 48) + 10_990)
    assert sender.flow.rtt_ns == 11_000


def test_a_lost_answer_is_probed_while_the_card_has_blocked_work():
    """Nothing that the card may still send precedes the probe."""
    sender = make_sender()
    send_window(sender, 0)
    assert sender.in_card and not sender.flow.works and sender.has_work is False
    now = sender.deadline
    sender.poll(now)
    assert [frame.psn for frame in sender.frames] == [sender.flow.left]


def test_the_timer_runs_while_the_only_descriptor_waits():
    """The pool has no place for more work of this QP, which would wait as well."""
    sender = make_sender()
    while sender.queue.sent_psn < sender.flow.end or sender.flow.works:
        sender.on_taken(len(sender.next_work()))
        end_all(sender, 0)
    sender.next_work()
    assert sender.in_card == 1 and not sender.flow.works and sender.has_work
    assert sender.deadline is not None


def test_the_gap_is_that_of_the_rate_up_to_the_largest():
    flow = make_sender().flow
    for rate, ns in ((100e9, 0.08), (1e6, 8_000), (0.7e6, 8e9 / 0.7e6), (0.5e6, 12_288)):
        flow.algorithm = FixedRate(rate)
        assert flow.gap == round(ns * (1 << abi.PACE_SCALE)) <= abi.PACE_GAP_MAX


def test_the_rate_recovers_while_nothing_is_acknowledged():
    """A probe for each answer is not sent while packets are repeated."""
    sender = make_sender("dcqcn")
    answer(sender, send_window(sender, 0), 10_000)
    send_window(sender, 10_000)
    sender.on_loss_report(loss_report(0, (sender.queue.una, 1)), 20_000)
    for now in range(20_000, 520_000, 10_000):
        sender.on_cnp(now)
    algorithm, gap = sender.flow.algorithm, sender.flow.gap
    assert algorithm.rate == algorithm.settings.least_mbps * 1e6
    work = sender.next_retransmission()
    sender.on_paced(work.psn + 1 & WORD, True, 0, 510_000 + 20 * 55_000)
    assert algorithm.rate > 500e6 and sender.flow.gap < gap / 50 and not sender.frames


def test_reports_that_match_nothing_are_counted():
    sender = make_sender()
    count = len(fill(sender))
    for psn in (99, 100, 101 + (1 << 31), sender.queue.sent_psn + 1):
        assert sender.on_paced(psn & WORD, False, 0, 0) == sender.on_paced(psn & WORD, True, 0, 0) == 0
    assert sender.in_card == count and sender.counts["stray_paced"] == 8


def test_few_retransmissions_are_in_the_card():
    sender = make_sender()
    answer(sender, send_window(sender, 0), 10_000)
    send_window(sender, 10_000)
    una, flow = sender.queue.una, sender.flow
    sender.on_loss_report(loss_report(0, *((una + 2 * n, 1) for n in range(9))), 20_000)
    flow.algorithm.rate = 1e9
    works = []
    while sender.has_retransmission:
        works.append(sender.next_retransmission())
    assert len(works) == LEAST and flow.works and not sender.has_retransmission
    assert sender.on_paced(works[0].psn + 1 & WORD, True, 0, 2_000) == 1
    assert sender.has_retransmission


# ------------------------------------------------------------------------------------- turns


class Turn:
    """QP with much new work and ``again`` retransmissions."""

    paced = True

    def __init__(self, again=0, most=4):
        self.again, self.most, self.held, self.got = again, most, 0, 0
        self.sender = self

    has_work = property(lambda self: self.held < self.most)
    has_retransmission = property(lambda self: self.again > 0)

    def contain(self, method, *arguments):
        method(*arguments)

    def next_work(self):
        self.held += 1
        self.got += 1
        return [SimpleNamespace(length=1)]

    def next_retransmission(self):
        self.again -= 1
        return SimpleNamespace(length=1)

    def descriptors(self, works):
        return [bytes(64)] * len(works)


def test_turns_in_a_small_pool():
    """Each QP gets its turn, a quarter of the pool is for retransmissions, and no more is used than there is."""
    rng = random.Random(seed := drawn_seed())
    print("seed", seed)
    ring = SimpleNamespace(space=1 << 30, push_all=lambda *_: None, ring_doorbell=lambda: None)
    turns = PacedTurns({abi.Ring.SEND: ring, abi.Ring.RETRANSMIT: ring}, 8, lambda _qp: None)
    qps = [Turn() for _ in range(20)]
    for n in range(4_000):
        for qp in qps:
            turns.offer(qp)
        turns.fill()
        assert turns.used == (6 if n % 10 else turns.used) <= 8 and turns.busy
        qp = rng.choice([qp for qp in qps if qp.held])
        qp.held -= 1
        turns.ended(qp, 1)
        if n % 10 == 9:
            qp.again = 3
            turns.offer(qp)
            turns.fill()
            assert turns.used == 8 and qp.again >= 0
            turns.ended(qp, 2 - (turns._held[qp] < 2))
            turns.discarded(qp)
            qp.held, qp.again = 0, 0
            turns.remove(qp)
    assert max(qp.got for qp in qps) < 1.5 * min(qp.got for qp in qps)


# ------------------------------------------------------------------------------------- on cards


@CARDS
@pytest.mark.parametrize("rate", [1e6, 1e8, 10e9, 97e9])
def test_rate(device_type, rate):
    """Within 0.1 % of what the algorithm demands, on the line."""
    pair = paced_pair(device_type)
    frames, packets = tap(pair), 16 if rate < 1e9 else 2_560
    fix_rate(pair.hosts[0].qp, rate)
    write_all(pair, -(-packets * PMTU // LENGTH), min(LENGTH, packets * PMTU))
    pair.run_until(lambda: len(frames) >= packets, limit_ns=10**10)
    skip = 2 if rate < 1e9 else 1_000
    assert rate_of(frames, skip) == pytest.approx(rate / 1e9, rel=1e-3)
    pair.hosts[0].qp.reset()
    assert paced(pair).used == pair.pair.devices[0].card.pacer.used == 0


@CARDS
@ALGORITHMS
def test_in_flight_and_goodput(device_type, name):
    """The bars of the limit without a pacer, and two products, on a path of 10 µs."""
    pair = paced_pair(device_type, name=name)
    data = random.Random(1).randbytes(LENGTH)
    pair.hosts[0].mr.write(data)
    sender, shares, start = pair.hosts[0].qp.sender, [], pair.pair.now_ns()
    flow, frames = sender.flow, tap(pair)
    device = pair.pair.devices[0]
    send = device.transmit

    def watched(frame, *when):
        if getattr(frame, "kind", None) == "DATA" and flow.least_ns:
            unanswered = (frame.psn - sender.queue.una) % (1 << 24) * flow.packet
            shares.append(unanswered / (LINE * flow.least_ns / 8e9))
        send(frame, *when)

    device.transmit = watched
    write_all(pair, 4)
    assert pair.statuses(0, 4) == [WCStatus.SUCCESS] * 4
    rate = 4 * LENGTH * 8 / (pair.pair.now_ns() - start)
    assert pair.hosts[1].mr.read(LENGTH, 0) == data and not any(frame[-1] for frame in frames)
    assert 0.5 < max(shares) <= 2
    assert rate > 45, rate
    assert paced(pair).used == 0 and not sender.counts["stray_paced"]
    pair.close()


@CARDS
def test_a_slow_qp_beside_a_fast_one(device_type):
    def rate_beside(slow):
        pair = paced_pair(device_type, qps=2)
        frames, fast, packets = tap(pair), pair.hosts[1].qps[1].qp_num, 4 * LENGTH // PMTU
        for qp, rate in zip(pair.hosts[0].qps, (1e6, 50e9), strict=True):
            fix_rate(qp, rate)
        if slow:
            write_all(pair, 4)
        write_all(pair, 4, qp=1)
        pair.run_until(lambda: sum(frame[1] == fast for frame in frames) == packets)
        assert 0 < len(frames) - packets < 4 or not slow
        return rate_of([frame for frame in frames if frame[1] == fast], 200)

    assert rate_beside(True) > 0.995 * rate_beside(False)


def test_a_thousand_qps_in_a_pool():
    """Each QP has its rate; the pool has a descriptor for each, with few for retransmissions."""
    number, each = 1_000, 6
    pair = paced_pair(pool=2_048, qps=number, sizes={"qps": 2_048}, cap={"max_send_wr": 4, "max_recv_wr": 1})
    frames = tap(pair)
    for qp in pair.hosts[0].qps:
        fix_rate(qp, 80e6)
    for qp in range(number):
        write_all(pair, 1, each * PMTU, qp)
    pair.run_until(lambda: len(frames) == number * each)
    times = {}
    for at, qpn, *_ in frames:
        times.setdefault(qpn, []).append(at)
    spacing = (PMTU + PACKET_OVERHEAD) * 8e9 / 80e6
    assert all(abs(ends[-1] - ends[1] - (each - 2) * spacing) < 10_000 for ends in times.values())
    assert pair.statuses(0, number) == [WCStatus.SUCCESS] * number and paced(pair).used == 0


@CARDS
@pytest.mark.parametrize("pool", [4, 8])
def test_a_pool_smaller_than_the_number_of_qps(device_type, pool):
    """All QPs proceed. The functional card raises an exception if its pool overflows."""
    seed = drawn_seed()
    print("seed", seed)
    pair = paced_pair(device_type, pool, qps=12, loss=0.05, seed=seed)
    data = random.Random(seed).randbytes(LENGTH)
    pair.hosts[0].mr.write(data)
    part = LENGTH // 12 // 4096 * 4096
    for n in range(12):
        pair.send(WROpcode.RDMA_WRITE, (n * part, part), at=n * part, qp=n)
    assert pair.statuses(0, 12) == [WCStatus.SUCCESS] * 12
    assert pair.hosts[1].mr.read(12 * part, 0) == data[:12 * part]
    assert sum(qp.sender.counts["retransmissions"] for qp in pair.hosts[0].qps) > 0
    pair.settle()
    assert paced(pair).used == 0
    pair.close()


@CARDS
@ALGORITHMS
def test_losses(device_type, name):
    """Retransmissions precede new packets, and everything keeps the rate."""
    seed = drawn_seed()
    print("seed", seed)
    pair = paced_pair(device_type, name=name, loss=0.03, seed=seed)
    data = random.Random(seed).randbytes(LENGTH)
    pair.hosts[0].mr.write(data)
    frames, qp = tap(pair), pair.hosts[0].qp
    fix_rate(qp, 10e9)
    write_all(pair, 2)
    pair.run_until(lambda: len(pair.hosts[0].cq.take(0)[1]) or not qp.engine.outstanding)
    assert pair.hosts[1].mr.read(LENGTH, 0) == data
    again = [n for n, frame in enumerate(frames) if frame[-1]]
    assert len(again) > 5 and again[0] < len(frames) // 2
    spacing = (PMTU + PACKET_OVERHEAD) * 8 / 10
    assert all(frames[n + 4][0] - frames[n][0] > 2.5 * spacing for n in range(8, len(frames) - 4))
    pair.close()


@CARDS
@pytest.mark.parametrize("end", ["reset", "error", "peer"])
def test_the_end_of_a_qp_frees_its_part_of_the_pool(device_type, end):
    """Much of its work waits in the pool. Other QPs, and its next incarnation, use the pool afterwards."""
    pair = paced_pair(device_type, pool=4, qps=3)
    host, peer = pair.hosts
    for qp in host.qps[:2]:
        fix_rate(qp, 1e6)
    write_all(pair, 2)
    pair.settle(50_000)
    assert paced(pair).holds(host.qp.engine) and pair.pair.devices[0].card.pacer.used
    if end == "reset":
        host.qp.reset()
    elif end == "error":
        host.qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
    else:
        pair.send(WROpcode.RDMA_WRITE, (0, 1), qp=1, rkey=1)
        pair.run_until(lambda: host.qps[1].qp_state is QPState.ERR)
        host.qp.reset()
    pair.settle(20_000)
    assert paced(pair).used == pair.pair.devices[0].card.pacer.used == 0
    host.cq.take(100)
    pair.send(WROpcode.RDMA_WRITE, (0, LENGTH), qp=2, wr_id=2)
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    host.qp.reset()
    peer.qp.reset()
    for one, other in ((host, peer), (peer, host)):
        one.qp.connect(other.qp.connection, path_mtu=MTU.MTU_4096, qp_access_flags=one.access)
    pair.send(WROpcode.RDMA_WRITE, (0, LENGTH), wr_id=3)
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS] and paced(pair).used == 0


@CARDS
def test_a_rejected_descriptor(device_type):
    """The card discards what it has of the QP; the request fails, and the QP does not hang."""
    pair = paced_pair(device_type, qps=2)
    card = pair.pair.devices[0].card
    fix_rate(pair.hosts[0].qp, 1e9)
    write_all(pair, 2)
    pair.settle(100_000)
    key = next(key for key, entry in card.tables.mrs.items() if entry.va == pair.hosts[0].mr.buf)
    region = card.tables.mrs.pop(key)
    assert pair.statuses(0, 2) == [WCStatus.LOC_PROT_ERR, WCStatus.WR_FLUSH_ERR]
    card.tables.mrs[key] = region
    pair.settle(50_000)
    assert paced(pair).used == card.pacer.used == 0
    write_all(pair, 1, qp=1)
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]


@CARDS
def test_inline_data_takes_the_way_through_memory(device_type):
    """Doorbells precede the first descriptor; descriptors are paced and have no payload."""
    pair = paced_pair(device_type)
    device, seen = pair.pair.devices[0], []
    entry = device.card.transmit_path.pool
    device.card.transmit_path.pool = lambda data, *rest: (seen.append(abi.WORK.unpack(data)), entry(data, *rest))[1]
    pair.hosts[1].recv()
    pair.send(WROpcode.SEND, (0, 40))
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS] and pair.statuses(1, 1) == [WCStatus.SUCCESS]
    assert seen and all(work.paced and not work.inline for work in seen)
    qp = device.card.pacer._qps[pair.hosts[0].qp.engine.index]
    assert qp.limited and qp.gap == pytest.approx(8e9 / LINE, rel=1e-4)
    pair.close()


@CARDS
def test_unpaced_qps_are_as_without_a_pacer(device_type):
    """Times and frames are the same, and nothing of theirs is in the pool."""
    sent = []
    for pool in (0, 64):
        pair = paced_pair(device_type, pool, name="none", loss=0.01)
        frames = tap(pair)
        write_all(pair, 2)
        pair.statuses(0, 2)
        assert not paced(pair).used and pair.hosts[0].qp.sender.flow is None
        sent.append(frames)
        pair.close()
    assert sent[0] == sent[1]


@ALGORITHMS
def test_a_shallow_buffer_on_a_fabric(tmp_path, name):
    """Three timed senders into one port: nothing is lost, and the judges see no error; goodput of six seeds."""
    found = [run_on(tmp_path, INCAST, 1_000_000, pmtu=4096, seed=seed, congestion=name) for seed in range(1, 7)]
    for report in found:
        assert report["ok"] and report["packets_lost"] == 0 and report["spurious_retransmissions"] == 0
    assert mean(report["goodput_gbps"] for report in found) > {"swift": 85, "rate-match": 55}[name]
