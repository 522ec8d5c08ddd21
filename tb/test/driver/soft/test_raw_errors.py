"""Error table of the document, row by row, each row with its detection and its recovery."""

import pytest

from weft.driver.soft.raw.packet import NackReason, Opcode, Packet, build, parse
from weft.driver.soft.raw.qp import MAX_INFLIGHT, MAX_NOT_READY, MAX_RETRIES, State
from weft.driver.terms.enums import AccessFlag, WCStatus
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.raw_pair import RawPair, all_good, statuses


def damage(frame, at=-1):
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at:][1:]


def lose(pair, *numbers):
    """Lose the frames of host 0 with these numbers."""
    count = iter(range(10**6))
    pair.links[0].drop = lambda frame: next(count) in numbers


# --------------------------------------------------------------------------------------- packet loss


def test_lost_packet_is_retransmitted():
    pair = RawPair()
    pair.fill(0, b"lost and found")
    lose(pair, 0)
    pair.post(0, length=14)
    assert all_good(pair.done(0, 1)) and bytes(pair.mr[1].data[:14]) == b"lost and found"
    assert pair.loop.now_ns == 1_000_000 + 10_000, "after one time-out and one round trip"
    assert (pair.ends[0].counts["timeouts"], pair.ends[0].counts["retransmissions"]) == (1, 1)


def test_duplicate_after_a_lost_ack_is_acknowledged_and_not_executed():
    pair = RawPair()
    pair.links[1].drop = lambda frame: pair.loop.now_ns < 500_000
    pair.fill(0, b"once")
    pair.post(0, length=4)
    pair.soon()
    pair.fill(1, b"mine")
    assert all_good(pair.done(0, 1)) and bytes(pair.mr[1].data[:4]) == b"mine", "the duplicate was not written"
    assert pair.ends[1].counts["duplicates"] == 1 and len(pair.poll(1)) == 1


def test_timeouts_follow_the_inflight_table():
    """Only unanswered packets are sent again, each after its time-out."""
    pair = RawPair(timeout_ns=2_000_000)
    lose(pair, 1, 3)
    for n in range(5):
        pair.post(0, length=10, wr_id=n)
    pair.run(limit_ns=1_000_000)
    assert [(entry.seq, entry.send_time) for entry in pair.state(0).inflight.values()] == [(n, 0) for n in range(1, 5)]
    assert pair.ends[0].rdma_process(pair.loop.now_ns) == 2_000_000
    assert [c.wr_id for c in pair.done(0, 5)] == list(range(5))
    assert [packet.seq for packet in pair.sent(0)][5:] == [1, 2, 3, 4]


def test_silent_peer_causes_an_error():
    pair = RawPair()
    lose(pair, *range(1000))
    for n in range(3):
        pair.post(0, wr_id=n)
    done = pair.done(0, 3)
    assert statuses(done) == [WCStatus.RETRY_EXC_ERR, WCStatus.WR_FLUSH_ERR, WCStatus.WR_FLUSH_ERR]
    assert pair.state(0).state is State.ERROR and len(pair.sent(0)) == 3 * (MAX_RETRIES + 1)
    assert pair.loop.now_ns == (MAX_RETRIES + 1) * 1_000_000


# ------------------------------------------------------------------------------------ checksum error


def test_damaged_packet_is_dropped_and_nacked():
    """The packet is sent again at once, before the time-out."""
    pair = RawPair()
    pair.fill(0, bytes(range(100)))
    lose(pair, 0)
    pair.post(0, length=100)
    pair.soon()
    pair.inject(1, damage(pair.frames[0][1]))
    assert not any(pair.mr[1].data) and pair.ends[1].counts["checksum"] == 1
    assert all_good(pair.done(0, 1)) and pair.loop.now_ns < 1_000_000
    [nack, _ack] = pair.sent(1)
    assert (nack.opcode, nack.flags, nack.seq) == (Opcode.NACK, NackReason.CHECKSUM, 0)
    assert pair.ends[0].counts["retransmissions"] == 1 and not pair.ends[0].counts["timeouts"]


