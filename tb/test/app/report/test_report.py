"""Tests of ``weft report``: the page is self-contained, and a browser draws all of it."""

import json
import re
import subprocess

import pytest
from matplotlib import pyplot

from weft.model.wan import result
from weft.model.wan.experiment import Experiment
from weft.tb.app.report.figures import calibration
from weft.tb.app.report.run import build
from weft.tb.app.sweep.picture import lines
from weft.tb.app.sweep.plan import BadPlan
from weft.tb.app.sweep.table import BadTable
from weft.tb.test.model.ready import compile_once
from weft.tb.test.system import need

FIGURES = "goodput", "completion", "memory", "stalls", "sequence", "calibration", "sizes"
COMPARED = [{"name": f"number {k}", "judges": k > 3, "cycles": {"gateware": 1000.0 * 2**k, "model": 1010.0 * 2**k},
             "time_error": 0.01 * (k - 4), "stall_error": 0.005 * (k == 6), "mismatches": ["b 2 event"] * (k in (1, 5))}
            for k in range(8)]
SMALL = ["rtt_ms=0.05", "warmup_rtts=2", "measured_rtts=4", "seed=1", "loss=0,0.01", "scheme=adamap,oracle"]
PATHS = {"a <short> path": Experiment(rtt_ms=0.1, loss=0.01)}
# A window has a minimum width, so the page is made as narrow as a phone.
PROBE = """<script>document.documentElement.style.width = 'WIDTHpx'; document.title = JSON.stringify({
  page: document.body.scrollWidth,
  drawn: [...document.querySelectorAll('figure')].map(figure => figure.getBoundingClientRect().height),
  lines: [...document.querySelectorAll('figure svg')].map(svg => [...svg.querySelectorAll('path')]
    .filter(path => path.getBoundingClientRect().width > 20).length)})</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the page of small sweeps."""
    compile_once(result)
    folder = tmp_path_factory.mktemp("report")
    compared = folder / "calibration.json"
    compared.write_text(json.dumps(COMPARED))
    assert build(folder / "report.html", folder, SMALL, command="weft report", scheduler=None, jobs=2,
                 paths=PATHS, calibration=compared) == []
    return folder / "report.html"


def test_page_has_every_figure_and_command_and_nothing_external(page):
    text = page.read_text(encoding="utf-8")
    assert re.findall(r'<section id="(\w+)">', text) == list(FIGURES)
    assert re.findall(r'<li><a href="#(\w+)">', text) == list(FIGURES)
    assert text.count("<svg") == len(FIGURES) - 1 and text.count("<table>") == 1
    assert text.count("weft sweep --plan ") == 4
    assert "a &lt;short&gt; path" in text
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text) and "<script" not in text and "url(http" not in text


def test_pictures_have_their_conditions_and_ours_in_front(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("100 Gb/s, RTT 0.05 ms, PMTU 4096, QPs 1<") == 1      # goodput; the other plans differ
    assert text.count(">100 Gb/s, RTT 0.05 ms, PMTU 1024<") == 1            # memory, over QPs
    assert "adamap (Weft)" in text
    rows = [{"loss": loss, "scheme": scheme, "goodput": 1.0}
            for scheme in ("adamap", "oracle", "dcp") for loss in (0, 1)]
    _, axes = pyplot.subplots()
    lines(axes, rows, "loss", lambda row: row["goodput"], "scheme")
    ours, *others = axes.get_lines()
    pyplot.close()
    assert ours.get_label() == "adamap (Weft)" and all(ours.get_zorder() > other.get_zorder() for other in others)
    assert any(ours.get_linewidth() < other.get_linewidth() for other in others)      # an equal line stays visible


def test_calibration_is_shown_as_numbers(page):
    text = page.read_text(encoding="utf-8")
    assert "Largest error of 4 test scenarios: 3.00% in time, 0.50% in cycles of waiting. 1 of their sequences" in text
    assert "4 test scenarios" in text and "<code>weft calibrate</code>" in text


def test_page_without_calibration_names_its_command():
    figure = calibration(None)
    assert "No comparison has run here yet" in figure.text and figure.command == "weft calibrate"


@pytest.mark.parametrize("content", ["", "{}x", '[{"name": "no figures"}]', "3", '[{"cycles": 3}]'])
def test_invalid_calibration_is_rejected_and_kept(content, tmp_path):
    compared = tmp_path / "calibration.json"
    compared.write_text(content)
    with pytest.raises(BadTable, match="move it away"):
        build(tmp_path / "report.html", tmp_path, SMALL, command="", scheduler=None, jobs=1, calibration=compared)
    assert compared.read_text() == content and not (tmp_path / "report.html").exists()


def test_invalid_setting_is_rejected(tmp_path):
    with pytest.raises(BadPlan, match="speed"):
        build(tmp_path / "report.html", tmp_path, ["speed=1"], command="", scheduler=None, jobs=1)


@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_draws_every_figure(page, width, tmp_path):
    need("chromium")
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text(encoding="utf-8").replace(
        "</body>", f"{PROBE.replace('WIDTH', str(width))}</body>"), encoding="utf-8")
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
         "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,900",
         "--dump-dom", probed.as_uri()],
        capture_output=True, text=True, timeout=300, check=True)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line], done.stderr
    seen = json.loads(re.search(r"<title>(.*?)</title>", done.stdout)[1])
    assert 0 < seen["page"] <= width, "the page is wider than the screen"
    assert len(seen["drawn"]) == len(FIGURES) and min(seen["drawn"]) > 40, seen
    assert len(seen["lines"]) == len(FIGURES) - 1 and min(seen["lines"]) > 5, seen
