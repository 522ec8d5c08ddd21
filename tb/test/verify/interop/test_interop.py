"""A short test with a real Linux guest and rxe; ``weft interop`` runs more."""

import json
import re
import time

import pytest

from weft.tb.sim.flow.system import tools_expected
from weft.tb.test.system import absence, need
from weft.tb.verify.interop import cases, suite
from weft.tb.verify.interop.guest import GuestFailed, booted
from weft.tb.verify.interop.packages import NoPackage

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


def test_linux_exchanges_data_with_the_endpoint_and_the_card(guest):
    printed = []
    cases.run(guest, cases.cases(short=True), printed.append)
    assert len(printed) == 3 and ", 0 frames lost" not in printed[0], printed


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
