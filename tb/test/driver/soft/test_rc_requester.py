"""Requester of the RoCEv2 endpoint: acknowledgements, NAKs, credits, time-outs, and responses that it rejects."""

import pytest

from weft.driver.soft.rc.opcodes import RcOpcode as O
from weft.driver.soft.rc.packet import CREDITS, UNLIMITED, RcPacket, credit_code, credit_count
from weft.driver.soft.rc.requester import WINDOW
from weft.driver.terms.enums import MTU, QPState, SendFlags, WCStatus, WROpcode
from weft.hdl.contract import wire
from weft.hdl.contract.wire import Syndrome
from weft.tb.test.driver.soft.rc_pair import RcPair, all_good, statuses

W = WROpcode
ACK = UNLIMITED


def reply(pair, opcode=O.ACKNOWLEDGE, ahead=0, **fields):
    """Send host 0 a response for the PSN that is ``ahead`` after its oldest unacknowledged one."""
    psn = (pair.qp[0].requester.una + ahead) % (1 << 24)
    pair.inject(0, RcPacket(opcode, pair.qp[0].qp_num, psn, **{"syndrome": ACK} | fields))


def drop_frames(pair):
    """Lose all frames to host 1."""
    pair.links[0].drop = lambda frame: True


def test_ack_acknowledges_all_earlier_packets():
    pair = RcPair()
    drop_frames(pair)
    for n in range(5):
        pair.post(0, W.RDMA_WRITE, wr_id=n)
    pair.soon()
    reply(pair, ahead=2)
    assert [wc.wr_id for wc in pair.poll(0)] == [0, 1, 2]
    reply(pair, ahead=1)
    assert [wc.wr_id for wc in pair.poll(0)] == [3, 4]


def test_read_response_acknowledges_earlier_requests():
    """No separate ACK is needed (implied acknowledgement)."""
    pair = RcPair()
    pair.links[1].drop = lambda frame: pair.packet_of(frame, 1).opcode is O.ACKNOWLEDGE
    pair.post(0, W.RDMA_WRITE, wr_id=1)
    pair.post(0, W.RDMA_READ, wr_id=2)
    pair.soon()
    assert [wc.wr_id for wc in pair.poll(0)] == [1, 2]


def test_lost_packet_is_nacked_and_sender_goes_back():
    pair = RcPair(path_mtu=MTU.MTU_256)
    pair.lose(0, lambda packet: packet.opcode is O.WRITE_MIDDLE)
    pair.post(0, W.RDMA_WRITE, length=5 * 256)
    pair.soon()
    assert all_good(pair.poll(0))
    assert [p.opcode for p in pair.sent(0)][:5] == [O.WRITE_FIRST, *[O.WRITE_MIDDLE] * 3, O.WRITE_LAST]
    first = pair.sent(0)[0].psn
    assert [(p.psn - first) % (1 << 24) for p in pair.sent(0)] == [0, 1, 2, 3, 4, 1, 2, 3, 4]
    [nak] = [p for p in pair.sent(1) if p.syndrome == Syndrome.NAK_PSN_SEQUENCE]
    assert (nak.psn - first) % (1 << 24) == 1
    assert pair.ends[0].counts["sequence_naks"] == 1 and pair.ends[0].counts["timeouts"] == 0


def test_lost_tail_is_retransmitted_after_the_time_out():
    pair = RcPair(timeout=5)
    pair.lose(0, lambda packet: True)
    pair.post(0, W.RDMA_WRITE)
    assert all_good(pair.done(0, 1)) and pair.ends[0].counts["timeouts"] == 1
    assert pair.loop.now_ns == (4096 << 5) + 10_000


