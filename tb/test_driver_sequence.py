"""Sender, timer and receiver by themselves: no card, no link, no clock but the test's."""

import random
from types import SimpleNamespace

import pytest

from weft.driver.control import ControlFrame
from weft.driver.enums import WCStatus
from weft.driver.hole_list import LinkDoorbell
from weft.driver.holes import encode, node_runs, residue_runs
from weft.driver.knitting import KnittingBuffer
from weft.driver.receiver import CumDoorbell, Receiver
from weft.driver.segment import Request
from weft.driver.sender import Sender
from weft.driver.timer import Expiry, ProgressTimer
from weft.hdl import abi, wire
from weft.model.functional.host import FunctionalDevice
from weft.model.link import EventLoop

PSN = (1 << 24) - 3


def make_sender(messages=3, packets=4, **options):
    sender = Sender(psn=PSN, pmtu=256, probe_ns=100, timeout_ns=200, **({"retry_cnt": 2} | options))
    for n in range(messages):
        sender.post(Request(n, [(n * 10_000, packets * 256, 1)], n << 20, 2))
    while sender.next_work():
        sender.on_transmitted(0)
    return sender


def loss_report(rsn, *runs):
    nodes = encode(list(runs))
    assert len(nodes) == 1
    return SimpleNamespace(rsn=rsn, **nodes[0][1])


