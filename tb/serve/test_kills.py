"""Programs in namespaces of their own that are killed: the daemon lives, their peers are told, nothing is left."""

import pytest

from weft.tb.flow.seed import drawn_seed
from weft.tb.flow.system import tools_expected
from weft.tb.serve.kills import COMMAND, TALKED, campaign
from weft.tb.serve.namespaces import NoNamespaces

KILLS = 4


def test_who_is_killed_leaves_nothing_and_its_peer_is_told(library):
    seed = drawn_seed()
    print("again:", COMMAND.format(count=KILLS, seed=seed))
    try:
        found = campaign(KILLS, seed, library)
    except NoNamespaces as problem:
        if tools_expected():
            raise
        pytest.skip(str(problem))
    assert sum(found.values()) == KILLS
    assert found[TALKED] >= KILLS // 2
