"""Regions, queue pairs, states, connections and inquiries of the document's protocol."""

import errno
import itertools

import pytest

from weft.driver.soft.raw.endpoint import Endpoint
from weft.driver.soft.raw.inquiry import DISCOVER_TRIES
from weft.driver.soft.raw.packet import BROADCAST, Opcode, Packet, build
from weft.driver.soft.raw.qp import Mode, State, WorkRequest
from weft.driver.terms.enums import AccessFlag, WCStatus
from weft.model.link import LinkConfig
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.raw_pair import RawPair, all_good, statuses


def test_region_has_an_id_and_a_key_and_ends_when_unused():
    pair = RawPair(max_mr=3)
    end = pair.ends[0]
    memory = bytearray(100)
    one = end.rdma_reg_mr(memory, AccessFlag.REMOTE_READ)
    region = end.regions.get(one)
    assert region.key and region.key != pair.mr[0].key and region.vaddr != pair.mr[0].vaddr
    region.data[3] = 7
    assert memory[3] == 7, "registered memory is the caller's, not a copy"
    with pytest.raises(BufferError):
        memory.append(1)
    assert end.rdma_reg_mr(10) >= 0 and end.rdma_reg_mr(10) == -errno.ENOMEM
    assert end.rdma_reg_mr(bytes(10)) == -errno.EINVAL
    pair.post(0, local_mr_id=one)
    end.rdma_process(0)
    assert end.rdma_dereg_mr(one) == -errno.EBUSY
    assert all_good(pair.done(0, 1))
    assert end.rdma_dereg_mr(one) == 0 and end.rdma_dereg_mr(one) == -errno.EINVAL
    assert len(end.regions) == 2


def test_queue_pairs_are_numbered_and_limited():
    end = Endpoint(1, max_qp=2)
    a, b = end.rdma_qp_create(), end.rdma_qp_create()
    assert a != b and end.rdma_qp_create() == -errno.ENOMEM
    assert end.rdma_qp_destroy(a) == 0
    assert end.rdma_qp_destroy(a) == end.rdma_poll_cq(a) == end.rdma_post_send(a, WorkRequest()) == -errno.EINVAL
    assert end.rdma_qp_connect(a, 1, 1) == -errno.EINVAL
    assert end.rdma_qp_create() >= 0


def test_completion_queue_is_never_overwritten():
    """Local requests reserve their completions; a WRITE of the peer waits for space in the queue."""
    pair = RawPair(connected=False)
    a, b = pair.ends[0].rdma_qp_create(cq_size=2, sq_size=5), pair.qp[1][0]
    pair.qp[0] = [a]
    pair.ends[0].rdma_qp_connect(a, MACS[1], b)
    pair.ends[1].rdma_qp_connect(b, MACS[0], a)
    assert [pair.post(0, wr_id=n) for n in range(3)] == [0, 0, -errno.EAGAIN]
    assert pair.ends[0].counts["post_again"] == 1
    assert pair.run(lambda: len(pair.state(0).cq) == 2)
    for n in range(3):
        assert pair.post(1, wr_id=n) == 0
    pair.run(limit_ns=3_000_000)
    assert len(pair.state(1).cq) == 2 and pair.ends[0].counts["cq_full"] > 0, "only what host 1 was written itself"
    taken = pair.poll(0)
    assert [c.wr_id for c in taken] == [0, 1]
    assert pair.run(lambda: len(pair.state(0).cq) == 2) and len(pair.poll(0)) == 2
    assert pair.run(lambda: len(pair.state(1).cq) == 5), "the rest completed when there was space"
    assert len(pair.poll(0)) == 1


def test_states_follow_the_document():
    allowed = {(State.RESET, State.INIT), (State.INIT, State.RTR), (State.RTR, State.RTS), (State.INIT, State.ERROR),
               (State.RTR, State.ERROR), (State.RTS, State.ERROR)}
    pair = RawPair(connected=False)
    qp = pair.state(0)
    for start, end in itertools.product(State, State):
        qp.state = start
        if (start, end) in allowed:
            qp.enter(end)
            assert qp.state is end
        else:
            with pytest.raises(ValueError, match="does not go from"):
                qp.enter(end)


def test_connect_sequence():
    """The six steps of the document, state by state."""
    a, b = Endpoint(MACS[0]), Endpoint(MACS[1])
    key = a.regions.get(a.rdma_reg_mr(64)), b.regions.get(b.rdma_reg_mr(64, AccessFlag.REMOTE_WRITE))
    b.rdma_qp_create()
    qp0, qp1 = a.rdma_qp_create(), b.rdma_qp_create()
    states = lambda: (a.qps.get(qp0).state, b.qps.get(qp1).state)  # noqa: E731
    assert (qp0, qp1) == (0, 1) and states() == (State.INIT, State.INIT)
    assert a.rdma_qp_connect(qp0, MACS[1], 1) == 0
    assert states() == (State.RTR, State.INIT)
    assert b.rdma_qp_connect(qp1, MACS[0], 0) == 0
    assert states() == (State.RTR, State.RTR)
    assert a.rdma_qp_connect(qp0, MACS[1], 1) == -errno.EINVAL, "only once"
    assert a.rdma_post_send(qp0, WorkRequest(1, local_mr_id=key[0].id, remote_mr_id=key[1].id,
                                             remote_key=key[1].key, length=64)) == 0
    a.rdma_process(0)
    [write] = a.take_frames()
    assert states() == (State.RTS, State.RTR)
    b.rdma_rx(write, 0)
    assert states() == (State.RTS, State.RTS)
    [ack] = b.take_frames()
    a.rdma_rx(ack, 0)
    assert all_good(a.rdma_poll_cq(qp0)) and all_good(b.rdma_poll_cq(qp1))


