"""Syndromes at the sender: those that acknowledge, those that make it wait, and those without effect."""

import itertools

import pytest

from weft.driver.protocol.aeth import RNR_TIMER_NS
from weft.driver.terms.enums import WCStatus
from weft.driver.verbs.wr import RecvWR
from weft.hdl.contract import wire
from weft.tb.sim.pair.functional_pair import make_endpoints, make_pair
from weft.tb.test.driver.send.test_sender import PSN, ack, loss_report, make_sender, statuses
from weft.tb.test.driver.verbs.test_failures import one_write

POSITIVE, NOT_READY = range(0x20), range(0x20, 0x40)
ENDS = {0x61: WCStatus.REM_INV_REQ_ERR, 0x62: WCStatus.REM_ACCESS_ERR, 0x63: WCStatus.REM_OP_ERR}
SEQUENCE = 0x60


@pytest.mark.parametrize("syndrome", range(256))
def test_only_a_positive_acknowledgement_completes_with_success(syndrome):
    sender = make_sender()
    sender.on_ack((PSN + 11) % (1 << 24), syndrome, 0)
    found = [status for _, status in statuses(sender)]
    if syndrome in POSITIVE:
        assert found == [WCStatus.SUCCESS] * 3
    elif syndrome in ENDS:      # the syndrome names the last packet; all before it arrived
        assert found == [WCStatus.SUCCESS] * 2 + [ENDS[syndrome]]
    elif syndrome in NOT_READY:
        assert found == [WCStatus.SUCCESS] * 2 and sender.outstanding == 1
    else:
        assert not found and sender.queue.una == PSN and sender.failed is None
        assert sender.counts["bad_syndromes"] == (syndrome != SEQUENCE)


def test_a_sequence_error_makes_one_probe_at_once():
    sender = make_sender()
    for now in (10, 20, 30):
        sender.on_ack(PSN, SEQUENCE, now)
        sender.poll(now)
    assert sender.counts["probes"] == 1 and sender.counts["sequence_naks"] == 3
    sender.poll(sender.deadline)           # this probe was due anyway
    sender.on_ack(PSN, SEQUENCE, 400)
    sender.poll(400)
    assert sender.counts["probes"] == 3 and sender.queue.una == PSN


# --------------------------------------------------------------------------- a receiver that is not ready


@pytest.mark.parametrize("code", range(32))
def test_sender_waits_for_the_rnr_timer(code):
    """Values of IBTA table 46 in units of 10 µs; the sender waits up to an eighth longer."""
    units = (65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
             4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152)
    assert RNR_TIMER_NS[code] == 10_000 * units[code]
    sender = make_sender()
    sender.poll(100)
    sender.on_ack(PSN, 0x20 | code, 150)
    assert 150 + units[code] * 10_000 <= sender.deadline <= 150 + units[code] * 11_250


def lose_the_first(sender, now):
    """Report the loss of the oldest packet, and send it again."""
    sender.on_loss_report(loss_report(sender.expected_rsn, (sender.queue.una, 1)), now)
    sender.next_retransmission()
    sender.on_transmitted(now, again=True)


@pytest.mark.parametrize("first", [
    lambda sender, now: None, lambda sender, now: sender.on_ack(PSN - 1, 0, now), lose_the_first],
    ids=["nothing", "acknowledgement", "loss"])
def test_rnr_retry_counts_answers_to_probes_and_seven_never_ends(first):
    """``first`` precedes the RNR NAK in the answer to each probe."""
    for retries, end in ((2, 3), (7, None)):
        sender, answers = make_sender(rnr_retry=retries), 0
        while sender.failed is None and answers < 2_000:
            sender.poll(sender.deadline)
            answers += 1
            first(sender, sender.deadline)
            for _ in range(2):                                   # each of them arrives twice
                sender.on_ack(PSN, 0x21, sender.deadline)
                if sender.failed is not None:
                    break
        assert sender.failed is (None if end is None else WCStatus.RNR_RETRY_EXC_ERR), answers
        assert end is None or answers == end