def test_lost_response_is_requested_from_its_gap():
    """A gap in the response is an implied NAK: the rest of the READ is requested, with its PSN and address."""
    pair = RcPair(path_mtu=MTU.MTU_256)
    pair.mr[1].write(bytes(range(256)) * 5)
    pair.lose(1, lambda packet: packet.psn == (pair.qp[0].psn + 2) % (1 << 24))
    pair.post(0, W.RDMA_READ, length=5 * 256)
    pair.soon()
    assert all_good(pair.poll(0)) and pair.mr[0].read(1280) == bytes(range(256)) * 5
    first, second = pair.sent(0)
    assert (second.psn - first.psn) % (1 << 24) == 2
    assert (second.va - first.va, second.dma_length) == (512, 768)
    assert pair.ends[0].counts["implied_naks"] == 1


def test_ack_after_an_unanswered_read_is_an_implied_nak():
    pair = RcPair()
    pair.lose(1, lambda packet: packet.opcode is O.READ_RESPONSE_ONLY)
    pair.post(0, W.RDMA_READ, wr_id=1)
    pair.post(0, W.RDMA_WRITE, wr_id=2)
    pair.soon()
    assert [wc.wr_id for wc in pair.poll(0)] == [1, 2] and pair.ends[0].counts["implied_naks"] == 1
    assert pair.ends[1].counts["duplicates"] == 2


def test_silent_peer_exhausts_the_retries():
    pair = RcPair(timeout=4, retry_cnt=3)
    drop_frames(pair)
    for n in range(3):
        pair.post(0, W.RDMA_WRITE, wr_id=n)
    assert statuses(pair.done(0, 3)) == [WCStatus.RETRY_EXC_ERR] + [WCStatus.WR_FLUSH_ERR] * 2
    assert pair.qp[0].qp_state is QPState.ERR and len(pair.sent(0)) == 4 * 3
    assert pair.loop.now_ns == 4 * (4096 << 4)


def test_timeout_zero_never_expires():
    pair = RcPair(timeout=0)
    drop_frames(pair)
    pair.post(0, W.RDMA_WRITE)
    assert not pair.run(lambda: len(pair.cq[0]), 10**12) and len(pair.frames) == 1


def test_progress_restarts_the_count_of_retries():
    pair = RcPair(timeout=4, retry_cnt=1, path_mtu=MTU.MTU_256)
    pair.lose(0, lambda packet: packet.ack_req)
    for n in range(10):
        pair.post(0, W.RDMA_WRITE, wr_id=n)
        assert all_good(pair.done(0, 1))
    assert pair.ends[0].counts["timeouts"] == 10


@pytest.mark.parametrize(("syndrome", "status"), [
    (Syndrome.NAK_INVALID_REQUEST, WCStatus.REM_INV_REQ_ERR),
    (Syndrome.NAK_REMOTE_ACCESS, WCStatus.REM_ACCESS_ERR),
    (Syndrome.NAK_REMOTE_OPERATIONAL, WCStatus.REM_OP_ERR)])
def test_nak_fails_its_request_and_flushes_the_rest(syndrome, status):
    pair = RcPair()
    drop_frames(pair)
    for n in range(4):
        pair.post(0, W.RDMA_WRITE, wr_id=n)
    pair.soon()
    reply(pair, ahead=1, syndrome=syndrome)
    assert statuses(pair.poll(0)) == [WCStatus.SUCCESS, status] + [WCStatus.WR_FLUSH_ERR] * 2
    assert pair.qp[0].qp_state is QPState.ERR
    pair.post(0, W.RDMA_WRITE, wr_id=9)
    assert statuses(pair.poll(0)) == [WCStatus.WR_FLUSH_ERR]


def test_rnr_nak_waits_and_tries_again():
    pair = RcPair(min_rnr_timer=10, end_to_end_credits=False)    # 0.32 ms: 10 µs · 32
    pair.post(0, W.SEND)
    pair.run(limit_ns=200_000)
    assert pair.ends[0].counts["rnr_naks"] == 1 and len(pair.sent(0)) == 1
    pair.post_recv(1)
    assert all_good(pair.done(0, 1)) and pair.loop.now_ns == 320_000 + 20_000 and len(pair.poll(1)) == 1


def test_rnr_retries_are_limited():
    pair = RcPair(rnr_retry=2, end_to_end_credits=False)
    pair.post(0, W.SEND)
    assert statuses(pair.done(0, 1)) == [WCStatus.RNR_RETRY_EXC_ERR] and pair.ends[0].counts["rnr_naks"] == 3


