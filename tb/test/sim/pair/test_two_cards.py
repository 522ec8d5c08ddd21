"""Tests of the card's Verilog: no warnings, and cached by the sources it was made from."""

import pytest

from weft.hdl import verilog
from weft.hdl.contract.params import preset
from weft.tb.sim.flow import kept_text
from weft.tb.sim.flow.build import build, card_text
from weft.tb.sim.pair import two_cards
from weft.tb.test.sim.synth.built_clean import built_clean


@pytest.mark.parametrize(("name", "value"), [
    ("BEGAN_NS", 0),                        # edited before this process first looked
    ("sources", lambda *_: "edited"),       # and afterwards
])
def test_verilog_of_changed_sources_is_not_cached(tmp_path, monkeypatch, name, value):
    """A process that began before an edit elaborates the code that it has read, not the current files."""
    made = []
    monkeypatch.setattr("weft.tb.sim.flow.build.BUILD_ROOT", tmp_path)
    monkeypatch.setattr(verilog, "card_verilog", lambda params: made.append(params) or f"text {len(made)}")
    assert [card_text(preset("test")) for _ in range(2)] == ["text 1", "text 1"]
    monkeypatch.setattr(kept_text, name, value)
    assert [card_text(preset("basic")) for _ in range(2)] == ["text 2", "text 3"]
    assert len(list(tmp_path.rglob("*.v"))) == 1


@pytest.mark.slow
def test_cards_pass_lint():
    """Check the messages of Verilator's build of two cards; Yosys, which takes a minute, runs in ``make lint``."""
    built_clean(build(two_cards.two_cards_text(preset("test")), top=two_cards.TOP, name="two-cards-test",
                      sim="verilator", optimize="run"))