def test_damaged_answer_is_dropped():
    pair = RawPair()
    pair.links[1].drop = lambda frame: pair.loop.now_ns < 500_000
    pair.post(0, Opcode.READ)
    pair.soon()
    pair.inject(0, damage(pair.frames[1][1]))
    pair.inject(0, damage(build(Packet(Opcode.PONG, MACS[0], MACS[1])), 20))
    assert pair.ends[0].counts["checksum"] == 2 and not pair.poll(0) and len(pair.frames) == 2
    assert all_good(pair.done(0, 1))


def test_nacks_cause_a_bounded_number_of_retransmissions():
    pair = RawPair()
    lose(pair, *range(1000))
    pair.post(0)
    pair.soon()
    nack = build(Packet(Opcode.NACK, MACS[0], MACS[1], flags=NackReason.CHECKSUM, seq=0))
    for _ in range(50):
        pair.inject(0, nack)
    assert len(pair.sent(0)) == MAX_RETRIES + 1 and statuses(pair.poll(0)) == [WCStatus.RETRY_EXC_ERR]


# ---------------------------------------------------------------------------------------- invalid MR


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.READ])
@pytest.mark.parametrize(("wrong", "reason"), [
    ({"remote_mr_id": 77}, NackReason.INVALID_MR),
    ({"remote_key": 0}, NackReason.ACCESS),
    ({"remote_addr": 4096 - 63}, NackReason.BOUNDS),
    ({"remote_addr": (1 << 64) - 64}, NackReason.BOUNDS),
])
def test_invalid_mr_is_an_error_completion(opcode, wrong, reason):
    """The peer rejects the request, which fails; earlier requests are executed, later ones are flushed."""
    pair = RawPair(size=4096)
    pair.fill(0, b"x" * 4096)
    pair.post(0, Opcode.WRITE, length=10, wr_id=1)
    pair.post(0, opcode, wr_id=2, **wrong)
    pair.post(0, Opcode.WRITE, length=10, to=2000, wr_id=3)
    done = pair.done(0, 3)
    assert [(c.wr_id, c.status) for c in done] == [
        (1, WCStatus.SUCCESS), (2, WCStatus.REM_ACCESS_ERR), (3, WCStatus.WR_FLUSH_ERR)]
    assert [c.byte_len for c in done] == [10, 0, 0] and pair.state(0).state is State.ERROR
    assert [p.flags for p in pair.sent(1, Opcode.NACK)] == [reason]
    assert pair.ends[1].counts[f"nack_{reason.name.lower()}"] == 1
    assert bytes(pair.mr[1].data) == b"x" * 10 + bytes(4086)


@pytest.mark.parametrize(("opcode", "access"), [
    (Opcode.WRITE, AccessFlag.REMOTE_READ), (Opcode.READ, AccessFlag.REMOTE_WRITE)])
def test_access_without_permission_is_rejected(opcode, access):
    pair = RawPair()
    pair.mr[1].access = access
    pair.post(0, opcode)
    assert statuses(pair.done(0, 1)) == [WCStatus.REM_ACCESS_ERR]
    assert pair.ends[1].counts["nack_access"] == 1 and not pair.poll(1)


@pytest.mark.parametrize("wrong", [{"local_mr_id": 77}, {"local_offset": 4090}, {"length": 4097}])
def test_invalid_local_mr_is_an_error_completion(wrong):
    pair = RawPair(size=4096)
    pair.post(0, wr_id=1)
    pair.post(0, wr_id=2, **wrong)
    pair.post(0, wr_id=3)
    assert statuses(pair.done(0, 3)) == [WCStatus.SUCCESS, WCStatus.LOC_PROT_ERR, WCStatus.WR_FLUSH_ERR]
    assert len(pair.sent(0)) == 1


def test_failure_waits_for_earlier_requests():
    """The NAK arrives before the response to an earlier READ, which was lost; the READ still succeeds."""
    pair = RawPair()
    pair.fill(1, b"before")
    pair.links[1].drop = lambda frame: parse(frame).opcode is Opcode.READ_RESP and pair.loop.now_ns < 500_000
    pair.post(0, Opcode.READ, length=6, wr_id=1)
    pair.post(0, remote_key=0, wr_id=2)
    pair.soon()
    assert pair.ends[1].counts["nack_access"] and not pair.poll(0)
    assert statuses(pair.done(0, 2)) == [WCStatus.SUCCESS, WCStatus.REM_ACCESS_ERR]
    assert bytes(pair.mr[0].data[:6]) == b"before"


# ----------------------------------------------------------------- out of memory, transmit queue full