def test_credit_codes_are_those_of_the_standard():
    assert [CREDITS[code] for code in (0, 1, 4, 5, 6, 30)] == [0, 1, 4, 6, 8, 32768] and len(CREDITS) == 31
    for count in (*range(100), 32768, 10**6):
        code = credit_code(count)
        assert CREDITS[code] <= count and (code == 30 or CREDITS[code + 1] > count)
    assert credit_count(UNLIMITED) is None and credit_count(5) == 6


@pytest.mark.parametrize("credits", [False, True])
def test_missing_credits_delay_sends(credits):
    """With credits, one packet probes a peer that may have no receive.

    Without credits, all waiting packets do so each time.
    """
    pair = RcPair(end_to_end_credits=credits, min_rnr_timer=1)
    for n in range(40):
        pair.post(0, W.SEND, length=10, wr_id=n)
    for n in range(40):
        pair.post_recv(1, wr_id=n)
        pair.run(limit_ns=40_000)
    assert all_good(pair.poll(0)) and [wc.wr_id for wc in pair.poll(1)] == list(range(40))
    assert pair.ends[1].counts["rnr_naks_sent"]
    early = pair.ends[1].counts["early_packets"]
    assert early == 38 if credits else early > 500, "38: before anything was known"


def test_credits_arrive_with_any_ack_and_never_decrease():
    """Credits arrive without a request and for no packet; values that are outdated or in the future have no effect."""
    pair = RcPair()
    drop_frames(pair)
    for n in range(4):
        pair.post(0, W.RDMA_WRITE, wr_id=n)
    pair.soon()
    limits = []
    for ahead, msn, count in ((-1, 0, 3), (1, 2, 0), (-1, 1, 8), (-1, 5, 8), (-1, 2, 4)):
        reply(pair, ahead=ahead, msn=msn, syndrome=credit_code(count))
        limits.append(pair.qp[0].requester._limit)
    assert limits == [3, 2, 2, 2, 6] and not pair.ends[0].counts["ghost_responses"] and len(pair.poll(0)) == 2


def test_waiting_for_a_receiver_is_no_time_out():
    pair = RcPair(timeout=4, retry_cnt=1, min_rnr_timer=20, end_to_end_credits=False)   # 65 µs; RNR timer 10 ms
    pair.post(0, W.SEND)
    pair.run(limit_ns=9_000_000)
    assert pair.ends[0].counts["rnr_naks"] == 1 and not pair.ends[0].counts["timeouts"]
    pair.post_recv(1)
    assert all_good(pair.done(0, 1))


def test_sequence_nak_after_an_rnr_nak_changes_nothing():
    """Linux sends one for the packets after the one that must wait."""
    pair = RcPair(retry_cnt=0)
    drop_frames(pair)
    for n in range(3):
        pair.post(0, W.SEND, wr_id=n)
    pair.soon()
    reply(pair, syndrome=Syndrome.RNR_NAK | 1)
    reply(pair, syndrome=Syndrome.NAK_PSN_SEQUENCE)
    assert len(pair.frames) == 3 and not pair.poll(0) and not pair.ends[0].counts["sequence_naks"]
    pair.run(limit_ns=10_000)
    assert len(pair.frames) == 6
    reply(pair, ahead=2)
    assert all_good(pair.poll(0))


def test_long_message_requests_intermediate_acknowledgements():
    pair = RcPair(path_mtu=MTU.MTU_256)
    pair.post(0, W.RDMA_WRITE, length=100 * 256)
    assert all_good(pair.done(0, 1))
    asked = [n for n, packet in enumerate(pair.sent(0)) if packet.ack_req]
    assert 7 <= len(asked) <= 8 and asked[-1] == 99
    assert all(b - a <= 16 for a, b in zip([-1, *asked], asked, strict=False))


