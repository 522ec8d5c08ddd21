"""A Linux guest of an unmodified QEMU binds the card to vfio-pci and runs the driver, the example and the survey."""

import contextlib
import signal
import subprocess
import threading

import pytest

from weft.driver.verbs import device_list
from weft.driver.verbs.config import ContextConfig
from weft.driver.verbs.device import add_device, remove_device
from weft.hdl.contract import pci
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.system import tools_expected
from weft.tb.test.app.machine.guest_program import ROUNDS
from weft.tb.test.app.machine.linux_guest import command
from weft.tb.test.app.machine.test_machine import CONFIG, running
from weft.tb.test.driver.vfio_user.client import guest_device
from weft.tb.test.examples import load
from weft.tb.verify.interop.packages import NoPackage

GUEST_LIMIT_S, LIMIT_S = 300, 1500       # of the guest; and with the packages, which are fetched once
RUNS = 2
# QEMU shows an endpoint on the root bus as one that is integrated there, without a link.
OF_QEMU = {pci.EXPRESS + at for at in (2, *range(12, 20), *range(44, 52))}


def serve(example, client, failures):
    """Be the server of the guest's program, on the other host."""
    device = guest_device(client)
    name = add_device(device, mac=0x02_0000_0000_01, ip=0x0A00_0001, config=ContextConfig(**CONFIG))
    try:
        for _ in range(RUNS):
            example.server("10.0.0.1")
        remove_device(name)
        device.close()
    except BaseException as error:
        failures.append(error)
    finally:
        device_list._devices.pop(name, None)


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


def test_a_linux_guest_drives_the_card(tmp_path):
    with limit(LIMIT_S):
        run(tmp_path)


def run(tmp_path):
    console, failures = tmp_path / "console", []
    try:
        guest = command(tmp_path / "a.sock", console)
    except NoPackage as problem:
        if tools_expected():
            raise
        pytest.skip(str(problem))
    with running(tmp_path, "--preset", "test") as machine:
        client = machine.client("b")
        thread = threading.Thread(target=serve, args=(load("ping_pong"), client, failures), daemon=True)
        thread.start()
        try:
            lines = lines_of(guest, console)
            thread.join(60)
            assert not failures and not thread.is_alive()
        finally:
            client.close()
        for _ in range(2):
            machine.until("the machine has left")
        report = machine.end()
    print("\n".join(lines), report, sep="\n")
    rounds = [line for line in lines if line.startswith("rounds ")]
    assert len(rounds) == RUNS and all(line.startswith(f"rounds {ROUNDS},") for line in rounds)
    surveys = [line for line in lines if line.startswith("card ")]
    assert "it is not bound to vfio-pci; as root: echo vfio-pci > " in surveys[0] and "ready, by VFIO" in surveys[1]
    assert "unbound" in lines and not [line for line in lines if line.startswith("failed")]
    assert "the card stops" not in report
    # Linux reads the configuration space that the description has, but for what QEMU and Linux set.
    space = bytes.fromhex(next(line for line in lines if line.startswith("space ")).split()[1])
    values, writable, clearable = pci.configuration(pci.card_function(preset("test")))
    differing = [at for at in range(len(space)) if (space[at] ^ values[at]) & ~writable[at] & ~clearable[at] & 0xFF]
    assert set(differing) <= OF_QEMU and len(space) == pci.CONFIG_BYTES
