"""Keys of a region: the program itself needs ``lkey``, a peer needs ``rkey``."""

import itertools

import pytest

from weft.driver.terms.enums import AccessFlag, ReregFlag, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.mr import MR
from weft.driver.verbs.wr import SGE
from weft.tb.sim.pair.operation_pair import OperationPair
from weft.tb.sim.pair.settings import ALL_ACCESS

LOCAL = AccessFlag.LOCAL_WRITE
RIGHTS = (AccessFlag.REMOTE_WRITE, AccessFlag.REMOTE_READ, AccessFlag.REMOTE_ATOMIC)
FAST = {"timeout": 4, "retry_cnt": 1}
WRITES = (WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM)
SENDS = (WROpcode.SEND, WROpcode.SEND_WITH_IMM)
FETCHES = (WROpcode.RDMA_READ, WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP)
LONG = 2_000       # more than a send carries in a mailbox


def test_keys_of_a_region_differ_and_are_constant():
    """The access rights do not matter; all keys differ."""
    pair = OperationPair()
    pd = pair.hosts[0].pd
    rights = [LOCAL | sum(some, AccessFlag(0)) for n in range(4) for some in itertools.combinations(RIGHTS, n)]
    mrs = [MR(pd, 64, access) for access in rights]
    keys = [(mr.lkey, mr.rkey) for mr in mrs]
    assert len({key for both in keys for key in both}) == 2 * len(mrs) == 16
    for mr, access in zip(mrs, rights[::-1], strict=True):
        mr.rereg(ReregFlag.CHANGE_ACCESS, access=access)
    assert keys == [(mr.lkey, mr.rkey) for mr in mrs]
    pair.close()


@pytest.mark.parametrize("opcode", WRITES + FETCHES, ids=lambda opcode: opcode.name)
def test_lkey_is_useless_to_a_peer(opcode):
    pair = OperationPair(**FAST)
    a, b = pair.hosts
    b.mr.write(b"secret!!")
    b.recv(4_096)
    pair.send(opcode, (0, 8), rkey=b.mr.lkey)
    assert pair.statuses(0, 1) == [WCStatus.REM_ACCESS_ERR]
    assert a.mr.read(8, 0) == bytes(8) and b.mr.read(8, 0) == b"secret!!"
    assert len({b.mr.lkey, b.mr.rkey}) == 2
    pair.close()


@pytest.mark.parametrize("length", [8, LONG])
@pytest.mark.parametrize("opcode", WRITES + SENDS + FETCHES, ids=lambda opcode: opcode.name)
def test_rkey_is_rejected_as_lkey(opcode, length):
    """The key permits neither reads nor writes; the request before it succeeds."""
    if length == LONG and opcode in FETCHES[1:]:
        length = 8
    pair = OperationPair(**FAST)
    a, b = pair.hosts
    for _ in range(2):
        b.recv(4_096, LONG)
    b.mr.write(b"b" * LONG)
    a.mr.write(b"a" * LONG)
    pair.send(opcode, (LONG, length), at=2 * LONG, wr_id=1)
    pair.send(opcode, SGE(a.mr.buf, length, a.mr.rkey), wr_id=2)
    assert pair.statuses(0, 2) == [WCStatus.SUCCESS, WCStatus.LOC_PROT_ERR]
    assert a.mr.read(LONG, 0) == b"a" * LONG
    pair.close()


@pytest.mark.parametrize("length", [8, LONG])
def test_rkey_is_rejected_in_a_receive(length):
    pair = OperationPair(**FAST)
    b = pair.hosts[1]
    b.recv(sges=[SGE(b.mr.buf, LONG, b.mr.rkey)])
    pair.hosts[0].mr.write(b"a" * length)
    pair.send(WROpcode.SEND, (0, length))
    assert pair.statuses(0, 1) == [WCStatus.REM_OP_ERR] and pair.statuses(1, 1) == [WCStatus.LOC_PROT_ERR]
    assert b.mr.read(LONG, 0) == bytes(LONG)
    pair.close()


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: right.name)
def test_key_permits_the_rights_of_its_region_only(right):
    """Every operation on a region with one right; a right that is added later counts, one that is revoked does not."""
    needs = dict(zip(RIGHTS, (WRITES[:1], FETCHES[:1], FETCHES[1:]), strict=True))
    for needed, opcodes in needs.items():
        for opcode in opcodes:
            pair = OperationPair(access=ALL_ACCESS, **FAST)
            mr = MR(pair.hosts[1].pd, 64, LOCAL | right)
            wanted = [WCStatus.SUCCESS if needed is right else WCStatus.REM_ACCESS_ERR]
            pair.send(opcode, (0, 8), at=mr.buf - pair.hosts[1].mr.buf, rkey=mr.rkey)
            assert pair.statuses(0, 1) == wanted, (right, opcode)
            pair.close()
    pair = OperationPair(**FAST)
    mr = MR(pair.hosts[1].pd, 64, LOCAL)
    at = mr.buf - pair.hosts[1].mr.buf
    mr.rereg(ReregFlag.CHANGE_ACCESS, access=LOCAL | right)
    pair.send(needs[right][0], (0, 8), at=at, rkey=mr.rkey)
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    mr.rereg(ReregFlag.CHANGE_ACCESS, access=LOCAL)
    pair.send(needs[right][0], (0, 8), at=at, rkey=mr.rkey)
    assert pair.statuses(0, 1) == [WCStatus.REM_ACCESS_ERR]
    pair.close()


def test_neither_key_outlives_its_region():
    """The ``lkey`` in a request does not outlive its region, either."""
    for opcode in (WROpcode.RDMA_WRITE, WROpcode.SEND, WROpcode.RDMA_READ):
        pair = OperationPair(**FAST)
        a, b = pair.hosts
        mr = MR(a.pd, 64, ALL_ACCESS)
        b.recv()
        sge = SGE(mr.buf, 8, mr.lkey)
        mr.close()
        pair.send(opcode, sge)
        assert pair.statuses(0, 1) == [WCStatus.LOC_PROT_ERR]
        pair.close()


def test_data_that_is_inline_needs_no_key_and_an_empty_entry_neither():
    pair = OperationPair()
    a, b = pair.hosts
    a.mr.write(b"inlined")
    pair.send(WROpcode.RDMA_WRITE, SGE(a.mr.buf, 7, 0), flags=SendFlags.SIGNALED | SendFlags.INLINE)
    pair.send(WROpcode.RDMA_WRITE, SGE(0, 0, 0), (0, 7), at=100)
    assert pair.statuses(0, 2) == [WCStatus.SUCCESS] * 2
    assert b.mr.read(7, 0) == b.mr.read(7, 100) == b"inlined"
    pair.close()