def test_persistent_gap_is_requested_again_after_a_time_out():
    pair = RcPair(path_mtu=MTU.MTU_256, timeout=4)
    drop_frames(pair)
    pair.post(0, W.RDMA_READ, length=600)
    pair.soon()
    sent = [len(pair.frames)]
    for _ in range(2):
        for _ in range(3):
            reply(pair, O.READ_RESPONSE_MIDDLE, 1, payload=bytes(256))
        sent.append(len(pair.frames))
        pair.run(limit_ns=70_000)
        sent.append(len(pair.frames))
    assert sent == [2, 3, 4, 5, 6] and pair.ends[0].counts["implied_naks"] == 2


def test_writes_need_no_credits():
    pair = RcPair(min_rnr_timer=20)
    pair.post_recv(1)
    pair.post(0, W.SEND, length=1)
    assert all_good(pair.done(0, 1)) and pair.qp[0].requester._limit == 1
    for n in range(20):
        pair.post(0, W.RDMA_WRITE, wr_id=n)
    pair.soon()
    assert len(pair.poll(0)) == 20


def test_window_and_reads_are_bounded():
    pair = RcPair(max_rd_atomic=3, path_mtu=MTU.MTU_256, caps={"max_send_wr": 500})
    drop_frames(pair)
    for n in range(200):
        pair.post(0, W.RDMA_WRITE, length=1, wr_id=n)
    pair.soon()
    assert len(pair.frames) == WINDOW
    assert any(not p.ack_req for p in pair.sent(0)) is False, "each ends a message and asks for an ACK"
    other = RcPair(max_rd_atomic=3)
    drop_frames(other)
    for n in range(9):
        other.post(0, W.RDMA_READ if n % 2 else W.ATOMIC_FETCH_AND_ADD, wr_id=n)
    other.soon()
    assert len(other.frames) == 3


def test_fence_waits_for_reads():
    pair = RcPair()
    drop_frames(pair)
    pair.post(0, W.RDMA_READ)
    pair.post(0, W.RDMA_WRITE, wr_id=2, flags=SendFlags.FENCE | SendFlags.SIGNALED)
    pair.soon()
    assert [p.opcode for p in pair.sent(0)] == [O.READ_REQUEST]
    reply(pair, O.READ_RESPONSE_ONLY, payload=bytes(64))
    pair.soon()
    assert [p.opcode for p in pair.sent(0)] == [O.READ_REQUEST, O.WRITE_ONLY]


def test_send_queue_has_a_limit():
    pair = RcPair(caps={"max_send_wr": 3, "max_recv_wr": 2})
    for _ in range(3):
        pair.post(0, W.RDMA_WRITE)
    with pytest.raises(BufferError, match="3 send requests"):
        pair.post(0, W.RDMA_WRITE)
    pair.post_recv(0)
    pair.post_recv(0)
    with pytest.raises(BufferError, match="2 receive requests"):
        pair.post_recv(0)


def test_local_memory_is_checked_when_it_is_used():
    pair = RcPair()
    pair.post(0, W.RDMA_WRITE, wr_id=1)
    pair.post(0, W.RDMA_WRITE, at=pair.mr[0].length - 63, wr_id=2)
    pair.post(0, W.RDMA_WRITE, wr_id=3)
    assert statuses(pair.done(0, 3)) == [WCStatus.SUCCESS, WCStatus.LOC_PROT_ERR, WCStatus.WR_FLUSH_ERR]
    other = RcPair()
    other.post(0, W.RDMA_READ)
    other.qp[0].process(0)
    other.hosts[0].run()
    other.mr[0].close()
    assert statuses(other.done(0, 1)) == [WCStatus.LOC_PROT_ERR]


