"""Tests that QPs share the line: the benchmark's limits with shorter transfers, and Jain's index."""

import pytest

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.bench.fairness import BYTES, JAIN, JAIN_BESIDE_LOSS, LOSER_SHARE, LOSS, QPS, Contest, jain, sizes

SHORT_NS = 1_000_000


def test_jain_s_index():
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([5, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([1, 2]) == pytest.approx(0.9)


def test_messages_of_all_sizes_get_the_same_share():
    seed = drawn_seed()
    print(f"seed {seed}")
    contest = Contest(sizes(), seed=seed, measured_ns=SHORT_NS)
    assert jain(contest.parts) >= JAIN and sum(contest.parts) > 0.95 * SHORT_NS * 12.5 * 4096 / 4194, contest.parts
    contest.close()


def test_losses_of_one_qp_do_not_slow_the_others():
    seed = drawn_seed()
    print(f"seed {seed}")
    contest = Contest([BYTES] * QPS, {0: LOSS}, seed=seed, measured_ns=SHORT_NS)
    loser, *others = contest.parts
    assert jain(others) >= JAIN_BESIDE_LOSS
    assert 0.2 < loser * QPS / sum(contest.parts) < LOSER_SHARE
    contest.close()