def test_out_of_memory_is_flow_control():
    """Early frames fill half of the buffers; the other frames are rejected and repeated later."""
    pair = RawPair(buffers=8)
    lose(pair, 0)
    data = bytes(range(200))
    pair.fill(0, data)
    for n in range(20):
        assert pair.post(0, length=10, at=10 * n, to=10 * n, wr_id=n) == 0
    done = pair.done(0, 20)
    assert all_good(done) and [c.wr_id for c in done] == list(range(20)) and bytes(pair.mr[1].data[:200]) == data
    assert pair.ends[1].counts["nack_no_memory"] > 3 and pair.ends[1].buffers.used == 0
    assert pair.ends[0].buffers.used == 0


def test_sender_without_buffers_waits():
    pair = RawPair(buffers=2, tx_queue=64)
    for n in range(10):
        pair.post(0, wr_id=n)
    assert pair.ends[0].rdma_process(0) is None and len(pair.state(0).inflight) == 2
    assert pair.ends[0].counts["out_of_memory"] == 1 and len(pair.state(0).sq) == 7
    assert all_good(pair.done(0, 10))


def test_peer_that_is_never_ready_causes_an_error():
    pair = RawPair()
    pair.ends[1].rdma_qp_destroy(pair.qp[1][0])
    pair.qp[1] = [pair.ends[1].rdma_qp_create(cq_size=1)]
    pair.ends[1].rdma_qp_connect(pair.qp[1][0], MACS[0], pair.qp[0][0])
    pair.ends[0].qps.get(0).remote_qp_num = pair.qp[1][0]
    pair.post(0, wr_id=1)
    pair.post(0, wr_id=2)
    done = pair.done(0, 2)
    assert statuses(done) == [WCStatus.SUCCESS, WCStatus.RNR_RETRY_EXC_ERR]
    assert pair.ends[1].counts["cq_full"] == MAX_NOT_READY + 1


def test_full_transmit_queue_is_backpressure():
    """Requests wait, replies still find space, and no frame is lost."""
    pair = RawPair(tx_queue=8)
    end = pair.ends[0]
    for n in range(20):
        pair.post(0, length=10, wr_id=n)
    assert end.rdma_process(0) is None and len(end.transmit) == 6 and end.counts["tx_queue_full"] == 1
    assert len(pair.state(0).inflight) == 6, "a packet that found no place has no sequence number"
    end.rdma_rx(build(Packet(Opcode.PING, MACS[0], MACS[1])), 0)
    assert len(end.transmit) == 7, "replies have separate places"
    assert all_good(pair.done(0, 20))
    assert not pair.ends[0].counts["retransmissions"]


def test_port_without_space_holds_the_frames():
    """While the NIC takes nothing, time-outs do not make the queue grow; afterwards everything is sent."""
    pair = RawPair(tx_queue=8)
    pair.hosts[0].port.space = 0
    for n in range(20):
        pair.post(0, length=10, wr_id=n)
    pair.run(limit_ns=20_000_000)
    assert not pair.frames and len(pair.ends[0].transmit) == 6 and not pair.poll(0)
    pair.hosts[0].port.space = 3
    assert all_good(pair.done(0, 20))


def test_replies_without_a_buffer_are_requested_again():
    pair = RawPair(tx_queue=4)
    pair.hosts[1].port.space = 0
    for n in range(20):
        pair.post(0, length=10, wr_id=n)
    pair.soon()
    assert len(pair.ends[1].transmit) == 4 and pair.ends[1].counts["tx_queue_full"]
    pair.hosts[1].port.space = 1
    assert all_good(pair.done(0, 20)) and len(pair.poll(1)) == 20


def test_window_is_bounded_by_the_oldest_unanswered_packet():
    """A lost ACK limits the window, so that the peer recognizes the repeated packet as a duplicate."""
    pair = RawPair()
    pair.links[1].drop = lambda frame: parse(frame).seq == 0 and pair.loop.now_ns < 3_500_000
    for n in range(60):
        pair.post(0, length=1, wr_id=n)
    pair.soon()
    assert pair.state(0).tx_seq == MAX_INFLIGHT and list(pair.state(0).inflight) == [0]
    assert [c.wr_id for c in pair.done(0, 60)] == list(range(60))
    assert not pair.ends[1].counts["far_sequence_numbers"]
