"""Frames of every kind that the RoCEv2 endpoint sends, for tests that read or damage them."""

import random

from weft.driver.soft.rc.request import OPCODES
from weft.driver.terms.enums import MTU, WROpcode
from weft.tb.test.driver.soft.hosts import BAD_LINK
from weft.tb.test.driver.soft.rc_pair import RcPair


def traffic(seed, *, requests=30, lengths=(0, 1, 63, 256, 257, 1000)):
    """Return a pair over a bad link after random requests both ways; ``frames`` holds the frames sent."""
    rng = random.Random(seed)
    pair = RcPair(seed=seed, link=BAD_LINK, path_mtu=MTU.MTU_256, min_rnr_timer=1)
    for i in range(2):
        pair.mr[i].write(rng.randbytes(8192))
        for n in range(requests):
            opcode = OPCODES[n % len(OPCODES)]
            atomic = opcode in (WROpcode.ATOMIC_CMP_AND_SWP, WROpcode.ATOMIC_FETCH_AND_ADD)
            pair.post(i, opcode, length=8 if atomic else rng.choice(lengths), to=8 * rng.randrange(512), wr_id=n,
                      imm=rng.getrandbits(32), compare_add=rng.getrandbits(64), swap=rng.getrandbits(64))
    pair.run(limit_ns=100_000)
    for i in range(2):
        for _ in range(requests):
            pair.post_recv(i)
    assert pair.run(lambda: not any(qp.requester.requests for qp in pair.qp), 10**10)
    return pair
