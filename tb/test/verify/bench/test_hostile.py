"""Test of a regular transfer with attacks of every kind, in short; ``weft bench --only hostile`` has the full size."""

import pytest

from weft.tb.sim.hostile.attacks import KINDS
from weft.tb.verify.bench.hostile import fight_all, rows

TESTED = ("wrong_key", "forged_acknowledgement", "forged_report", "random_bytes")
PAYLOAD = 128 << 10


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return rows by name, from one run."""
    assert set(TESTED) <= set(KINDS)
    return {row.name: row for row in rows(fight_all(TESTED, tmp_path_factory.mktemp("hostile") / "progress",
                                                    payload=PAYLOAD, seed=None))}


@pytest.mark.parametrize("kind", TESTED)
def test_an_attack_costs_an_honest_qp_nothing(found, kind):
    assert not found[f"hostile_goodput_kept_{kind}"].missed, found


@pytest.mark.parametrize("name", ["false_completions", "wrong_bytes", "objects_grown"])
def test_attack_leaves_no_state(found, name):
    assert found[f"hostile_{name}"].value == 0
