"""Inline data of every length: in a descriptor, in the peer's mailbox, or staged in memory of the driver."""

import random

import pytest

from weft.driver.terms.enums import SendFlags, WCStatus, WROpcode
from weft.driver.terms.errors import InvalidValue
from weft.driver.verbs.qp_init_attr import INLINE_MAX
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.pair.operation_pair import CAP, OperationPair

WRITE, WRITE_IMM = WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM
KINDS = (WRITE, WRITE_IMM, WROpcode.SEND, WROpcode.SEND_WITH_IMM)
CAPS = CAP | {"max_inline_data": INLINE_MAX}
COUNT, SPACE = 60, 2048      # requests, more than the mailbox has slots; bytes for each


def test_the_limit():
    assert INLINE_MAX >= 1024
    pair = OperationPair(cap=CAPS)
    with pytest.raises(InvalidValue, match="inline"):
        pair.send(WRITE, (0, INLINE_MAX + 1), flags=SendFlags.SIGNALED | SendFlags.INLINE)
    pair.close()


def test_requests_of_every_length_and_kind_at_once():
    """The memory is overwritten after each post, and each receive has two entries."""
    seed = drawn_seed()
    print(f"seed {seed}")
    rng, pair = random.Random(seed), OperationPair(1 << 18, cap=CAPS)
    a, b = pair.hosts
    edges, expected, receives = [0, 1, 16, 17, 64, 255, 256, 257, 1023, 1024], {}, 0
    for n in range(COUNT):
        length, kind = rng.choice([*edges, rng.randrange(INLINE_MAX + 1)]), rng.choice(KINDS)
        expected[n], cut = rng.randbytes(length), rng.randrange(1, INLINE_MAX)
        a.mr.write(expected[n], length, 0)
        if kind in KINDS[2:]:
            b.recv(wr_id=n, sges=[b.sge(n * SPACE, cut), b.sge(n * SPACE + cut, SPACE - cut)])
        elif kind is WRITE_IMM:
            b.recv(wr_id=n, length=0)
        receives += kind is not WRITE
        part = rng.randrange(length + 1)
        pair.send(kind, (0, part), (part, length - part), at=n * SPACE, imm=n, wr_id=n,
                  flags=SendFlags.SIGNALED | SendFlags.INLINE)
        a.mr.write(bytes(length), length, 0)
    sent, received = pair.completions(0, COUNT), pair.completions(1, receives)
    assert [(wc.wr_id, wc.status) for wc in sent] == [(n, WCStatus.SUCCESS) for n in range(COUNT)]
    assert all(wc.status is WCStatus.SUCCESS and wc.byte_len == len(expected[wc.wr_id]) for wc in received)
    assert {n: b.mr.read(len(data), n * SPACE) for n, data in expected.items()} == expected
    pair.close()