@pytest.mark.parametrize("first", [lambda sender, now: None, lose_the_first], ids=["nothing", "loss"])
def test_the_search_of_a_path_leaves_the_rnr_timer_its_time(first):
    """The wait is longer than the probe time-out, and each RNR NAK counts."""
    sender, now, asked = make_sender(probe_ns=50_000, timeout_ns=1_000_000, rnr_retry=2), 0, []
    sender.search_path("seed", lambda port: None)
    while sender.failed is None and len(asked) < 100:
        now = max(now, sender.deadline)
        sender.poll(now)
        if any(frame.opcode is wire.Opcode.PROBE for frame in sender.frames):
            sender.frames.clear()
            asked.append(now)
            now += 4_000
            first(sender, now)
            sender.on_ack(PSN, 0x20 | 13, now)
    assert sender.failed is WCStatus.RNR_RETRY_EXC_ERR and len(asked) == 3
    assert min(later - earlier for earlier, later in itertools.pairwise(asked)) >= RNR_TIMER_NS[13]


def test_receiver_sets_the_rnr_wait():
    pair = make_pair()
    ends = make_endpoints(pair, 4_096, rnr_retry=7, min_rnr_timer=11)      # 0.48 ms
    syndromes, deliver = [], pair.links[1].deliver

    def watch(frame):
        if frame[wire.BTH_OFFSET] == wire.Opcode.ACKNOWLEDGE:
            syndromes.append(frame[wire.RETH_OFFSET])
        deliver(frame)

    pair.links[1].deliver = watch
    pair.loop.call_in(5_000_000, lambda: ends[1].qps[0].post_recv(RecvWR(wr_id=5)))
    assert one_write(pair, ends, imm=True)[0].status is WCStatus.SUCCESS
    assert set(syndromes) >= {0x2B, 0x1F} and 9 <= syndromes.count(0x2B) <= 11, syndromes


# ------------------------------------------------------------------------------------------ progress


def rounds(sender, lost, limit=3_000, now=0):
    """Let the peer answer every probe; return (rounds, time).

    ``lost(round)`` is true if the oldest unacknowledged packet was lost again.
    """
    for done in range(limit):
        now = sender.deadline
        sender.poll(now)
        if sender.failed is not None:
            return done, now
        sender.frames.clear()
        if lost(done):
            sender.on_loss_report(loss_report(sender.expected_rsn, (sender.queue.una, 1)), now + 10)
        ack(sender, sender.queue.una, now + 10)
        while sender.next_retransmission():
            sender.on_transmitted(now + 20, again=True)
    return limit, now


def test_permanently_lost_packets_end_with_a_responding_peer():
    """This happens if the path drops packets of this size: probes and acknowledgements are short."""
    sender = make_sender(retry_cnt=2)
    made, end = rounds(sender, lambda _: True)
    assert sender.failed is WCStatus.RETRY_EXC_ERR and made < 20, made
    assert 3 * 200 <= end <= 3 * 200 + 500, end


def test_loss_alone_does_not_end_it():
    """An acknowledgement without news is not progress, but a packet that is lost a few times has enough time."""
    sender = make_sender(retry_cnt=2)
    for number in range(1, 12):      # each packet is lost three times; then the next one is acknowledged
        made, _ = rounds(sender, lambda n: n < 3, limit=4)
        assert made == 4 and sender.failed is None
        ack(sender, PSN + number, sender.deadline - 1)
    assert sender.outstanding == 1


def test_path_without_large_packets_ends_the_connection():
    pair = make_pair()
    ends = make_endpoints(pair, 65_536, retry_cnt=2, timeout=4)
    pair.links[0].drop = lambda frame: frame[wire.BTH_OFFSET] in wire.DATA_OPCODES and len(frame) > 1_000
    wcs = one_write(pair, ends)
    assert wcs[0].status is WCStatus.RETRY_EXC_ERR and pair.loop.now_ns < 2_000_000


# ---------------------------------------------------------------------------------------- round trip


@pytest.mark.parametrize("rtt_ns", [300, 3_000, 60_000])
def test_probes_follow_the_round_trip(rtt_ns):
    """Every probe is answered ``rtt_ns`` later; the sender is configured for a round trip of 50 ns."""
    sender, answers, now, asked = make_sender(timeout_ns=10**6), [], 0, []
    while len(asked) < 40:
        times = [sender.deadline, *answers[:1]]
        now = min(times)
        if answers and answers[0] == now:
            answers.pop(0)
            ack(sender, PSN, now)
            continue
        sender.poll(now)
        sender.frames.clear()
        asked.append(now)
        answers.append(now + rtt_ns)
    gaps = [b - a for a, b in zip(asked, asked[1:], strict=False)]
    assert all(2 * rtt_ns <= gap <= 5 * rtt_ns for gap in gaps[-10:]), gaps
    assert sum(gap < rtt_ns for gap in gaps) <= 12, gaps
