"""Tests of killed programs in separate namespaces: the daemon continues, peers are notified, no state is left."""

import pytest

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.programs.kills import COMMAND, TALKED, campaign

KILLS = 4
BACKENDS = ("functional", "direct")


@pytest.mark.parametrize("backend", BACKENDS)
def test_terminated_program_leaves_nothing_and_its_peer_is_notified(library, needs_namespaces, backend):
    seed = drawn_seed()
    print("again:", COMMAND.format(count=KILLS, seed=seed), backend)
    with needs_namespaces():
        found = campaign(KILLS, seed, library, backend=backend)
    assert sum(found.values()) == KILLS
    assert found[TALKED] >= KILLS // 2
