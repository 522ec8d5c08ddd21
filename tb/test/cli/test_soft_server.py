"""Tests of ``weft soft-server``: its port, and the page's commands for a TAP interface."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from weft.tb.cli import app
from weft.tb.cli.soft import IP, MAC
from weft.tb.test.app.serve.conftest import needs_namespaces
from weft.tb.test.driver.soft.test_tap import interface
from weft.tb.test.interrupts import watch_interrupts
from weft.tb.test.verify.document.commands import DOCUMENTS, blocks
from weft.tb.verify.programs.namespaces import namespaces

__all__ = ["needs_namespaces"]      # a fixture
LIMIT_S = 120
REACHED = f"until ip neigh show {IP} dev weft0 | grep {MAC}; do echo > /dev/udp/{IP}/4791; sleep 0.05; done"


def test_a_software_host_needs_a_port_for_its_frames():
    done = CliRunner().invoke(app, ["soft-server"])
    assert done.exit_code == 2 and "give --qemu or --tap" in done.output


@contextlib.contextmanager
def started(command):
    """Start a server with its own process group, which is interrupted at the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=watch_interrupts)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=LIMIT_S)


def test_the_kernel_reaches_a_host_that_is_set_up_as_on_the_page(needs_namespaces):
    """The commands run in a network namespace, and without the last two: they need rxe, and run in the guest."""
    [(server, addresses, *_)] = [block for block in blocks(DOCUMENTS["docs/software.md"])
                                 if "weft soft-server --tap weft0" in block[0]]
    port = interface()
    port.close()
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    with needs_namespaces(), namespaces() as spaces:
        def shell(line):
            return spaces.inside("a", ["env", path, "bash", "-c", line.replace("sudo ", "").replace(".venv/bin/", "")])

        with started(shell(f"exec {server.removesuffix('&')}")) as process:
            assert "clients connect to TCP port 18515" in process.stdout.readline()
            subprocess.run(shell(addresses), check=True)
            subprocess.run(shell(REACHED), check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
