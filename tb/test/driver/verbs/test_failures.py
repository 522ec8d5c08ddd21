"""Requests that fail, and their effects on other requests: two drivers over two functional cards."""

import pytest

from weft.driver.terms.enums import AccessFlag, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.mr import MR
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.model.impairments import FrameKind
from weft.model.link import LinkConfig
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair


def service(pair, finished):
    """Return the program of the peer's host, which makes progress until ``finished``."""
    def receiving():
        while not finished:
            pair.contexts[1].progress()
            pair.contexts[1].wait(20_000)

    return receiving


def one_write(pair, ends, *, length=3_000, rkey=None, offset=0, count=1, imm=False):
    """Post writes on the first QP and return all their completions."""
    finished = []

    def sending():
        end, got = ends[0], []
        for n in range(count):
            wr = SendWR(
                wr_id=n,
                sg=[SGE(end.mr.buf, length, end.mr.lkey)],
                imm_data=n,
                send_flags=SendFlags.SIGNALED,
                opcode=WROpcode.RDMA_WRITE_WITH_IMM if imm else WROpcode.RDMA_WRITE,
            )
            wr.set_wr_rdma(ends[1].mr.rkey if rkey is None else rkey, ends[1].mr.buf + offset)
            end.qps[0].post_send(wr)
        while len(got) < count:
            got += end.cq.wait(8, 10**9)
        finished.append(True)
        return got

    return pair.run(sending, service(pair, finished))[0]


@pytest.mark.parametrize("loss", [0, 0.2])
@pytest.mark.parametrize("wrong", ["key", "range"])
def test_remote_access_error_fails_the_request_and_flushes_the_rest(wrong, loss):
    pair = make_pair(forward=LinkConfig(loss=loss), seed=3)
    ends = make_endpoints(pair, 8_192)
    before = ends[1].mr.read(8_192, 0)
    wcs = one_write(
        pair,
        ends,
        count=3,
        rkey=ends[1].mr.rkey ^ 1 if wrong == "key" else None,
        offset=6_000 if wrong == "range" else 0,
    )
    assert [w.status for w in wcs] == [WCStatus.REM_ACCESS_ERR, WCStatus.WR_FLUSH_ERR, WCStatus.WR_FLUSH_ERR]
    assert [w.wr_id for w in wcs] == [0, 1, 2]
    assert all(end.qps[0].qp_state is QPState.ERR for end in ends)
    if wrong == "key":
        assert ends[1].mr.read(8_192, 0) == before
    close_and_check(pair, ends)


def test_requests_before_a_rejected_one_succeed():
    pair = make_pair(forward=LinkConfig(loss=0.1), seed=4)
    ends = make_endpoints(pair, 65_536)
    finished = []

    def sending():
        end, got = ends[0], []
        for n in range(6):
            wr = SendWR(wr_id=n, sg=[SGE(end.mr.buf, 10_000, end.mr.lkey)], opcode=WROpcode.RDMA_WRITE)
            wr.set_wr_rdma(ends[1].mr.rkey ^ (1 if n == 4 else 0), ends[1].mr.buf)
            end.qps[0].post_send(wr)
        while len(got) < 6:
            got += end.cq.wait(8, 10**9)
        finished.append(True)
        return got

    wcs = pair.run(sending, service(pair, finished))[0]
    assert [w.status for w in wcs] == [WCStatus.SUCCESS] * 4 + [WCStatus.REM_ACCESS_ERR, WCStatus.WR_FLUSH_ERR]


