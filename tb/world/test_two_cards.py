"""The Verilog of the card is clean, and kept by the sources it was made from."""

import pytest

from weft.hdl import verilog
from weft.hdl.params import preset
from weft.tb.flow import kept_text, lint
from weft.tb.world import two_cards


@pytest.mark.parametrize(("name", "value"), [
    ("BEGAN_NS", 0),                        # edited before this process first looked
    ("sources", lambda *_: "edited"),       # and after that
])
def test_verilog_of_sources_that_change_meanwhile_is_not_kept(tmp_path, monkeypatch, name, value):
    """A process that began before an edit elaborates what it read then, not what the files say now."""
    made = []
    monkeypatch.setattr(two_cards, "BUILD_ROOT", tmp_path)
    monkeypatch.setattr(verilog, "card_verilog", lambda params: made.append(params) or f"text {len(made)}")
    assert [two_cards.card_text(preset("test")) for _ in range(2)] == ["text 1", "text 1"]
    monkeypatch.setattr(kept_text, name, value)
    assert [two_cards.card_text(preset("basic")) for _ in range(2)] == ["text 2", "text 3"]
    assert len(list(tmp_path.rglob("*.v"))) == 1


@pytest.mark.slow
def test_card_is_clean(tmp_path):
    """What Verilator has to say; Yosys, which takes a minute longer, has its turn in ``make lint``."""
    path = tmp_path / "card.v"
    path.write_text(two_cards.card_text(preset("test")))
    lint.verilator_lint(path, verilog.CARD_MODULE)
