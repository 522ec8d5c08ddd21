"""FETCH_AND_ADD and COMPARE_AND_SWAP over functional cards."""

import random

import pytest

from weft.driver.terms.enums import AccessFlag, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.mr import MR
from weft.driver.verbs.wr import SGE, SendWR
from weft.model.link import LinkConfig
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair

ADD, SWAP = WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP


def word(host, at):
    return int.from_bytes(host.mr.read(8, at), "little")


def test_fetch_and_add_wraps_at_64_bits():
    pair = OperationPair(access=AccessFlag.REMOTE_ATOMIC)
    a, b = pair.hosts
    b.mr.write(((1 << 64) - 3).to_bytes(8, "little"), offset=16)
    pair.send(ADD, (8, 8), at=16, compare_add=10)
    (wc,) = pair.completions(0, 1)
    assert (wc.status, wc.opcode, wc.byte_len) == (WCStatus.SUCCESS, WCOpcode.FETCH_ADD, 8)
    assert (word(a, 8), word(b, 16)) == ((1 << 64) - 3, 7)
    pair.close()


@pytest.mark.parametrize("same", [True, False])
def test_compare_and_swap_swaps_equal_values_only(same):
    pair = OperationPair(access=AccessFlag.REMOTE_ATOMIC)
    a, b = pair.hosts
    old = random.Random(1).getrandbits(64)
    b.mr.write(old.to_bytes(8, "little"))
    pair.send(SWAP, (0, 8), compare_add=old if same else old ^ 1 << 63, swap=99)
    (wc,) = pair.completions(0, 1)
    assert (wc.status, wc.opcode) == (WCStatus.SUCCESS, WCOpcode.COMP_SWAP)
    assert (word(a, 0), word(b, 0)) == (old, 99 if same else old)
    pair.close()


def test_atomics_are_executed_once_under_loss():
    loss = LinkConfig(loss=0.2, duplicate=0.1, reorder=0.1, delay_ns=2_000, reorder_distance=4)
    pair = OperationPair(qps=4, pair=make_pair(seed=5, forward=loss, backward=loss))
    a, b = pair.hosts
    for n in range(4 * 40):
        if n % 4 == 0 and n:
            pair.run_until(lambda posted=n: len(a.cq) >= posted - 60)
        pair.send(ADD, (8 * n, 8), at=0, compare_add=1, qp=n % 4, wr_id=n)
    pair.run_until(lambda: len(a.cq) == 160)
    assert pair.statuses(0, 160) == [WCStatus.SUCCESS] * 160
    assert word(b, 0) == 160 and sorted(word(a, 8 * n) for n in range(160)) == list(range(160))
    assert sum(pair.pair.links[0].counters.lost.values()) > 10 and sum(pair.pair.links[1].counters.lost.values()) > 10


@pytest.mark.parametrize(("subject", "fields", "status"), [
    ("odd address", {"at": 4}, WCStatus.REM_INV_REQ_ERR),
    ("wrong key", {"rkey": 1}, WCStatus.REM_ACCESS_ERR),
    ("beyond the end", {"at": 1 << 16}, WCStatus.REM_ACCESS_ERR),
])
def test_invalid_atomic_changes_nothing(subject, fields, status):
    pair = OperationPair()
    a, b = pair.hosts
    b.mr.write(before := bytes(range(256)) * 256)
    pair.send(ADD, (0, 8), compare_add=1, **fields)
    assert pair.statuses(0, 1) == [status], subject
    assert b.mr.read(1 << 16, 0) == before and not any(a.mr.read(1 << 16, 0))


def test_atomic_needs_permission_of_qp_and_memory():
    for access, memory_access in ((AccessFlag.REMOTE_READ, None), (None, AccessFlag.LOCAL_WRITE)):
        options = {k: v for k, v in (("access", access), ("memory_access", memory_access)) if v is not None}
        pair = OperationPair(**options)
        pair.send(ADD, (0, 8), compare_add=1)
        assert pair.statuses(0, 1) == [WCStatus.REM_ACCESS_ERR]
        assert word(pair.hosts[1], 0) == 0


def test_result_needs_eight_writable_bytes():
    for sges, status in ((((0, 4),), WCStatus.LOC_LEN_ERR), (((0, 16),), WCStatus.LOC_LEN_ERR),
                         (((0, 3), (100, 5)), WCStatus.SUCCESS)):
        pair = OperationPair()
        pair.hosts[1].mr.write(bytes(range(1, 9)))
        pair.send(ADD, *sges, compare_add=1)
        assert pair.statuses(0, 1) == [status]
        assert word(pair.hosts[1], 0) == int.from_bytes(range(1, 9), "little") + (status is WCStatus.SUCCESS)
    assert pair.hosts[0].mr.read(3, 0) + pair.hosts[0].mr.read(5, 100) == bytes(range(1, 9))
    pair = OperationPair()
    mr = MR(pair.hosts[0].pd, 4096, AccessFlag(0))
    pair.send(ADD, SGE(mr.buf, 8, mr.lkey), compare_add=1)
    assert pair.statuses(0, 1) == [WCStatus.LOC_PROT_ERR] and word(pair.hosts[1], 0) == 0


def test_set_wr_atomic_sets_operands_and_address():
    wr = SendWR(opcode=SWAP)
    wr.set_wr_atomic(5, 0x1000, 7, 9)
    assert (wr.rkey, wr.remote_addr, wr.compare_add, wr.swap) == (5, 0x1000, 7, 9)
