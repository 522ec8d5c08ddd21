"""Tests of the timing diagrams: their waves are those of the RTL, the pictures are those of the waves."""

import subprocess
import sys

import pytest

from weft.tb.sim.flow.sources import ROOT
from weft.tb.verify.document import port_waves, timing_diagram

PICTURES = timing_diagram.waves()
AGAIN = "run: .venv/bin/python -m weft.tb.verify.document"


def test_waves_are_current(tmp_path):
    subprocess.run([sys.executable, "-m", "weft.tb.verify.document.port_waves", tmp_path / "ports.json"], check=True)
    written = (tmp_path / "ports.json").read_text(encoding="utf-8")
    assert written == (ROOT / port_waves.DATA).read_text(encoding="utf-8"), f"{AGAIN}.port_waves, and {AGAIN}"


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_show_their_waves(name):
    picture = (ROOT / timing_diagram.picture(name)).read_text(encoding="utf-8")
    assert timing_diagram.digest(name, PICTURES[name]) in picture, AGAIN
    assert len(picture) < 50_000
    for title, row in timing_diagram.lines(PICTURES[name]):
        assert f">{title}<" in picture
        assert row is None or all(f">{text}<" in picture for text in row.get("data", ()))


@pytest.mark.parametrize("name", PICTURES)
def test_rows_of_a_picture_are_equally_long(name):
    rows = [row for _, row in timing_diagram.lines(PICTURES[name]) if row]
    assert len({len(row["wave"]) for row in rows}) == 1
    for row in rows:
        assert [at for at, letter in enumerate(row["wave"]) if letter == "|"] == [
            at for at, letter in enumerate(rows[0]["wave"]) if letter == "|"]
        assert row["wave"].count("=") == len(row.get("data", ()))


def test_a_wave_repeats_equal_values_and_shows_cuts():
    assert port_waves.wave("a", [True, True, ..., True, False]) == {"name": "a", "wave": "1.|.0"}
    assert port_waves.wave("b", [None, "x", "x", ("x", 1), ("x", 2), None]) == {
        "name": "b", "wave": "x=.==x", "data": ["x", "x", "x"]}


def test_values_meet_in_the_middle_of_a_cut():
    row = {"name": "a", "wave": "0|1.=.|..x", "data": ["b"]}
    assert list(timing_diagram.pieces(row)) == [
        (0, 1.5, "0", "", 0.5), (1.5, 4, "1", "", 3), (4, 9, "=", "b", 5), (9, 10, "x", "", 9.5)]
