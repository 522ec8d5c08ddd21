"""Unmodified programs in a Linux guest on two cards, which ``weft serve --backend pci`` serves there."""

import subprocess

import pytest

from weft.driver.ibverbs.build import CannotBuild
from weft.tb.sim.flow.system import tools_expected
from weft.tb.test.app.machine.served_guest import command
from weft.tb.test.app.machine.test_linux import LIMIT_S, limit
from weft.tb.test.app.machine.test_machine import running
from weft.tb.verify.interop.packages import NoPackage

GUEST_LIMIT_S = 1200
PASSED = ["passed ibv_rc_pingpong", "passed ib_write_bw", "passed rping", "passed ibv_rc_pingpong"]


def test_programs_in_a_linux_guest(tmp_path):
    with limit(LIMIT_S):
        run(tmp_path)


def lines_of(command, console):
    """Run a guest, and return the lines that its init printed. The test fails unless the guest ends by itself."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as guest:
        try:
            output, _ = guest.communicate(timeout=GUEST_LIMIT_S)
        except subprocess.TimeoutExpired:
            output = f"the guest has not ended after {GUEST_LIMIT_S} s"
        finally:
            guest.kill()
    text = console.read_text(errors="replace") if console.exists() else ""
    lines = [line.removeprefix("= ") for line in text.splitlines() if line.startswith("= ")]
    assert guest.returncode == 0 and lines[-1:] == ["end"], (output, text[-3000:])
    return lines


def run(tmp_path):
    console = tmp_path / "console"
    try:
        guest = command([tmp_path / "a.sock", tmp_path / "b.sock"], console)
    except (CannotBuild, NoPackage) as problem:
        if tools_expected():
            raise
        pytest.skip(str(problem))
    with running(tmp_path, "--preset", "test") as machine:
        lines = lines_of(guest, console)
        for _ in range(2):
            machine.until("the machine has left")
        report = machine.end()
    shown = "\n".join([*lines, report])      # with the lines of the daemon, which begin with "serve"
    assert len([line for line in lines if line.startswith("card ") and line.endswith(": ready, by VFIO")]) == 2, shown
    assert [line for line in lines if line.startswith(("passed", "failed", "kernel"))] == PASSED, shown
    assert any("those of this user may not" in line for line in lines), shown
    # All pages are unpinned when the daemon has ended, also those of the program that was killed.
    acquired, released = next(line for line in lines if line.startswith("pins at end")).split()[3:]
    assert int(acquired) == int(released) > 0 and "daemon ended with 0" in lines, shown
    assert report.count("; 0 unsupported requests, ") == 2 and "the card stops" not in report, shown