def drain(sender):
    return [(f["psn"], f["rsn"], f["length"] // 256) for f in iter(sender.next_retransmission, None)]


def ack(sender, psn, now=0, syndrome=wire.Syndrome.ACK):
    sender.on_ack((psn - 1) % (1 << 24), syndrome, now)


def statuses(sender):
    result = [(r.wr_id, s) for r, s in sender.completions]
    sender.completions.clear()
    return result


# --------------------------------------------------------------------------------------------- sender


def test_exactly_the_packets_asked_for_merged_inside_a_request():
    sender = make_sender()
    sender.on_loss_report(loss_report(0, (PSN + 1, 5), (PSN + 7, 1), (PSN + 9, 2)), 0)
    assert drain(sender) == [(PSN + 1, 0, 3), (PSN + 4, 3, 2), (PSN + 7, 5, 1), (PSN + 9, 6, 2)]


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


def test_missing_report_is_asked_for_again():
    sender = make_sender()
    sender.on_loss_report(loss_report(4, (PSN, 1)), 0)
    for now in (50, 99, 100, 150, 200):
        sender.poll(now)
    assert [f.rsn for f in sender.frames if f.opcode is wire.Opcode.REPORT_REQUEST] == [0, 0, 0]


def test_acks_complete_in_order_and_strays_are_ignored():
    sender = make_sender()
    for psn in (PSN + 3, PSN + 8, PSN + 4, PSN - 5, PSN + 100):
        ack(sender, psn)
    assert statuses(sender) == [(0, WCStatus.SUCCESS), (1, WCStatus.SUCCESS)]
    ack(sender, PSN + 12)
    assert statuses(sender) == [(2, WCStatus.SUCCESS)] and sender.deadline is None


def test_nak_fails_its_request_only_after_those_before_it():
    sender = make_sender()
    sender.on_ack((PSN + 5) % (1 << 24), wire.Syndrome.NAK_REMOTE_ACCESS, 0)
    assert statuses(sender) == [(0, WCStatus.SUCCESS), (1, WCStatus.REM_ACCESS_ERR), (2, WCStatus.WR_FLUSH_ERR)]
    sender.post(Request(7, [], 0, 0))
    assert statuses(sender) == [(7, WCStatus.WR_FLUSH_ERR)]


def test_refused_descriptor_fails_its_request_only_after_those_before_it():
    sender = make_sender(messages=4)
    sender.on_refused(PSN + 6, WCStatus.LOC_PROT_ERR, 0)      # the second of them
    assert statuses(sender) == []
    sender.on_loss_report(loss_report(0, (PSN + 2, 3)), 0)    # nothing of the refused request goes out again
    assert drain(sender) == [(PSN + 2, 0, 2)]
    sender.on_refused(PSN + 9, WCStatus.LOC_QP_OP_ERR, 0)     # a later one changes nothing
    ack(sender, PSN + 3)
    assert statuses(sender) == []
    ack(sender, PSN + 4)
    assert statuses(sender) == [(0, WCStatus.SUCCESS), (1, WCStatus.LOC_PROT_ERR), (2, WCStatus.WR_FLUSH_ERR),
                                (3, WCStatus.WR_FLUSH_ERR)]
    assert sender.failed is WCStatus.LOC_PROT_ERR


def test_nothing_is_handed_over_behind_a_refused_descriptor():
    sender = Sender(psn=PSN, pmtu=256, probe_ns=100, timeout_ns=200, retry_cnt=2)
    for n in range(3):
        sender.post(Request(n, [(n * 10_000, 1024, 1)], n << 20, 2))
    sender.next_work()
    sender.next_work()
    sender.on_refused((PSN + 4) % (1 << 32), WCStatus.LOC_PROT_ERR, 0)
    assert not sender.has_work and sender.next_work() is None
    sender.post(Request(3, [(0, 100, 1)], 0, 2))
    ack(sender, PSN + 4)
    assert [s for _, s in statuses(sender)] == [WCStatus.SUCCESS, WCStatus.LOC_PROT_ERR, *[WCStatus.WR_FLUSH_ERR] * 2]


def test_refused_oldest_request_fails_at_once():
    sender = make_sender()
    sender.on_refused(PSN, WCStatus.LOC_QP_OP_ERR, 0)
    assert [s for _, s in statuses(sender)] == [WCStatus.LOC_QP_OP_ERR, *[WCStatus.WR_FLUSH_ERR] * 2]


def test_silence_behind_a_refused_descriptor_still_ends():
    sender = make_sender()
    sender.on_refused(PSN + 4, WCStatus.LOC_PROT_ERR, 0)
    now = 0
    while sender.failed is None:
        now = sender.deadline
        assert now is not None and now < 100_000
        sender.poll(now)
        sender.frames.clear()
    assert sender.failed is WCStatus.RETRY_EXC_ERR


def test_probe_names_what_was_sent_and_what_is_expected():
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
    sender.post(Request(0, [(0, 100, 1)], 0, 2))
    sender.next_work()
    for now in range(0, 5_000, 50):
        sender.poll(now)
    assert not sender.frames
    sender.on_transmitted(5_000)
    sender.poll(5_100)
    assert len(sender.frames) == 1


def test_silence_ends_in_retry_exceeded_and_answers_keep_alive():
    sender = make_sender()
    for now in range(0, 3_000, 10):
        sender.poll(now)
    assert statuses(sender)[0] == (0, WCStatus.RETRY_EXC_ERR) and sender.counts["probes"] == 3
    sender = make_sender()
    for now in range(0, 3_000, 10):
        sender.poll(now)
        while sender.frames:
            sender.frames.popleft()
            ack(sender, PSN, now)
    assert sender.failed is None


@pytest.mark.parametrize(("length", "pmtu"), [((1 << 31) + 1, 4096), (257 << 10, 256)])
def test_a_request_that_is_too_long_is_refused(length, pmtu):
    sender = Sender(psn=0, pmtu=pmtu, probe_ns=1, timeout_ns=1, max_outstanding=1 << 20 if pmtu == 4096 else 1024)
    with pytest.raises(ValueError, match=f"{length} bytes"):
        sender.post(Request(1, [(0, length, 1)], 0, 1))
    sender.post(Request(1, [(0, length - 1 if pmtu == 4096 else 256 << 10, 1)], 0, 1))
    assert sender.outstanding == 1


def test_outstanding_psns_are_bounded():
    sender = make_sender(messages=0, max_outstanding=10)
    for n in range(4):
        sender.post(Request(n, [(0, 4 * 256, 1)], 0, 2))
    count = len(list(iter(sender.next_work, None)))
    assert count == 2 and sender.queue.sent_psn - sender.queue.una == 8
    ack(sender, PSN + 4)
    assert sender.has_work
    with pytest.raises(ValueError, match="packets"):
        sender.post(Request(9, [(0, 11 * 256, 1)], 0, 2))


# ---------------------------------------------------------------------------------------------- timer


def test_timer():
    timer = ProgressTimer(100, 300, 1)
    assert timer.poll(10**9) is None
    timer.progress(0)
    assert timer.poll(99) is None
    assert timer.poll(100) is Expiry.PROBE
    timer.progress(150)
    assert timer.poll(249) is None and timer.poll(250) is Expiry.PROBE
    assert timer.poll(549) is None and timer.poll(550) is Expiry.PROBE and timer.poll(850) is Expiry.EXHAUSTED
    assert not timer.running


def test_answered_timer_ends_at_last():
    timer = ProgressTimer(1, 1, 0)
    timer.progress(0)
    for now in range(1, 1_000):
        expiry = timer.poll(now)
        timer.answered()
        if expiry is Expiry.EXHAUSTED:
            break
    assert expiry is Expiry.EXHAUSTED and timer.probes == ProgressTimer.STALL_FACTOR + 1


# ------------------------------------------------------------------------------------------- receiver


def known(_index, _address, _length, done):
    """A card that knows of an extent at once."""
    done()


def make_receiver(blocks=64):
    device = FunctionalDevice(EventLoop())
    pool = KnittingBuffer(device, known, extent_bytes=blocks * 64)
    return Receiver(qpn=5, generation=9, psn=PSN, pool=pool), pool


def node(receiver, *runs):
    ((_, fields),) = encode(list(runs))
    receiver.on_node(SimpleNamespace(**fields))


def event(receiver, kind, psn, base, holes, *, imm=None, rsn=0):
    receiver.on_event(
        SimpleNamespace(
            kind=kind,
            psn=psn % (1 << 32),
            base=base % (1 << 32),
            holes=holes,
            has_imm=imm is not None,
            imm=imm,
            length=1,
            va=0,
            rsn=rsn,
            reason=abi.Reason.OK,
        )
    )


def actions(receiver):
    result = list(receiver.actions)
    receiver.actions.clear()
    return result


def retire(receiver, line, open_bits=0):
    receiver.on_retire(SimpleNamespace(line=line, residue=open_bits.bit_count(), open=open_bits))


def test_node_is_linked_before_it_is_reported():
    receiver, pool = make_receiver()
    head = receiver.holes.head_block
    node(receiver, (PSN + 2, 3))
    link, report = actions(receiver)
    assert isinstance(link, LinkDoorbell) and link.nodes == 1
    assert report.opcode is wire.Opcode.LOSS_REPORT and report.rsn == 0
    assert pool.extents.read(head) == report.payload
    fields = abi.NODE.unpack(report.payload)
    assert (fields.qpn, fields.generation, fields.count, fields.rsn) == (5, 9, 3, 0)
    assert pool.check() == {"free": 62, "prelinked": 1, "linked": 1}
    assert fields.next_adjacent and fields.next_line == head + 1
    node(receiver, (PSN + 9, 1))
    assert actions(receiver)[1].rsn == 3
    assert abi.NODE.unpack(pool.extents.read(fields.next_line)).rsn == 3


def test_message_waits_for_its_holes_and_for_their_node():
    receiver, _ = make_receiver()
    event(receiver, abi.ReportKind.MESSAGE_END, PSN + 9, PSN + 10, 2)
    receiver.settle()
    assert not receiver.messages and receiver.cum == PSN  # the node of the two holes is not here yet
    node(receiver, (PSN + 4, 2))
    receiver.settle()
    assert not receiver.messages and receiver.cum == PSN + 4
    head = receiver.holes.head_block
    actions(receiver)
    retire(receiver, head)
    receiver.settle()
    assert receiver.take_message().psn == PSN + 9 and receiver.cum == PSN + 10
    receiver.acknowledge()
    doorbell, frame = actions(receiver)
    assert isinstance(doorbell, CumDoorbell) and doorbell.psn == PSN + 10
    assert (frame.opcode, frame.psn, frame.syndrome, frame.msn) == (
        wire.Opcode.ACKNOWLEDGE,
        PSN + 9,
        wire.Syndrome.ACK,
        1,
    )


def test_residue_goes_to_the_tail_under_new_rsns():
    receiver, pool = make_receiver()
    head = receiver.holes.head_block
    node(receiver, (PSN, 3), (PSN + 5, 1))
    node(receiver, (PSN + 20, 2))
    actions(receiver)
    retire(receiver, head, open_bits=0b1010)
    link, report = actions(receiver)
    assert link.nodes == 1 and report.rsn == 6
    assert node_runs(abi.NODE.unpack(report.payload), PSN) == [(PSN + 1, 1), (PSN + 5, 1)]
    assert pool.check()["linked"] == 2


def test_message_end_is_counted_once():
    receiver, _ = make_receiver()
    for _ in range(2):
        event(receiver, abi.ReportKind.MESSAGE_END, PSN, PSN + 1, 0, imm=3)
        receiver.settle()
    assert [m.imm for m in receiver.messages] == [3]


def test_probe_is_answered_with_the_state_and_the_unknown_reports():
    receiver, _ = make_receiver()
    node(receiver, (PSN, 2))
    node(receiver, (PSN + 5, 1))
    actions(receiver)
    event(receiver, abi.ReportKind.PROBE, PSN + 8, PSN + 8, 3, rsn=2)
    receiver.settle()
    receiver.acknowledge()
    frames = [a for a in actions(receiver) if isinstance(a, ControlFrame)]
    assert [(f.opcode, f.rsn) for f in frames] == [(wire.Opcode.LOSS_REPORT, 2), (wire.Opcode.ACKNOWLEDGE, 0)]
    assert frames[1].psn == PSN - 1


def test_lost_report_is_repeated_byte_for_byte():
    receiver, _ = make_receiver()
    node(receiver, (PSN, 2))
    first = actions(receiver)[1]
    receiver.on_report_request(0)
    assert [a.payload for a in actions(receiver)] == [first.payload]


def test_wrong_retirement_is_noticed():
    receiver, _ = make_receiver()
    node(receiver, (PSN, 2))
    node(receiver, (PSN + 4, 2))
    with pytest.raises(RuntimeError, match="head"):
        retire(receiver, receiver.holes.nodes[1].line)


# ------------------------------------------------------------------------------------- knitting buffer


@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_conserved_and_nobody_starves(seed):
    rng = random.Random(seed)
    device = FunctionalDevice(EventLoop())
    pool = KnittingBuffer(device, known, extent_bytes=12 * 64)
    receivers = [Receiver(qpn=n, generation=1, psn=0, pool=pool) for n in range(5)]
    receivers += [Receiver(qpn=5, generation=1, psn=0, pool=pool)]
    with pytest.raises(MemoryError):
        Receiver(qpn=6, generation=1, psn=0, pool=pool)
    at = 0
    for _ in range(400):
        r = rng.choice(receivers)
        if rng.random() < 0.6:
            at += 10
            node(r, (at, rng.randint(1, 5)))
        elif r.holes.nodes:
            head = r.holes.nodes[0]
            retire(r, head.line, rng.choice([0, 1]))
            for other in receivers:
                other.link_waiting()
        lists = [r.holes for r in receivers]
        assert all(x.nodes or not x.waits_for_blocks for x in lists), "a QP waits that has nothing to wait for"
        pool.check()
    for r in receivers:
        r.close()
    assert pool.check() == {"free": 12, "prelinked": 0, "linked": 0}


# ----------------------------------------------------------------------------------------------- holes


@pytest.mark.parametrize("seed", range(20))
def test_holes_survive_encoding_and_residue(seed):
    rng = random.Random(seed)
    psn, runs = rng.randrange(1 << 33), []
    for _ in range(rng.randint(1, 60)):
        psn += rng.choice([1, 2, 50, 5_000, 70_000])
        length = rng.choice([1, 1, 3, 40, 500])
        runs.append((psn, length))
        psn += length
    flat = [p + k for p, n in runs for k in range(n)]
    back = []
    for part, fields in encode(runs):
        abi.NODE.pack(**fields)
        assert fields["count"] <= abi.NODE_HOLES_MAX
        assert node_runs(SimpleNamespace(**fields), part[0][0]) == part
        holes = [p + k for p, n in part for k in range(n)]
        back += holes
        wanted = [h for h in holes if rng.random() < 0.5]
        bitmap = fields["encoding"] == abi.Encoding.BITMAP
        open_bits = sum(1 << (h - holes[0] if bitmap else i) for i, h in enumerate(holes) if h in wanted)
        left = [p + k for p, n in residue_runs(part, fields["encoding"], open_bits) for k in range(n)]
        assert left == wanted
    assert back == flat
