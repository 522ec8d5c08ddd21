"""A short test with a real Linux guest and rxe; ``weft interop`` runs more."""

import contextlib
import json
import re
import time

import pytest
from typer.testing import CliRunner

from weft.tb.cli import app
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.test.system import absence, need
from weft.tb.test.verify.document import commands
from weft.tb.verify.interop import cases, image, suite
from weft.tb.verify.interop import guest as guests
from weft.tb.verify.interop.guest import GATEWAY, GuestFailed, booted
from weft.tb.verify.interop.image import NoPackage

PROGRAM = "qemu-system-x86_64"


@pytest.fixture(scope="module")
def guest():
    need(PROGRAM)
    try:
        found = booted()
    except NoPackage as error:
        if tools_expected():
            raise
        pytest.skip(str(error))
    with found:
        yield found


@pytest.fixture
def interop(guest, monkeypatch):
    """Return a function that runs ``weft interop`` with the guest of this module, and returns its lines."""
    monkeypatch.setattr(guests, "booted", lambda: contextlib.nullcontext(guest))

    def run(*options):
        done = CliRunner().invoke(app, ["interop", *options])
        assert done.exit_code == 0, f"{done.output}{done.exception!r}"
        return done.stdout.splitlines()

    return run


def test_linux_exchanges_data_with_the_endpoint_and_the_card(interop):
    *printed, _ = interop("--short")
    assert len(printed) == 3 and ", 0 frames lost" not in printed[0], printed


def test_perftest_in_the_guest_reaches_the_server(interop):
    printed, _ = interop("--only", "perftest against weft soft-server")
    assert all(f"{test} " in printed for test in cases.TESTS)


def test_the_guest_is_set_up_as_on_the_page(interop):
    """The commands for a guest of the page are in the first script of the guest, but for the program."""
    [block] = [lines for lines in commands.blocks(commands.DOCUMENTS["docs/software.md"])
               if lines[0].startswith("ip addr add 10.0.0.11/24 dev eth0")]
    script = image.INIT.read_text()
    assert all(re.search(rf"^{re.escape(line)}", script, re.MULTILINE) for line in block[:-1])
    assert block[-1].endswith(GATEWAY) and block[-1].split()[0] in cases.TESTS


def test_an_unknown_case_is_refused(interop):
    refused = CliRunner().invoke(app, ["interop", "--only", "nothing"])
    assert refused.exit_code == 2 and "perftest against weft soft-server" in refused.output


def test_suite_runs_on_rxe_and_its_deviations_are_named(guest, monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "BUILD_ROOT", tmp_path)
    first, *more = suite.suite_on_rxe(guest, ("wrong_rkey", "wrong_lkey", "registration_is_changed")).splitlines()
    counts = [int(number) for number in re.findall(r"\d+", first)[:4]]
    [found] = json.loads((tmp_path / suite.REPORT).read_text())
    verdicts = [case["status"] for case in found["cases"]]
    assert counts == [verdicts.count("PASS"), 3, verdicts.count("FAIL"), verdicts.count("UNSUPPORTED")], first
    assert counts[0] + len(more) == 3 and found["kernel"] in first and len(found["kernel"]) > 3
    assert all(re.fullmatch(r"(deviation|unsupported): \w+: .+ \[(IBTA|ibv_).+\]", line) for line in more), more
    with pytest.raises(GuestFailed, match="status 512; its last lines: .*no case has a name"):
        suite.suite_on_rxe(guest, ("no_such_case",))


def test_silent_guest_is_given_up(guest):
    def step():
        time.sleep(0.01)
    with pytest.raises(GuestFailed, match="is silent"):
        guest.answer(step, seconds=0.1)
    assert guest.ask(step, "sh true") == "status 0" and guest.ask(step, "nonsense") == "unknown nonsense"
    guest.ask(step, "open")
    with pytest.raises(GuestFailed, match="failed connect"):
        guest.ask(step, "connect 1 2 3 9 9 9")


def test_missing_part_raises_a_sentence():
    assert absence(PROGRAM).endswith("apt-get install qemu-system-x86")
