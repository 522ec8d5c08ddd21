"""Conformance suite on the guest's rxe."""

import json
import select
from collections import Counter

from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.verify.conformance import c_suite, devices

from .environments import MOMENT_S
from .guest import GuestFailed

REPORT = "reports/conformance-rxe.json"
SUITE_S, CASE_S = 1800, 120     # for a machine under load
IN_GUEST = "/tmp/cases.json"
ENDED = ("status 0", "status 256")      # of wait(2): no case has failed, or some


def suite_on_rxe(guest, only=()):
    """Run the suite, and save its results; return the numbers of verdicts, and a line for each case that fails.

    A case that fails is a deviation of rxe from the rule of that case, and no failure here. ``only`` has names as
    those of ``weft conformance --only``.
    """
    words = " ".join(f"--only {name}" for name in only)
    status, lines = _asked(guest, f"timeout -s KILL {SUITE_S} /bin/{c_suite.NAME} --device rxe0 --limit {CASE_S} "
                                  f"--json {IN_GUEST} {words}")
    if status not in ENDED:
        raise GuestFailed(f"the conformance suite in the guest: {status}; its last lines: {' | '.join(lines[-3:])}")
    _, (kernel,) = _asked(guest, "uname -r")
    cases = json.loads("".join(_asked(guest, f"cat {IN_GUEST}")[1]))
    devices.save([{"device": "rxe0", "peer": "rxe0", "kernel": kernel, "cases": cases}], BUILD_ROOT / REPORT)
    return summary(cases, kernel)


def summary(cases, kernel):
    """Return the numbers of verdicts, and a line for each case that does not pass."""
    counts = Counter(case["status"] for case in cases)
    first = (f"{counts['PASS']} of {len(cases)} cases pass, deviations: {counts['FAIL']}, "
             f"unsupported: {counts['UNSUPPORTED']}, Linux {kernel}")
    names = {"FAIL": "deviation", "UNSUPPORTED": "unsupported"}
    return "\n".join([first, *(f"{names[case['status']]}: {case['case']}: {case['sentence']} [{case['rule']}]"
                               for case in cases if case["status"] in names)])


def _asked(guest, command):
    """Run a command in the guest; return its status, and the lines that it prints."""
    before = len(guest.output)
    status = guest.ask(lambda: select.select([guest], [], [], MOMENT_S), f"sh {command}", 2 * SUITE_S)
    return status, [line for line in guest.output[before:] if line and not line.startswith("= ")]
