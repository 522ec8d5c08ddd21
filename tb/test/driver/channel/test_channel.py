"""Channels over a connection in memory, message by message."""

import pytest

from weft.driver.channel.capacities import Capacities
from weft.driver.channel.channel import Channel, memory_bytes
from weft.driver.channel.credits import pack_ack
from weft.driver.channel.lanes import ChannelError, PeerError
from weft.driver.terms.enums import WCOpcode, WCStatus, WROpcode
from weft.driver.terms.wc import WC
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.test.driver.channel.connection import connected

BYTES = 16
EXTRA = 64      # bytes of the MR after those of the channel
SMALL = Capacities(2, 2, max_read_wr=1, max_write_wr=2)


def pair(capacities=SMALL):
    """Return (channels, qps) of both ends."""
    qps = connected(capacities, memory_bytes(capacities, BYTES) + EXTRA)
    return [Channel(qp, qp.cq, qp.mr, capacities, message_bytes=BYTES) for qp in qps], qps


def settle(channels, qps):
    """Run until nothing is in flight and everything is polled."""
    while any(qp.moves or len(qp.cq) for qp in qps):
        for qp in qps:
            for move in qp.moves:
                move()
        for channel in channels:
            channel.progress()


def received(channel):
    return list(iter(channel.recv, None))


def test_messages_arrive_complete_and_in_order():
    (a, b), qps = pair()
    messages = [b"", b"x", b"y" * BYTES, bytearray(b"z"), memoryview(b"last")]
    for message in messages:
        a.send(message)
    assert a.waiting == 3 and received(b) == []
    settle((a, b), qps)
    assert received(b) == [bytes(message) for message in messages]
    assert a.waiting == 0 and received(a) == []


def test_message_is_copied_when_it_is_sent():
    (a, b), qps = pair()
    buffer = bytearray(b"before")
    for _ in range(4):
        a.send(buffer)
    buffer[:] = b"behind"
    settle((a, b), qps)
    assert received(b) == [b"before"] * 4


def test_oversized_message_is_rejected():
    (a, _), qps = pair()
    with pytest.raises(ValueError, match="a message of 17 bytes; up to 16 are possible"):
        a.send(bytes(BYTES + 1))
    assert not qps[0].posted and not a.waiting
    with pytest.raises(ValueError, match=f"the MR has 96 bytes; {6 * 17} are needed"):
        Channel(qps[0], qps[0].cq, connected(SMALL, 96)[0].mr, SMALL, message_bytes=17)
    with pytest.raises(ValueError, match="message_bytes is 0"):
        Channel(qps[0], qps[0].cq, qps[0].mr, SMALL, message_bytes=0)


def one_sided(qps, opcode, wr_id, text_at=0):
    """Return a work request of end 0 between the extra memory of both ends."""
    mine, peers = (qp.mr for qp in qps)
    extra = memory_bytes(SMALL, BYTES)
    wr = SendWR(wr_id=wr_id, num_sge=1, sg=[SGE(mine.buf + extra + text_at, 8, mine.lkey)], opcode=opcode, send_flags=0)
    wr.set_wr_rdma(peers.rkey, peers.buf + extra + text_at)
    return wr


def test_reads_and_writes_have_separate_capacities():
    (a, b), qps = pair()
    extra = memory_bytes(SMALL, BYTES)
    qps[0].mr.write(b"my eight", offset=extra)
    qps[1].mr.write(b"the peer", offset=extra + 8)
    write = one_sided(qps, WROpcode.RDMA_WRITE, 7)
    reads = [one_sided(qps, WROpcode.RDMA_READ, wr_id, 8) for wr_id in (8, 9)]
    for wr in (write, *reads):
        a.post(wr)
    assert a.waiting == 1 and (write.wr_id, write.send_flags) == (7, 0), "the request stays as it was given"
    a.send(b"message")
    settle((a, b), qps)
    assert [(wc.wr_id, wc.opcode) for wc in a.completions] == [
        (7, WCOpcode.RDMA_WRITE), (8, WCOpcode.RDMA_READ), (9, WCOpcode.RDMA_READ)]
    assert qps[1].mr.read(8, extra) == b"my eight" and qps[0].mr.read(8, extra + 8) == b"the peer"
    assert received(b) == [b"message"]


