"""Tests of the daemon's end of rings."""

import random

import pytest

from weft.driver.serve.ring import SharedRing
from weft.tb.sim.flow.seed import drawn_seed

SLOT = 48


@pytest.mark.parametrize(("slots", "more"), [(8, 8), (8, 32), (32, 8)])
def test_slots_move_to_another_ring(slots, more):
    rng = random.Random(seed := drawn_seed())
    print("seed", seed)
    for count in range(min(slots, more) + 1):
        old, new = SharedRing("old", slots, SLOT), SharedRing("new", more, SLOT)
        for ring in (old, new):
            ring.mapping[ring.place(0) :] = rng.randbytes(ring.slots * SLOT)
        first = rng.choice([0, rng.randrange(1 << 32), (1 << 32) - 1, -rng.randrange(1, slots + 1)])
        kept = new.mapping[:]
        new.take_over(old, first, count)
        for n in range(new.slots):
            of, at = (old.mapping, old.place(first + n)) if n < count else (kept, new.place(n))
            assert new.mapping[new.place(n) : new.place(n) + SLOT] == of[at : at + SLOT], (first, count, n)
        assert new.mapping[: new.place(0)] == kept[: new.place(0)]
        for ring in (old, new):
            ring.close()
