"""A Linux guest of an unmodified QEMU: kernel, configuration space, driver and served programs of functional cards.

The short form of ``make linux``, and its part on the RTL; the rest takes minutes.
"""

import contextlib
import json
import signal

import pytest
from typer.testing import CliRunner

from weft.tb.cli import app
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.test.verify.bench.command import bench
from weft.tb.verify.interop.image import NoImage, NoPackage
from weft.tb.verify.linux import run
from weft.tb.verify.linux.cases import RTL, SHORT
from weft.tb.verify.linux.figures import MEASURED
from weft.tb.verify.linux.image import kernel_and_initrd, qemu

LIMIT_S = 1500      # with the packages, which are fetched once


@contextlib.contextmanager
def limit(seconds):
    """Raise TimeoutError in the main thread after a time. A program that it waits for is ended."""
    def late(*_):
        raise TimeoutError(f"the test has not ended after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def images(tmp_path):
    """Skip the test if QEMU or the guest's packages are missing; with ``CI=true`` the command fails itself."""
    if not tools_expected():
        try:
            qemu()
            kernel_and_initrd(tmp_path)
        except (NoImage, NoPackage) as problem:
            pytest.skip(str(problem))


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("options", [("--short",), ("--backend", "rtl")], ids=" ".join)
def test_a_linux_guest_drives_the_card(options, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(run, "REPORT", tmp_path / "linux.json")
    with limit(LIMIT_S):
        done = CliRunner().invoke(app, ["linux", *options])
    assert done.exit_code == 0, f"{done.output}{capfd.readouterr()}"
    if "rtl" in options:
        assert [row["case"] for row in json.loads(run.REPORT.read_text())] == [case.name for case in RTL]
    else:
        assert done.stdout.count(" passed ") == len(done.stdout.splitlines()) == len(SHORT) == 12


@pytest.mark.usefixtures("images")
def test_figures_of_a_guest(monkeypatch, tmp_path):
    with limit(LIMIT_S):
        rows = bench(monkeypatch, tmp_path, "--only", "linux")
    assert {row["name"] for row in rows} == {"linux_boot", *(name for _, name, _ in MEASURED)}
    assert all(row["value"] > 0 for row in rows)