@pytest.mark.parametrize("opcode", [WROpcode.SEND, WROpcode.SEND_WITH_IMM, WROpcode.RDMA_WRITE_WITH_IMM])
def test_requests_that_take_a_receive_use_send_only(opcode):
    (a, _), qps = pair()
    with pytest.raises(ValueError, match="would take a receive"):
        a.post(one_sided(qps, opcode, 1))


def test_messages_before_a_failure_can_be_received():
    (a, b), qps = pair()
    for message in (b"one", b"two", b"three"):
        a.send(message)
    qps[0].deliver()
    for qp in qps:
        qp.fail()
    assert b.recv() == b"one"
    for _ in range(2):
        with pytest.raises(ChannelError, match="WR_FLUSH_ERR"):
            b.recv()
    with pytest.raises(ChannelError, match="WR_FLUSH_ERR"):
        a.progress()
    with pytest.raises(ChannelError, match="WR_FLUSH_ERR"):
        a.send(b"four")
    assert not a.waiting and not a.credits.counts["peer_errors"]


def test_failed_read_is_reported_to_its_caller():
    (a, _), qps = pair()
    a.post(one_sided(qps, WROpcode.RDMA_READ, 5))
    qps[0].fail()
    with pytest.raises(ChannelError, match="WR_FLUSH_ERR"):
        a.progress()
    assert [(wc.wr_id, wc.status) for wc in a.completions] == [(5, WCStatus.WR_FLUSH_ERR)]


def test_rejected_post_ends_the_channel():
    (a, _), qps = pair()
    qps[0].failed = True
    for _ in range(2):
        with pytest.raises(ChannelError, match="refused: the QP is in error"):
            a.send(b"message")


@pytest.mark.parametrize(("imm", "length", "message"), [
    (pack_ack(1, 0), 0, "acknowledged 1 messages; 0 were outstanding"),
    (pack_ack(0, 1), 0, "acknowledged 1 acknowledgements; 0"),
    (0, 0, "acknowledged nothing"),
    (0, 4, "both a message and an acknowledgement"),
])
def test_invalid_message_of_the_peer_ends_the_channel(imm, length, message):
    (_, b), (hostile, qp) = pair()
    hostile.post_send(SendWR(opcode=WROpcode.SEND_WITH_IMM, sg=[SGE(hostile.mr.buf, length, hostile.mr.lkey)],
                             imm_data=imm))
    hostile.deliver()
    with pytest.raises(PeerError, match=message):
        b.recv()
    with pytest.raises(ChannelError, match=message):
        b.send(b"message")
    assert b.credits.counts["peer_errors"] == 1 and not qp.posted


class TestConnection:
    """The connection in memory detects every violation of the verbs."""

    def test_a_send_without_receive(self):
        qp, _ = connected(SMALL, 64)
        qp.post_send(SendWR(opcode=WROpcode.SEND))
        with pytest.raises(AssertionError, match="receiver not ready"):
            qp.deliver()

    def test_too_many_requests(self):
        qp, _ = connected(SMALL, 64)
        for subject, most, post, wr in (
                ("send", SMALL.max_send_wr, qp.post_send, SendWR(opcode=WROpcode.SEND)),
                ("receive", SMALL.max_recv_wr, qp.post_recv, RecvWR(num_sge=1, sg=[SGE(qp.mr.buf, 1, qp.mr.lkey)]))):
            for _ in range(most):
                post(wr)
            with pytest.raises(AssertionError, match=f"{subject} queue is full"):
                post(wr)

    def test_too_many_completions(self):
        qp, _ = connected(SMALL, 64)
        wc = WC(0, WCStatus.SUCCESS, WCOpcode.SEND, qp_num=1)
        for _ in range(SMALL.max_cqe):
            qp.cq.push(wc)
        with pytest.raises(AssertionError, match="CQ overflow"):
            qp.cq.push(wc)

    def test_memory_changes_before_completion(self):
        _, (qp, peer) = pair()
        qp.post_send(SendWR(opcode=WROpcode.SEND, sg=[SGE(qp.mr.buf, 4, qp.mr.lkey)]))
        qp.deliver()
        qp.mr.write(b"anew")
        with pytest.raises(AssertionError, match="was changed before it completed"):
            qp.complete()
        assert len(peer.cq) == 1
