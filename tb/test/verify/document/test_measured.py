"""Tests of measured parts of documents: copied from existing reports, unchanged without a report."""

import json
import re

import pytest

from weft.tb.app.job.job import Job
from weft.tb.app.job.run import default_file
from weft.tb.verify.document import measured

USUAL = Job(file=str(default_file()), folder="").command
NAMES = sorted({name for figure in measured.FIGURES for name in re.findall(r"{(\w+)", figure.value)})


def report(names, value=12.5):
    return [{"name": name, "unit": "", "value": value, "command": "weft bench --only latency"} for name in names]


def test_every_row_has_values_conditions_and_a_unique_name():
    assert len({figure.subject for figure in measured.FIGURES}) == len(measured.FIGURES)
    for figure in measured.FIGURES:
        assert "{" in figure.value and figure.conditions
        cells = figure.text({row["name"]: row for row in report(NAMES)})
        assert "{" not in "".join(cells) and cells[3] == "`weft bench --only latency`"


def test_a_full_report_gives_all_rows_in_order():
    rows = measured.bench(report(NAMES), "").splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [figure.subject for figure in measured.FIGURES]


def test_rows_missing_from_the_report_are_kept():
    latency = ["post_send_to_receiver_completion_ns"]
    before = measured.bench(report([name for name in NAMES if name.startswith("adamap_sram")]), "")
    after = measured.bench(report(latency, 2592.0), before)
    assert set(before.splitlines()) < set(after.splitlines())
    assert "2,592 ns" in after and len(after.splitlines()) == len(before.splitlines()) + 1
    assert measured.bench(report(latency, 2100.0), after).count("2,100 ns") == 1
    assert measured.bench([], after) == after


def test_unrequested_rows_are_removed():
    before = measured.table(measured.HEAD, [("speed of sound", "343 m/s", "dry air", "`weft bench`")])
    assert "343" not in measured.bench([], before)


@pytest.fixture
def reports(tmp_path):
    (tmp_path / "sim.json").write_text(json.dumps(
        dict.fromkeys(measured.SIM_ROWS, 1234) | {"goodput_gbps": 58.5422, "ok": True, "command": USUAL}))
    cells = {"lut": 1500, "ff": 20, "uram": 0}
    (tmp_path / "synth.json").write_text(json.dumps({"preset": "test", "blocks": {
        "": cells, "receive": cells, "receive.parse": cells, "adamap": cells}}))
    return tmp_path


def test_reports_fill_their_parts_and_only_those(reports):
    text = "".join(f"<!-- measured: {name} -->\nold {name}\n<!-- end -->\n" for name in ("sim", "bench", "synth"))
    filled = measured.fill(text, reports)
    assert "old sim" not in filled and "old synth" not in filled and "old bench" in filled
    assert "packets lost              1,234\n" in filled and "58.54\n" in filled and "PASSED" in filled
    assert "| `adamap` | 1,500 | 20 |\n| `receive` | 1,500 | 20 |\n| **card** | 1,500 | 20 |" in filled
    assert "parse" not in filled and "URAM" not in filled
    assert measured.fill(filled, reports) == filled


def test_a_run_with_other_settings_changes_nothing(reports):
    text, report = "<!-- measured: sim -->\nold\n<!-- end -->", json.loads((reports / "sim.json").read_text())
    assert measured.fill(text, reports) != text
    (reports / "sim.json").write_text(json.dumps(report | {"command": USUAL.replace("--loss 0.01", "--loss 0.02")}))
    assert measured.fill(text, reports) == text


def test_subsystems_of_basic_are_shown_beside_published_cards():
    """The preset may be anywhere in the report; without it nothing changes."""
    cells = {"lut": 1500, "ff": 20, "bram36": 3, "bram18": 1, "uram": 0}
    basic = {"preset": "basic", "paths": {"rings": {"ns": 2.345}, "csr": {"ns": 1.0}, "mac_tx": {"ns": 3.0}},
             "blocks": {"": cells, "rings": cells | {"uram": 2}, "rings.send": cells, "csr": cells, "mac_tx": cells}}
    test = {"preset": "test", "blocks": {"": cells}}
    peers = measured.PEERS.values()
    for report in (basic, test | {"others": [basic]}):
        head, _, *rows = ([cell.strip() for cell in row.strip("|").split("|")]
                          for row in measured.area(report, "old").splitlines())
        assert head == ["", "`rings`", "others", "**card**", *measured.PEERS]
        for row, ours, theirs in zip(rows, (("1,500", "3,000", "1,500"), ("20", "40", "20"),
                                            ("3.5 + 2 UltraRAM", "7", "3.5"), ("2.35 ns", "3.00 ns", "")),
                                     zip(*peers, strict=True), strict=True):
            assert row[1:] == [*ours, *theirs]
    assert measured.area(test, "old\n") == "old"


def test_the_size_of_the_largest_card_comes_from_synth(reports):
    """The preset may be anywhere in the report; without it nothing changes."""
    text = "<!-- measured: full -->\nold\n<!-- end -->"
    assert measured.fill(text, reports) == text
    full = {"preset": "full", "blocks": {"": {"lut": 1500, "bram36": 3, "bram18": 1, "uram": 2}},
            "paths": {"": {"ns": 3.456}}}
    (reports / "synth.json").write_text(json.dumps({"preset": "basic", "blocks": {}, "others": [full]}))
    filled = measured.fill(text, reports)
    assert "1,500 LUT, 3.5 block RAMs" in filled and "2\nUltraRAMs" in filled and "3.46 ns" in filled


def test_the_area_comes_from_the_report_of_synth(reports):
    (reports / "synth.json").write_text(json.dumps({"preset": "basic", "blocks": {"": {"lut": 7, "ff": 8}}}))
    assert "| LUT | 0 | 7 |" in measured.fill("<!-- measured: area -->\n<!-- end -->", reports)
