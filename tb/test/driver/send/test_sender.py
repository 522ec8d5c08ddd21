"""Sender in isolation, without card and link; the test sets the time."""

import random
from types import SimpleNamespace

import pytest

from weft.driver.knitting.holes import encode
from weft.driver.operation.operation import Operation
from weft.driver.protocol.message_end import Kind, MessageEnd
from weft.driver.protocol.segment import CHUNK_BYTES, Request, Work
from weft.driver.send.sender import Sender
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.hdl.contract import wire
from weft.tb.sim.flow.seed import drawn_seed

PSN = (1 << 24) - 3


def make_sender(messages=3, packets=4, **options):
    sender = Sender(psn=PSN, pmtu=256, **({"probe_ns": 100, "timeout_ns": 200, "retry_cnt": 2} | options))
    for n in range(messages):
        sender.post([Request(n, [(n * 10_000, packets * 256, 1)], n << 20, 2)])
    while sender.next_work():
        sender.on_transmitted(0)
    return sender


def loss_report(rsn, *runs):
    nodes = encode(list(runs))
    assert len(nodes) == 1
    return SimpleNamespace(rsn=rsn, **nodes[0][1])


def drain(sender):
    return [(w.psn, w.rsn, w.length // 256) for w in iter(sender.next_retransmission, None)]


def ack(sender, psn, now=0, syndrome=wire.Syndrome.ACK):
    sender.on_ack((psn - 1) % (1 << 24), syndrome, now)


def statuses(sender):
    result = [(r.wr_id, s) for r, s in sender.completions]
    sender.completions.clear()
    return result


def test_only_requested_packets_are_retransmitted_merged_within_a_request():
    sender = make_sender()
    sender.on_loss_report(loss_report(0, (PSN + 1, 5), (PSN + 7, 1), (PSN + 9, 2)), 0)
    assert drain(sender) == [(PSN + 1, 0, 3), (PSN + 4, 3, 2), (PSN + 7, 5, 1), (PSN + 9, 6, 2)]


def test_requests_for_responses_overtake_data_only():
    sender = make_sender(messages=0, probe_ns=100)
    data = [Request(n, [(0, 512, 1)], 0, 2, end=MessageEnd(kind, n)) for n, kind in
            enumerate((Kind.SEND_DATA, Kind.READ_DATA, Kind.SEND_DATA))]
    write, ask, grant = Request(3, [(0, 256, 1)], 0, 2), *(
        Request(n, [], 0, 2, end=MessageEnd(kind, n)) for n, kind in ((4, Kind.SEND_REQUEST), (5, Kind.GRANT)))
    for request in (data[0], write, data[1], data[2], ask, grant):
        sender.post([request])
    while sender.next_work():
        pass
    assert sorted((0, 3, 4, 5, 1, 2), key=lambda n: {r.wr_id: r.psn for r in (*data, write, ask, grant)}[n]) == [
        0, 3, 4, 5, 1, 2]


def test_reports_take_effect_once_and_in_order():
    sender = make_sender()
    first, second, third = loss_report(0, (PSN, 1)), loss_report(1, (PSN + 2, 2)), loss_report(3, (PSN + 6, 1))
    sender.on_loss_report(third, 0)
    sender.on_loss_report(second, 0)
    assert drain(sender) == []
    (request,) = sender.frames
    assert (request.opcode, request.rsn) == (wire.Opcode.REPORT_REQUEST, 0)
    for report in (first, first, second, third):
        sender.on_loss_report(report, 0)
    assert drain(sender) == [(PSN, 0, 1), (PSN + 2, 1, 2), (PSN + 6, 3, 1)]


def test_missing_report_is_requested_again():
    sender = make_sender()
    sender.on_loss_report(loss_report(4, (PSN, 1)), 0)
    for now in (50, 99, 100, 150, 200):
        sender.poll(now)
    assert [f.rsn for f in sender.frames if f.opcode is wire.Opcode.REPORT_REQUEST] == [0, 0, 0]


def test_acks_complete_in_order_and_stray_acks_are_ignored():
    sender = make_sender()
    for psn in (PSN + 3, PSN + 8, PSN + 4, PSN - 5, PSN + 100):
        ack(sender, psn)
    assert statuses(sender) == [(0, WCStatus.SUCCESS), (1, WCStatus.SUCCESS)]
    ack(sender, PSN + 12)
    assert statuses(sender) == [(2, WCStatus.SUCCESS)] and sender.deadline is None


def test_nak_fails_its_request_in_order():
    sender = make_sender()
    sender.on_ack((PSN + 5) % (1 << 24), wire.Syndrome.NAK_REMOTE_ACCESS, 0)
    assert statuses(sender) == [(0, WCStatus.SUCCESS), (1, WCStatus.REM_ACCESS_ERR), (2, WCStatus.WR_FLUSH_ERR)]
    sender.post([Request(7, [], 0, 0)])
    assert statuses(sender) == [(7, WCStatus.WR_FLUSH_ERR)]


def test_rejected_descriptor_fails_its_request_in_order():
    sender = make_sender(messages=4)
    sender.on_refused(PSN + 6, WCStatus.LOC_PROT_ERR, 0)      # of the second request
    assert statuses(sender) == []
    sender.on_loss_report(loss_report(0, (PSN + 2, 3)), 0)    # nothing of the refused request is repeated
    assert drain(sender) == [(PSN + 2, 0, 2)]
    sender.on_refused(PSN + 9, WCStatus.LOC_QP_OP_ERR, 0)     # a later one has no effect
    ack(sender, PSN + 3)
    assert statuses(sender) == []
    ack(sender, PSN + 4)
    assert statuses(sender) == [(0, WCStatus.SUCCESS), (1, WCStatus.LOC_PROT_ERR), (2, WCStatus.WR_FLUSH_ERR),
                                (3, WCStatus.WR_FLUSH_ERR)]
    assert sender.failed is WCStatus.LOC_PROT_ERR


def test_no_descriptor_is_submitted_after_a_rejected_one():
    sender = Sender(psn=PSN, pmtu=256, probe_ns=100, timeout_ns=200, retry_cnt=2)
    for n in range(3):
        sender.post([Request(n, [(n * 10_000, 1024, 1)], n << 20, 2)])
    sender.next_work()
    sender.next_work()
    sender.on_refused((PSN + 4) % (1 << 32), WCStatus.LOC_PROT_ERR, 0)
    assert not sender.has_work and not sender.next_work()
    sender.post([Request(3, [(0, 100, 1)], 0, 2)])
    ack(sender, PSN + 4)
    assert [s for _, s in statuses(sender)] == [WCStatus.SUCCESS, WCStatus.LOC_PROT_ERR, *[WCStatus.WR_FLUSH_ERR] * 2]


def test_rejected_oldest_request_fails_at_once():
    sender = make_sender()
    sender.on_refused(PSN, WCStatus.LOC_QP_OP_ERR, 0)
    assert [s for _, s in statuses(sender)] == [WCStatus.LOC_QP_OP_ERR, *[WCStatus.WR_FLUSH_ERR] * 2]


def test_silence_after_a_rejected_descriptor_ends():
    sender = make_sender()
    sender.on_refused(PSN + 4, WCStatus.LOC_PROT_ERR, 0)
    now = 0
    while sender.failed is None:
        now = sender.deadline
        assert now is not None and now < 100_000
        sender.poll(now)
        sender.frames.clear()
    assert sender.failed is WCStatus.RETRY_EXC_ERR


def test_probe_carries_sent_and_expected_psns():
    sender = make_sender()
    sender.on_loss_report(loss_report(0, (PSN, 2)), 10)
    drain(sender)
    sender.on_transmitted(20)
    sender.poll(119)
    assert not sender.frames
    sender.poll(120)
    (probe,) = sender.frames
    assert (probe.opcode, probe.psn, probe.rsn) == (wire.Opcode.PROBE, PSN + 12, 2)


def test_no_probe_while_the_card_has_work():
    sender = make_sender(messages=0)
    sender.post([Request(0, [(0, 100, 1)], 0, 2)])
    sender.next_work()
    for now in range(0, 5_000, 50):
        sender.poll(now)
    assert not sender.frames
    sender.on_transmitted(5_000)
    sender.poll(5_100)
    assert len(sender.frames) == 1


def test_timer_stops_while_the_card_has_descriptors():
    """A sender whose descriptors are in the card need not be polled."""
    sender = make_sender(messages=0)
    sender.post([Request(0, [(0, 300, 1)], 0, 2)])
    sender.next_work()
    sender.on_transmitted(0)
    assert sender.deadline == 100
    sender.post([Request(1, [(0, 100, 1)], 0, 2)])
    sender.poll(100)
    assert sender.deadline is None and not sender.frames, "new work waits for the card"
    sender.next_work()
    sender.poll(200)
    assert sender.deadline is None and not sender.frames, "the card has it"
    sender.on_transmitted(300)
    assert sender.deadline == 400
    sender.on_loss_report(loss_report(0, (PSN + 1, 1)), 350)
    assert sender.deadline is None, "a retransmission waits for the card"


def test_silence_ends_in_retry_exceeded_and_responses_prevent_it():
    sender = make_sender()
    for now in range(0, 3_000, 10):
        sender.poll(now)
    assert statuses(sender)[0] == (0, WCStatus.RETRY_EXC_ERR) and sender.counts["probes"] == 4
    sender = make_sender()
    for now in range(0, 3_000, 10):
        sender.poll(now)
        while sender.frames:
            sender.frames.popleft()
            ack(sender, PSN, now)
    assert sender.failed is None


@pytest.mark.parametrize("pmtu", [256, 4096])
def test_too_long_request_is_rejected(pmtu):
    length = (1 << 31) + 1
    sender = Sender(psn=0, pmtu=pmtu, probe_ns=1, timeout_ns=1)
    with pytest.raises(ValueError, match=f"{length} bytes"):
        sender.post([Request(1, [(0, length, 1)], 0, 1)])
    sender.post([Request(1, [(0, length - 1, 1)], 0, 1)])
    assert sender.outstanding == 1


def test_outstanding_psns_are_bounded():
    sender = make_sender(messages=0, max_outstanding=10)
    for n in range(4):
        sender.post([Request(n, [(0, 4 * 256, 1)], 0, 2)])
    count = len(list(iter(sender.next_work, [])))
    assert count == 3 and sender.queue.sent_psn - sender.queue.una == 10
    ack(sender, PSN + 4)
    assert sender.has_work


def test_request_beyond_the_outstanding_psns_is_sent_in_parts():
    sender = make_sender(messages=0, max_outstanding=10)
    sender.post([Request(0, [(0, 25 * 256, 1)], 0, 2)])
    for arrived, ahead in ((0, 10), (10, 20), (13, 23), (20, 25), (25, 25)):
        if arrived:
            ack(sender, PSN + arrived)
        works = list(iter(sender.next_work, []))
        assert sender.queue.sent_psn == PSN + ahead and sender.queue.una == PSN + arrived
        assert [work.last for (work,) in works][-1:] in ([], [ahead == 25])
    assert statuses(sender) == [(0, WCStatus.SUCCESS)]


# --------------------------------------------------------------------------------------- a peer that lies


def test_impossible_reports_have_no_effect():
    sender = make_sender()
    for lie in (loss_report(0, (PSN - 1, 2)), loss_report(0, (PSN + 11, 2)), loss_report(0, (PSN + 300, 5))):
        sender.on_loss_report(lie, 0)
    assert sender.counts["bad_reports"] == 3 and not drain(sender)
    sender.on_loss_report(loss_report(0, (PSN + 11, 1)), 0)
    assert drain(sender) == [(PSN + 11, 0, 1)]


def test_unsent_packets_are_not_retransmitted():
    sender = make_sender(messages=0, packets=64)
    sender.post([Request(0, [(0, 64 * 256, 1)], 0, 2)])
    sender.on_receive_limit(PSN % (1 << 24), True, 1, 0)
    assert not sender.next_work()
    sender.on_receive_limit(0, False, 2, 0)
    sender.next_work()
    sender.queue.sent_psn -= 54      # as if a limit had cut the descriptor
    sender.on_loss_report(loss_report(0, (PSN + 5, 50)), 0)
    assert not drain(sender) and sender.counts["bad_reports"] == 1


def test_early_reports_are_held_and_requested_within_limits():
    sender = make_sender(messages=100, timeout_ns=10**6)
    for number in range(5_000):
        sender.on_loss_report(loss_report(7 + number, (PSN, 1)), 0)
    reports = sender._recovery._reports
    assert len(reports) <= reports.HELD_MAX and sender.counts["far_reports"] > 3_000
    now = 0
    while (deadline := sender._recovery.deadline) is not None and now < 10**6:
        now = deadline
        sender.poll(now)
    assert len(reports) == 0 and sender.counts["report_requests"] == reports.ASKS_MAX
    sender.on_loss_report(loss_report(0, (PSN + 3, 1)), now)
    assert drain(sender) == [(PSN + 3, 0, 1)]


def test_no_report_is_requested_when_all_is_acknowledged():
    sender = make_sender()
    sender.on_loss_report(loss_report(2, (PSN, 1)), 0)
    ack(sender, PSN + 12)
    sender.frames.clear()
    for now in range(0, 100_000, 100):
        sender.poll(now)
    assert not sender.frames and sender.deadline is None


def test_pending_retransmissions_are_bounded():
    sender = make_sender(messages=80)
    for _ in range(1_000):
        sender.on_loss_report(loss_report(sender.expected_rsn, (PSN, 64)), 0)
    assert sum(count for *_, count in drain(sender)) <= 2 * 320 + 320
    assert sender.counts["reports_over_budget"] > 900
    expected = sender.expected_rsn
    sender.on_loss_report(loss_report(expected, (PSN + 9, 1)), 0)
    assert drain(sender) == [(PSN + 9, expected, 1)], "there is space again"


def test_invalid_limit_does_not_replace_the_valid_one():
    sender = make_sender()
    for serial in (1 << 20, (1 << 22) - 1, 300):
        sender.on_receive_limit(PSN % (1 << 24), True, serial, 0)
    assert sender.queue.limit is None and sender.counts["bad_limits"] == 3
    sender.on_receive_limit((PSN + 13) % (1 << 24), True, 1, 0)
    assert sender.queue.limit is None and sender.counts["bad_limits"] == 4, "so much was never sent"
    sender.on_receive_limit((PSN + 4) % (1 << 24), True, 1, 0)
    assert sender.queue.limit == PSN + 4
    sender.on_receive_limit(0, False, 2, 0)
    assert sender.queue.limit is None


def fields_of(works):
    """Return the fields of each :class:`Work`, or of each piece that represents one."""
    return [[getattr(work, name) for name in Work._fields] for work in works]


def test_runs_of_descriptors_respect_the_limits():
    """Descriptors returned in runs equal those returned singly; a run ends at the limit of number, bytes or PSNs."""
    seed = drawn_seed()
    print(f"seed {seed}")
    rng, ended = random.Random(seed), set()
    for _ in range(50):
        lengths = [rng.choice([0, 100, rng.randrange(CHUNK_BYTES), CHUNK_BYTES]) for _ in range(30)]
        starts = [rng.randrange(1 << 20) for _ in lengths]
        one, runs = (Sender(psn=5, pmtu=1024, probe_ns=1, timeout_ns=1, max_outstanding=rng.choice([300, 1 << 20]))
                     for _ in range(2))
        runs.queue.max_outstanding = one.queue.max_outstanding
        for sender in (one, runs):
            sender.post([Operation(n, WROpcode.RDMA_WRITE, [(7 * at, length, 1)], length, at, 2, followed=n % 3 != 0)
                          for n, (at, length) in enumerate(zip(starts, lengths, strict=True))])
        single = []
        while works := one.next_work():
            assert len(works) == 1
            single += fields_of(works)
        delivered = []
        while True:
            most, most_bytes = rng.randint(1, 10), rng.randint(1, 4 * CHUNK_BYTES)
            run = runs.next_work(most, most_bytes)
            assert len(run) <= most and sum(work.length for work in run[:-1]) < most_bytes
            if not run:
                break
            delivered += fields_of(run)
            if len(run) < most:
                ended.add("bytes" if sum(work.length for work in run) >= most_bytes else "other")
            else:
                ended.add("number")
        assert delivered == single and runs.in_card == one.in_card and runs.queue.sent_psn == one.queue.sent_psn
        assert runs.counts == one.counts
    assert ended == {"bytes", "number", "other"}