@pytest.mark.parametrize(("opcode", "ahead", "fields", "counter"), [
    (O.ACKNOWLEDGE, 3, {}, "ghost_responses"),                       # never sent
    (O.ACKNOWLEDGE, -2, {}, "ghost_responses"),                      # acknowledged before
    (O.ACKNOWLEDGE, 1 << 22, {}, "ghost_responses"),
    (O.ACKNOWLEDGE, -1, {"syndrome": 0x62}, "ghost_responses"),
    (O.ACKNOWLEDGE, 0, {"syndrome": 0x64}, "wrong_responses"),       # reserved codes
    (O.ACKNOWLEDGE, 0, {"syndrome": 0x7F}, "wrong_responses"),
    (O.ACKNOWLEDGE, 0, {"syndrome": 0x40}, "wrong_responses"),
    (O.READ_RESPONSE_ONLY, 0, {"payload": bytes(64)}, "wrong_responses"),   # the request is a WRITE
    (O.ATOMIC_ACKNOWLEDGE, 0, {}, "wrong_responses"),
    (O.READ_RESPONSE_ONLY, 9, {"payload": bytes(64)}, "ghost_responses"),
    (O.ATOMIC_ACKNOWLEDGE, -1, {}, "ghost_responses"),
])
def test_response_without_a_request_is_counted_and_dropped(opcode, ahead, fields, counter):
    pair = RcPair()
    drop_frames(pair)
    pair.post(0, W.RDMA_WRITE)
    pair.soon()
    reply(pair, opcode, ahead, **fields)
    assert pair.ends[0].counts[counter] == 1 and not pair.poll(0) and len(pair.frames) == 1
    reply(pair)
    assert all_good(pair.poll(0))


@pytest.mark.parametrize(("opcode", "size"), [
    (O.READ_RESPONSE_ONLY, 63), (O.READ_RESPONSE_ONLY, 65), (O.READ_RESPONSE_FIRST, 64), (O.READ_RESPONSE_MIDDLE, 64),
    (O.READ_RESPONSE_ONLY, 0), (O.ATOMIC_ACKNOWLEDGE, 0)])
def test_response_of_another_kind_than_requested_is_dropped(opcode, size):
    pair = RcPair()
    drop_frames(pair)
    pair.post(0, W.RDMA_READ, length=64)
    pair.soon()
    reply(pair, opcode, payload=b"x" * size)
    assert pair.ends[0].counts["wrong_responses"] == 1 and not any(pair.mr[0].view) and not pair.poll(0)
    reply(pair, O.READ_RESPONSE_LAST, payload=b"x" * 64)
    assert all_good(pair.poll(0))


def test_repeated_naks_go_back_once():
    pair = RcPair(retry_cnt=2)
    drop_frames(pair)
    for n in range(3):
        pair.post(0, W.RDMA_WRITE, wr_id=n)
    pair.soon()
    for _ in range(20):
        reply(pair, syndrome=Syndrome.NAK_PSN_SEQUENCE)
    assert len(pair.sent(0)) == 6 and pair.ends[0].counts["sequence_naks"] == 1 and not pair.poll(0)


@pytest.mark.parametrize("way", [0, 1], ids=("requests", "answers"))
def test_a_cut_path_is_left(way):
    """Frames with the ports of the first path of one host are lost from some time on."""
    pair = RcPair(timeout=8, retry_cnt=7)
    pair.post(0, WROpcode.RDMA_WRITE)
    assert all_good(pair.done(0, 1))
    port = pair.qp[way]._to.sport
    pair.links[way].drop = lambda frame: path_of(frame) == port & 1
    pair.post(0, WROpcode.RDMA_WRITE)
    assert all_good(pair.done(0, 1))
    assert 1 <= pair.ends[way].counts["path_changes"] <= 7
    pair.links[way].drop = lambda frame: True
    pair.post(0, WROpcode.RDMA_WRITE)
    assert statuses(pair.done(0, 1)) == [WCStatus.RETRY_EXC_ERR]


def test_a_path_is_kept_if_it_must_be():
    pair = RcPair(timeout=8, retry_cnt=7, path_search=False)
    pair.links[0].drop = lambda frame: True
    pair.post(0, WROpcode.RDMA_WRITE)
    assert statuses(pair.done(0, 1)) == [WCStatus.RETRY_EXC_ERR] and not pair.ends[0].counts["path_changes"]


def path_of(frame):
    """Return the path, 0 or 1, that the UDP source port of a frame selects."""
    return frame[wire.ETH.size_bytes + wire.IPV4.size_bytes + 1] & 1
