"""Test of a regular transfer with attacks of every kind, in short; ``weft bench --only hostile`` has the full size."""

import pytest

from weft.tb.sim.hostile.attacks import KINDS
from weft.tb.test.verify.bench.command import bench
from weft.tb.verify.bench import hostile

TESTED = ("wrong_key", "forged_acknowledgement", "forged_report", "random_bytes")
PAYLOAD = 128 << 10


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return figures by name, from one run."""
    assert set(TESTED) <= set(KINDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hostile, "KINDS", TESTED)
        for name, value in (("payload", PAYLOAD), ("seed", None)):
            patch.setitem(hostile.fight_all.__kwdefaults__, name, value)
        found = bench(patch, tmp_path_factory.mktemp("hostile"), "--only", "hostile")
    return {row["name"]: row["value"] for row in found}


@pytest.mark.parametrize("kind", TESTED)
def test_an_attack_costs_an_honest_qp_nothing(found, kind):
    assert found[f"hostile_goodput_kept_{kind}"] >= hostile.KEPT, found


@pytest.mark.parametrize("name", ["false_completions", "wrong_bytes", "objects_grown"])
def test_attack_leaves_no_state(found, name):
    assert found[f"hostile_{name}"] == 0