def test_early_packet_waits_for_the_peers_connect():
    """The peer connects late; packets that arrive earlier are dropped and repeated."""
    pair = RawPair(connected=False)
    pair.ends[0].rdma_qp_connect(pair.qp[0][0], MACS[1], pair.qp[1][0])
    assert pair.post(0) == 0
    pair.run(limit_ns=1_500_000)
    assert pair.ends[1].counts["not_connected"] == 2 and not pair.poll(0)
    pair.ends[1].rdma_qp_connect(pair.qp[1][0], MACS[0], pair.qp[0][0])
    assert all_good(pair.done(0, 1))


def test_post_without_a_connection_returns_enotconn():
    pair = RawPair(connected=False)
    assert pair.post(0) == -errno.ENOTCONN
    pair.run()
    assert not pair.frames and not pair.poll(0)


def test_post_in_error_is_flushed():
    pair = RawPair()
    pair.post(0, remote_key=0)
    assert statuses(pair.done(0, 1)) == [WCStatus.REM_ACCESS_ERR] and pair.state(0).state is State.ERROR
    sent = len(pair.frames)
    assert pair.post(0, wr_id=9) == 0
    [completion] = pair.done(0, 1)
    assert (completion.wr_id, completion.status) == (9, WCStatus.WR_FLUSH_ERR) and len(pair.frames) == sent


def test_destroyed_queue_pair_releases_everything():
    pair = RawPair()
    for n in range(40):
        pair.post(0, length=100, wr_id=n)
    pair.links[0].drop = lambda frame: frame == pair.frames[0][1]
    pair.soon()
    assert pair.state(1).ooo_queue and pair.ends[1].buffers.used
    for i in range(2):
        assert pair.ends[i].rdma_qp_destroy(pair.qp[i][0]) == 0
    pair.run()
    assert [end.buffers.used for end in pair.ends] == [0, 0] and not pair.mr[0].uses


def test_send_queue_has_a_limit():
    pair = RawPair()
    assert [pair.post(0) for _ in range(65)] == [0] * 64 + [-errno.EAGAIN]
    assert all_good(pair.done(0, 64)) and pair.ends[0].counts["post_again"] == 1 and pair.post(0) == 0


@pytest.mark.parametrize("wrong", [
    {"length": -1}, {"length": 1 << 32}, {"wr_id": 1 << 64}, {"remote_addr": 1 << 64}, {"remote_key": -1},
    {"remote_addr": (1 << 64) - 1, "length": 2}, {"local_offset": -1}, {"local_mr_id": 1 << 32}])
def test_impossible_request_is_rejected(wrong):
    pair = RawPair()
    assert pair.post(0, **wrong) == -errno.EINVAL
    assert pair.post(0, Opcode.ACK) == -errno.EINVAL


# ------------------------------------------------------------------------------------------ loopback


def loopback(end):
    qp = end.rdma_qp_create(Mode.SOFTWARE_LOOPBACK)
    source = end.regions.get(end.rdma_reg_mr(bytearray(range(100))))
    target = end.regions.get(end.rdma_reg_mr(100, AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ))
    return qp, source, target


def test_loopback_copies_without_a_packet():
    end = Endpoint(1)
    qp, source, target = loopback(end)
    end.rdma_post_send(qp, WorkRequest(1, Opcode.WRITE, source.id, 10, target.id, target.vaddr + 5, target.key, 20))
    end.rdma_post_send(qp, WorkRequest(2, Opcode.READ, source.id, 0, target.id, 5, target.key, 4))
    assert end.rdma_process(0) is None and not end.take_frames()
    assert bytes(target.data[5:25]) == bytes(range(10, 30)) and bytes(source.data[:5]) == bytes([10, 11, 12, 13, 4])
    done = end.rdma_poll_cq(qp, 9)
    assert all_good(done) and [(c.wr_id, c.byte_len) for c in done] == [(1, 20), (2, 4)]


def test_loopback_rejects_the_same_requests_as_the_network():
    end = Endpoint(1)
    qp, source, target = loopback(end)
    good = {"local_mr_id": source.id, "remote_mr_id": target.id, "remote_key": target.key, "length": 8}
    wrongs = [{"local_mr_id": 77}, {"local_offset": 93}, {"remote_mr_id": 77}, {"remote_key": 0},
              {"remote_addr": 93}, {"remote_mr_id": source.id, "remote_key": source.key}]
    for wrong in wrongs:
        assert end.rdma_post_send(qp, WorkRequest(1, **good | wrong)) == 0
    end.rdma_process(0)
    assert statuses(end.rdma_poll_cq(qp, 9)) == [WCStatus.LOC_PROT_ERR] * 2 + [WCStatus.REM_ACCESS_ERR] * 4
    assert not any(target.data)
    end.rdma_rx(build(Packet(Opcode.WRITE, 1, 1)), 0)
    assert end.counts["not_connected"] == 1, "no packet reaches a loopback queue pair"