@pytest.mark.parametrize("access", [AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ, AccessFlag.LOCAL_WRITE])
def test_missing_permission_is_rejected(access):
    pair = make_pair()
    ends = make_endpoints(pair, 4_096)
    locked = MR(ends[1].pd, 4_096, access)
    finished = []

    def sending():
        wr = SendWR(wr_id=9, sg=[SGE(ends[0].mr.buf, 100, ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE)
        wr.set_wr_rdma(locked.rkey, locked.buf)
        ends[0].qps[0].post_send(wr)
        got = ends[0].cq.wait(1, 10**9)
        finished.append(True)
        return got

    assert pair.run(sending, service(pair, finished))[0][0].status is WCStatus.REM_ACCESS_ERR
    assert pair.devices[1].card.counters["drop_no_permission"]


def test_bad_local_key_fails_locally():
    pair = make_pair()
    ends = make_endpoints(pair, 4_096)
    ends[0].mr.lkey ^= 1
    wcs = one_write(pair, ends, count=2)
    assert [w.status for w in wcs] == [WCStatus.LOC_PROT_ERR, WCStatus.WR_FLUSH_ERR]
    ends[0].mr.lkey ^= 1


def test_absent_peer_exhausts_the_retries():
    pair = make_pair()
    ends = make_endpoints(pair, 4_096, retry_cnt=3, timeout=4)
    pair.links[0].drop = lambda frame: True
    start = pair.loop.now_ns
    wcs = one_write(pair, ends, count=2)
    assert [w.status for w in wcs] == [WCStatus.RETRY_EXC_ERR, WCStatus.WR_FLUSH_ERR]
    timeout_ns, probe_ns = 4096 << 4, 50_000
    # Probes follow 50 us after the last transmission, 50 us later, and then every 65.5 us. Each of these intervals but
    # the first may be up to an eighth longer.
    assert pair.links[0].counters.sent[FrameKind.PROBE] == 4
    assert 0 <= pair.loop.now_ns - start - probe_ns - 4 * timeout_ns < 20_000


@pytest.mark.parametrize("timeout", [1, 3])
def test_short_timeout_keeps_a_probe_per_retry(timeout):
    pair = make_pair()
    ends = make_endpoints(pair, 4_096, retry_cnt=7, timeout=timeout)
    forth, back = pair.links
    back.drop = lambda frame: back.counters.sent.total() < 8      # seven responses are lost
    assert [wc.status for wc in one_write(pair, ends)] == [WCStatus.SUCCESS]
    forth.counters.sent.clear()
    forth.drop = lambda frame: True
    assert [wc.status for wc in one_write(pair, ends)] == [WCStatus.RETRY_EXC_ERR]
    assert forth.counters.sent[FrameKind.PROBE] == 8


def test_receiver_not_ready():
    pair = make_pair()
    ends = make_endpoints(pair, 4_096, rnr_retry=2)
    wcs = one_write(pair, ends, imm=True)  # no receive is posted
    assert wcs[0].status is WCStatus.RNR_RETRY_EXC_ERR


def test_receiver_ready_late():
    pair = make_pair()
    ends = make_endpoints(pair, 4_096, rnr_retry=7)
    pair.loop.call_in(700_000, lambda: ends[1].qps[0].post_recv(RecvWR(wr_id=5)))
    wcs = one_write(pair, ends, imm=True)
    assert wcs[0].status is WCStatus.SUCCESS
    assert [w.wr_id for w in ends[1].cq.take(4)[1]] == [5]


def test_a_closed_region_is_closed_at_once():
    pair = make_pair()
    ends = make_endpoints(pair, 4_096)
    old = ends[1].mr.rkey
    ends[1].mr.close()
    wcs = one_write(pair, ends, rkey=old)
    assert wcs[0].status is WCStatus.REM_ACCESS_ERR


@pytest.mark.parametrize("delay_ns", [500, 1_000_000, 15_000_000])
def test_the_defaults_suit_a_path_of_any_length(delay_ns):
    """On lossless paths nothing is sent again, and few probes are sent before the first response."""
    pair = make_pair(forward=LinkConfig(delay_ns=delay_ns))
    ends = make_endpoints(pair, 8_192)
    assert [wc.status for wc in one_write(pair, ends, count=5)] == [WCStatus.SUCCESS] * 5
    counts = ends[0].qps[0].sender.counts
    assert not counts["retransmissions"] and counts["probes"] <= 12, counts


def test_idle_target_keeps_its_peer():
    pair = make_pair()
    ends = make_endpoints(pair, 4_096)
    finished = []

    def sending():
        wr = SendWR(wr_id=9, sg=[SGE(ends[0].mr.buf, 4_096, ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE)
        wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
        ends[0].qps[0].post_send(wr)
        got = ends[0].cq.wait(1, 10**9)
        finished.append(True)
        return got

    def receiving():
        start = pair.loop.now_ns
        while pair.loop.now_ns < start + 300_000_000:
            pair.devices[1].wait(100_000_000)      # the program ignores interrupts
        while not finished:
            pair.contexts[1].serve(1_000_000)

    assert pair.run(sending, receiving)[0][0].status is WCStatus.SUCCESS
