"""SEND and SEND_WITH_IMM over functional cards."""

import random

import pytest

from weft.driver.terms.enums import AccessFlag, WCFlags, WCOpcode, WCStatus, WROpcode
from weft.tb.sim.pair.operation_pair import OperationPair

SEND, SEND_WITH_IMM = WROpcode.SEND, WROpcode.SEND_WITH_IMM
ONLY_LOCAL = AccessFlag.LOCAL_WRITE


def fill(pair, end, length, seed=1):
    data = random.Random(seed).randbytes(length)
    pair.hosts[end].mr.write(data)
    return data


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 4096, 20_001])
@pytest.mark.parametrize("imm", [None, 0xDEAD_BEEF])
def test_send_takes_the_oldest_receive(length, imm):
    pair = OperationPair(access=AccessFlag(0), memory_access=ONLY_LOCAL)
    data = fill(pair, 0, length + 3)
    a, b = pair.hosts
    b.recv(5, 30_000, wr_id=11)
    b.recv(0, 100, wr_id=12)
    pair.send(SEND if imm is None else SEND_WITH_IMM, (3, length), imm=imm or 0)
    (got,) = pair.completions(1, 1)
    assert (got.wr_id, got.status, got.opcode, got.byte_len, got.qp_num) == (
        11, WCStatus.SUCCESS, WCOpcode.RECV, length, b.qp.qp_num)
    assert (bool(got.wc_flags & WCFlags.WITH_IMM), got.imm_data) == (imm is not None, imm or 0)
    (sent,) = pair.completions(0, 1)
    assert (sent.wr_id, sent.status, sent.opcode, sent.byte_len) == (7, WCStatus.SUCCESS, WCOpcode.SEND, length)
    assert b.mr.read(length, 5) == data[3:] and b.qp.engine.receives == 1
    pair.close()


def test_grants_are_requested_when_the_peer_has_the_mailbox(monkeypatch):
    """The peer requests the mailbox before the card has it."""
    pair = OperationPair(access=AccessFlag(0), memory_access=ONLY_LOCAL)
    a, b = pair.hosts
    data = [fill(pair, end, 5_000, seed=end) for end in range(2)]
    for host in pair.hosts:
        host.recv(10_000, 5_000)
    monkeypatch.setattr(a.context.commands, "progress", lambda: False)
    for end in range(2):
        pair.send(SEND, (0, 5_000), end=end)
    pair.settle(50_000)
    assert a.qp.engine.operations.mailbox.peer_key is not None and not a.qp.engine.operations.mailbox.ready
    monkeypatch.undo()
    for end in range(2):
        found = pair.completions(end, 2)
        assert [wc.status for wc in found] == [WCStatus.SUCCESS] * 2
    assert [b.mr.read(5_000, 10_000), a.mr.read(5_000, 10_000)] == data
    pair.close()
