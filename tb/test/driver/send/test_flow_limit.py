"""Limit of the bytes in flight: the driver holds work back as congestion control demands."""

import itertools
import random

import pytest

from weft.driver.protocol.segment import Request
from weft.driver.send.flow_limit import CNP_INTERVAL_NS, PACKET_OVERHEAD, FlowLimit
from weft.driver.send.sender import Sender
from weft.driver.send.standard_sender import StandardSender
from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.driver.terms.errors import InvalidValue
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.qp_attr import QPAttr
from weft.hdl.contract import wire
from weft.hdl.contract.params import preset
from weft.model.card.host import TimedDevice
from weft.model.functional.host import FunctionalDevice, LinkConfig
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair
from weft.tb.test.driver.send.test_sender import loss_report

PSN, PMTU, LINE = 100, 1024, 100e9
DELAY_NS, LENGTH, LEAST_NS = 10_000, 1 << 20, CNP_INTERVAL_NS // 2


def make_sender(name="swift", kind=Sender, length=LENGTH):
    flow = FlowLimit(name, pmtu=PMTU, psn=PSN, line_bps=LINE, delay_ns=DELAY_NS)
    sender = kind(psn=PSN, pmtu=PMTU, probe_ns=50_000, timeout_ns=1_000_000, flow=flow)
    sender.post([Request(0, [(0, length, 1)], 0, 2)])
    return sender


def fill(sender):
    """Take all work; return its number of descriptors."""
    count = 0
    while sender.has_work and (works := sender.next_work()):
        count += len(works)
    return count


def probes(sender):
    """Take the frames; return the PSNs of the probes."""
    found = [frame.psn for frame in sender.frames if frame.opcode is wire.Opcode.PROBE]
    sender.frames.clear()
    return found


def deliver(sender, now, trip_ns):
    """Let all work of the card leave at ``now``, and its answers arrive after ``trip_ns``; return the probed PSNs."""
    while sender.in_card:
        sender.on_transmitted(now)
    asked = probes(sender)
    for psn in asked:
        sender.on_ack((psn - 1) % (1 << 24), 0, now + trip_ns)
    return asked


