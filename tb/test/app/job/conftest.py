"""Separate folder for published results: runs of other tests publish at the same time."""

import tempfile
from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.build import BUILD_ROOT, build
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


@pytest.fixture
def own_root():
    """Return a folder for builds that has the simulator of two cards, and no results of a run."""
    kept = build(two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run")
    with tempfile.TemporaryDirectory(dir=BUILD_ROOT, prefix="own-") as root:
        for name in (kept.name, "verilog"):
            Path(root, name).symlink_to(BUILD_ROOT / name)
        yield Path(root)