# ----------------------------------------------------------------------------------------- questions


def answer(pair, i, number):
    assert pair.ends[i].rdma_answer(number) == -errno.EINPROGRESS
    asked = pair.ends[i].inquiries
    assert pair.run(lambda: asked._asked[number].result is not None)
    return pair.ends[i].rdma_answer(number)


def test_discovery_by_broadcast():
    pair = RawPair(connected=False)
    number = pair.ends[0].rdma_discover(pair.qp[1][0], pair.loop.now_ns)
    mac = answer(pair, 0, number)
    assert mac == MACS[1] and pair.sent(0)[0].dst_mac == BROADCAST
    assert pair.ends[0].rdma_answer(number) == -errno.EINVAL, "fetched once"
    for i in range(2):
        assert pair.ends[i].rdma_qp_connect(pair.qp[i][0], mac if i == 0 else MACS[0], pair.qp[1 - i][0]) == 0
    pair.post(0)
    assert all_good(pair.done(0, 1))


def test_discovery_repeats_and_gives_up():
    pair = RawPair(connected=False)
    pair.links[0].drop = lambda frame: pair.loop.now_ns < 2_500_000
    assert answer(pair, 0, pair.ends[0].rdma_discover(pair.qp[1][0], 0)) == MACS[1]
    assert len(pair.sent(0, Opcode.DISCOVER)) == 4
    assert answer(pair, 0, pair.ends[0].rdma_discover(99, pair.loop.now_ns)) == -errno.ETIMEDOUT
    assert len(pair.sent(0, Opcode.DISCOVER)) == 4 + DISCOVER_TRIES


def test_ping():
    pair = RawPair(connected=False, link=LinkConfig(delay_ns=7_000))
    assert answer(pair, 0, pair.ends[0].rdma_ping(MACS[1], 0, b"are you there?")) == 14_000
    assert pair.sent(1, Opcode.PONG)[0].payload == b"are you there?"
    assert answer(pair, 0, pair.ends[0].rdma_ping(0x02_0000_0000_99, pair.loop.now_ns)) == -errno.ETIMEDOUT
    assert pair.ends[1].counts["other_host"] == 1
    assert pair.ends[0].rdma_ping(MACS[1], 0, bytes(1461)) == -errno.EINVAL


def test_impossible_addresses_are_rejected():
    end = Endpoint(1)
    qp = end.rdma_qp_create()
    for wrong in ((1 << 48, 0), (-1, 0), (1, 1 << 16), (1, -1)):
        assert end.rdma_qp_connect(qp, *wrong) == -errno.EINVAL
    for wrong in ({"tx_seq": 1 << 32}, {"rx_seq": -1}):
        assert end.rdma_qp_connect(qp, 1, 0, **wrong) == -errno.EINVAL
    assert end.rdma_discover(1 << 16, 0) == end.rdma_ping(1 << 48, 0) == -errno.EINVAL
    assert end.qps.get(qp).state is State.INIT and not end.take_frames()


def test_questions_have_a_limit():
    end = Endpoint(1)
    numbers = [end.rdma_ping(2, 0) for _ in range(17)]
    assert numbers[-1] == -errno.EBUSY and all(number >= 0 for number in numbers[:-1])
    end.rdma_process(10**9)
    assert end.rdma_answer(numbers[0]) == -errno.ETIMEDOUT and end.rdma_ping(2, 0) >= 0


def test_unrequested_responses_are_dropped():
    end = Endpoint(MACS[0])
    number = end.rdma_ping(MACS[1], 0)
    other = end.rdma_discover(5, 0)
    wrong = [Packet(Opcode.PONG, MACS[0], MACS[1], seq=number + 7, length=4, payload=b"rdma"),
             Packet(Opcode.PONG, MACS[0], MACS[1] + 1, seq=number, length=4, payload=b"rdma"),
             Packet(Opcode.PONG, MACS[0], MACS[1], seq=number, length=4, payload=b"RDMA"),
             Packet(Opcode.DISCOVER_REPLY, MACS[0], MACS[1], seq=number),
             Packet(Opcode.DISCOVER_REPLY, MACS[0], MACS[1], src_qp=6, seq=other)]
    for packet in wrong:
        end.rdma_rx(build(packet), 10)
    assert end.counts["unasked_replies"] == len(wrong)
    assert end.rdma_answer(number) == end.rdma_answer(other) == -errno.EINPROGRESS
    good = build(Packet(Opcode.PONG, MACS[0], MACS[1], seq=number, length=4, payload=b"rdma"))
    end.rdma_rx(good, 10)
    end.rdma_rx(good, 20)
    assert end.counts["unasked_replies"] == len(wrong) + 1 and end.rdma_answer(number) == 10
