"""Invalid arguments of requests: rejected when they are posted, without a trace."""

import pytest

from weft.driver.terms.enums import SendFlags, WCStatus, WROpcode
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.sim.pair.functional_pair import make_endpoints, make_pair
from weft.tb.test.driver.verbs.test_failures import one_write, service

IMPOSSIBLE = [
    {"imm_data": 1 << 32}, {"imm_data": -1}, {"imm_data": 1.5}, {"rkey": 1 << 32}, {"rkey": -1},
    {"remote_addr": 1 << 64}, {"remote_addr": (1 << 64) - 99}, {"remote_addr": -1}, {"wr_id": -1}, {"wr_id": 1 << 64},
    {"wr_id": "seven"}, {"length": -5}, {"length": 1 << 32}, {"length": (1 << 31) + 1}, {"length": None},
    {"addr": -1}, {"addr": (1 << 64) - 1}, {"lkey": 1 << 32}, {"lkey": -1}, {"num_sge": 2}, {"num_sge": -1},
    {"opcode": 77}, {"opcode": WROpcode.LOCAL_INV}, {"opcode": WROpcode.SEND, "length": (1 << 31) + 1},
    {"opcode": WROpcode.RDMA_READ, "remote_addr": (1 << 64) - 99}, {"send_flags": SendFlags.INLINE},
    {"opcode": WROpcode.ATOMIC_CMP_AND_SWP, "swap": 1 << 64}, {"send_flags": 1 << 10}, {"send_flags": -1},
]


def work(ends, **changes):
    fields = {"addr": ends[0].mr.buf, "length": 100, "lkey": ends[0].mr.lkey, "remote_addr": ends[1].mr.buf,
              "rkey": ends[1].mr.rkey, "wr_id": 3, "imm_data": 9, "opcode": WROpcode.RDMA_WRITE_WITH_IMM,
              "send_flags": SendFlags.SIGNALED, "num_sge": 1} | changes
    sge = SGE(*(fields.pop(name) for name in ("addr", "length", "lkey")))
    return SendWR(sg=[sge], **fields)


@pytest.mark.parametrize("changes", IMPOSSIBLE, ids=str)
def test_impossible_send_request_is_rejected_without_effect(changes):
    pair = make_pair()
    ends = make_endpoints(pair, 4_096)
    qp = ends[0].qps[0]
    with pytest.raises((ValueError, TypeError)):
        qp.post_send(work(ends, **changes))
    assert qp.sender.outstanding == 0 and qp.sender.in_card == 0
    assert one_write(pair, ends)[0].status is WCStatus.SUCCESS
    for end in ends:
        end.close()


@pytest.mark.parametrize("wr", [RecvWR(wr_id=-1), RecvWR(wr_id=1 << 64), RecvWR(num_sge=2),
                                RecvWR(sg=[SGE(0, -1, 0)]), RecvWR(sg=[SGE(0, 1, 0)] * 17)], ids=str)
def test_impossible_receive_request_is_rejected(wr):
    ends = make_endpoints(make_pair(), 4_096)
    with pytest.raises(ValueError):
        ends[0].qps[0].post_recv(wr)
    assert ends[0].qps[0].engine.receives == 0


def test_plain_numbers_equal_enumeration_members():
    """An opcode as in C, and a fence, which has nothing to wait for here."""
    pair = make_pair()
    ends, finished = make_endpoints(pair, 4_096), []
    ends[1].qps[0].post_recv(RecvWR(wr_id=1))

    def sending():
        ends[0].qps[0].post_send(work(ends, opcode=1, send_flags=3, imm_data=77))
        got = ends[0].cq.wait(1, 10**9)
        finished.append(True)
        return got

    assert pair.run(sending, service(pair, finished))[0][0].status is WCStatus.SUCCESS
    _, [message] = ends[1].cq.take(4)
    assert (message.wr_id, message.imm_data) == (1, 77)