@pytest.mark.parametrize("name", ["swift", "rate-match"])
def test_work_is_held_back_until_answers_arrive(name):
    sender = make_sender(name)
    flow, queue, now = sender.flow, sender.queue, 0
    posted = queue.sent_psn
    while queue.has_more or queue.in_flight:
        fill(sender)
        window = max(1, (flow.algorithm.limit // (1 if flow.rtt_ns else 4)) // flow.packet)
        assert queue.sent_psn - queue.una <= window and queue.sent_psn >= posted
        assert not (queue.has_more and sender.has_work)
        deliver(sender, now, DELAY_NS)
        posted = queue.sent_psn
        if not queue.has_more:
            sender.on_ack(posted - 1, 0, now + DELAY_NS)     # the end of the message
        assert queue.una == posted
        now += DELAY_NS
    assert [status for _, status in sender.completions] == [WCStatus.SUCCESS]
    assert flow.least_ns == DELAY_NS


def test_an_answer_is_requested_several_times_in_a_window():
    sender = make_sender()
    fill(sender)
    deliver(sender, 0, DELAY_NS)
    count = fill(sender)
    asked = []
    for _ in range(count):
        sender.on_transmitted(DELAY_NS)
        asked += probes(sender)
    window = sender.flow.algorithm.limit // sender.flow.packet
    assert asked[-1] == sender.queue.sent_psn and 4 <= len(asked) <= 8
    assert all(window // 4 <= later - earlier <= window // 2 for earlier, later in itertools.pairwise(asked[:-1]))


def test_no_probe_precedes_a_retransmission():
    """It would notify the peer that the retransmission has left."""
    sender = make_sender()
    fill(sender)
    deliver(sender, 0, DELAY_NS)
    fill(sender)
    sender.on_loss_report(loss_report(0, (sender.queue.una + 2, 3)), 2 * DELAY_NS)
    while sender.in_card:
        sender.on_transmitted(2 * DELAY_NS)
    assert not probes(sender)
    while sender.has_retransmission:
        sender.next_retransmission()
    while sender.in_card:
        sender.on_transmitted(2 * DELAY_NS, again=True)
    assert probes(sender) == [sender.queue.sent_psn]


def test_losses_leave_the_flight_with_the_acknowledgement_of_their_retransmission():
    sender = make_sender()
    fill(sender)
    deliver(sender, 0, DELAY_NS)
    fill(sender)
    flow, queue = sender.flow, sender.queue
    una, before = queue.una, flow.algorithm.limit
    sender.on_loss_report(loss_report(0, (una + 2, 3), (una + 9, 1)), 3 * DELAY_NS)
    window = flow.algorithm.limit // flow.packet
    assert flow.algorithm.limit < before, "Swift halves its window"
    assert flow.heard == una + 10 and flow.end == una + 10 + window - 4
    sender.on_ack(una + 3, 0, 4 * DELAY_NS)     # two of the three
    assert flow.end == una + 10 + flow.algorithm.limit // flow.packet - 2
    sender.on_ack(una + 20, 0, 5 * DELAY_NS)
    assert flow.end == una + 21 + flow.algorithm.limit // flow.packet


def test_a_lying_peer_grows_nothing():
    """It repeats reports of the same loss, and acknowledges what was not sent."""
    sender = make_sender()
    fill(sender)
    rng = random.Random(1)
    for n in range(2_000):
        una = sender.queue.una
        sender.on_loss_report(loss_report(sender.expected_rsn, (una + rng.randrange(40), 1 + rng.randrange(5))), n)
        sender.on_ack(una + rng.randrange(1 << 23), 0, n)
        fill(sender)
        assert sender.queue.sent_psn - sender.queue.una <= 2 * LINE * DELAY_NS / 8e9 / PMTU + 1
        assert len(sender.flow._holes) <= 200 and len(sender.flow._timed) <= 200


def test_a_standard_peer_gets_no_probe():
    sender = make_sender(kind=StandardSender)
    fill(sender)
    while sender.in_card:
        sender.on_transmitted(0)
    assert not sender.frames and sender.queue.sent_psn == sender.flow.end
    sender.on_ack(sender.queue.sent_psn - 1, 0, DELAY_NS)
    assert sender.has_work and sender.flow.rtt_ns == DELAY_NS


@pytest.mark.parametrize("name", ["swift", "rate-match", "dcqcn"])
@pytest.mark.parametrize("device_type", [FunctionalDevice, TimedDevice], ids=["functional", "timed"])
def test_in_flight_stays_below_two_products_at_the_rate_of_the_line(name, device_type):
    """Without a pacer, in products of the rate and the smallest round trip so far, whenever the card gets work."""
    config = ContextConfig(congestion=name, probe_timeout_ns=50_000, ring_log2=8)
    pair = OperationPair(LENGTH, path_mtu=MTU.MTU_4096, pair=make_pair(
        config, forward=LinkConfig(delay_ns=5_000), device_type=device_type,
        preset=preset("test").with_(pace_descriptors=0)))
    data = random.Random(1).randbytes(LENGTH)
    pair.hosts[0].mr.write(data)
    sender, shares, start = pair.hosts[0].qp.sender, [], pair.pair.now_ns()
    flow, push = sender.flow, sender.next_work

    def watched(*arguments):
        if (works := push(*arguments)) and flow.least_ns:
            unanswered = (sender.queue.sent_psn - sender.queue.una - 1) * flow.packet
            shares.append(unanswered / (LINE * flow.least_ns / 8e9))
        return works

    sender.next_work = watched
    for n in range(4):
        pair.send(WROpcode.RDMA_WRITE, (0, LENGTH), at=0, wr_id=n)
    assert pair.statuses(0, 4) == [WCStatus.SUCCESS] * 4
    rate = 4 * LENGTH * 8 / (pair.pair.now_ns() - start)
    assert pair.hosts[1].mr.read(LENGTH, 0) == data and sender.counts["flow_probes"] > 10
    assert 0.5 < max(shares) <= 2
    assert rate > 40, rate
    pair.close()


def test_none_is_the_default_and_has_no_state():
    pair = OperationPair(4_096)
    assert pair.hosts[0].qp.sender.flow is None
    pair.close()


def test_a_qp_chooses_beside_its_context():
    pair = OperationPair(4_096, pair=make_pair(ContextConfig(congestion="rate-match")), congestion="swift")
    assert type(pair.hosts[0].qp.sender.flow.algorithm).__name__ == "Swift"
    assert pair.hosts[0].qp.sender.flow.packet == 1024 + PACKET_OVERHEAD
    pair.close()


def test_algorithms_that_do_not_exist_are_refused():
    words = "congestion is 'cubic'; choose one of none, dcqcn, swift, rate-match"
    with pytest.raises(InvalidValue, match=words):
        ContextConfig(congestion="cubic").check()
    with pytest.raises(InvalidValue, match=words):
        QPAttr(congestion="cubic").check(0)


def test_notifications_lower_the_window_and_are_limited():
    """Half of the rate is half of the bandwidth-delay product; one packet is the least."""
    sender = make_sender("dcqcn")
    fill(sender)
    deliver(sender, 0, DELAY_NS)
    flow, product = sender.flow, int(LINE * DELAY_NS / 8e9)
    assert flow.end - flow.heard == product // flow.packet
    sender.on_cnp(2 * DELAY_NS)
    assert flow.algorithm.rate == LINE / 2 and flow.end - flow.heard == product // 2 // flow.packet
    for now in range(2 * DELAY_NS, 2 * DELAY_NS + LEAST_NS, 1_000):
        sender.on_cnp(now)
    assert flow.algorithm.rate == LINE / 2
    for n in range(1, 50):
        sender.on_cnp(2 * DELAY_NS + n * LEAST_NS)
    assert flow.algorithm.rate == flow.algorithm.settings.least_mbps * 1e6 and flow.end - flow.heard == 1


def test_a_notification_before_the_first_round_trip_counts():
    sender = make_sender("dcqcn")
    fill(sender)
    sender.on_cnp(DELAY_NS // 2)
    deliver(sender, 0, DELAY_NS)
    flow, product = sender.flow, int(LINE * DELAY_NS / 8e9)
    assert flow.algorithm.rate == LINE / 2 and flow.end - flow.heard == product // 2 // flow.packet


@pytest.mark.parametrize("name", ["swift", "rate-match"])
def test_other_algorithms_ignore_notifications(name):
    sender = make_sender(name)
    before = sender.flow.end, sender.flow.algorithm.rate
    sender.on_cnp(0)
    assert (sender.flow.end, sender.flow.algorithm.rate) == before and not sender.flow.ect
