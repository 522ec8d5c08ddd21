"""A QP in RTR answers sends, reads and atomics of its peer with writes, before the program sets its send PSN."""

import pytest

from weft.driver.terms.enums import QPState, WCStatus, WROpcode
from weft.driver.terms.errors import InvalidValue
from weft.driver.verbs.qp import connected_attr
from weft.driver.verbs.wr import SendWR
from weft.tb.sim.pair.operation_pair import OperationPair
from weft.tb.sim.pair.settings import ALL_ACCESS


def half_connected(length):
    """Return (pair, attributes): host 0 in RTS, host 1 in RTR, and the attributes of host 1 for RTS."""
    pair = OperationPair(connect=False)
    asks, answers = (host.qp for host in pair.hosts)
    of_peer = asks.connection
    attr = connected_attr(of_peer, path_mtu=3, sq_psn=answers.attr.sq_psn, qp_access_flags=ALL_ACCESS)
    asks.connect(answers.connection, qp_access_flags=ALL_ACCESS)
    answers.to_rtr(attr)
    pair.hosts[0].mr.write(bytes(range(250)) * (length // 250 + 1), length)
    return pair, attr


@pytest.mark.parametrize("length", [40, 5_000])
def test_qp_in_rtr_responds_to_everything(length):
    pair, _ = half_connected(length)
    a, b = pair.hosts
    sent = a.mr.read(length, 0)
    b.recv(0, length)
    pair.send(WROpcode.SEND, (0, length))
    assert [wc.status for wc in pair.completions(1, 1)] == [WCStatus.SUCCESS]
    assert b.mr.read(length, 0) == sent
    pair.send(WROpcode.RDMA_READ, (10_000, length))
    assert [wc.status for wc in pair.completions(0, 2)] == [WCStatus.SUCCESS] * 2
    assert a.mr.read(length, 10_000) == sent
    pair.send(WROpcode.ATOMIC_FETCH_AND_ADD, (20_000, 8), compare_add=5)
    assert [wc.status for wc in pair.completions(0, 1)] == [WCStatus.SUCCESS]
    assert b.mr.read(8, 0) == (int.from_bytes(sent[:8], "little") + 5).to_bytes(8, "little")
    assert b.qp.qp_state is QPState.RTR
    with pytest.raises(InvalidValue, match="it cannot send"):
        b.qp.post_send(SendWR(1))
    pair.close()


def test_qp_that_responded_may_send_from_rts_on():
    pair, attr = half_connected(5_000)
    a, b = pair.hosts
    b.recv(0, 5_000)
    pair.send(WROpcode.SEND, (0, 5_000))
    pair.completions(1, 1)
    pair.completions(0, 1)
    b.qp.to_rts(attr)
    a.recv(20_000, 5_000)
    pair.send(WROpcode.SEND, (0, 5_000), end=1)
    assert [wc.status for wc in pair.completions(0, 1)] == [WCStatus.SUCCESS]
    assert a.mr.read(5_000, 20_000) == a.mr.read(5_000, 0)
    pair.close()


def test_psn_unlike_that_of_the_responses_is_rejected():
    pair, attr = half_connected(5_000)
    pair.hosts[1].recv(0, 5_000)
    pair.send(WROpcode.SEND, (0, 5_000))
    pair.completions(1, 1)
    attr.sq_psn ^= 1
    with pytest.raises(InvalidValue, match="the peer receives from"):
        pair.hosts[1].qp.to_rts(attr)
    pair.close()
