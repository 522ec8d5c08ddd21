"""Tests that run the commands of three pages in order, and check the options of all commands of ``weft``."""

import contextlib
import itertools
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.cli import app
from weft.tb.test.system import need
from weft.tb.test.verify.document.command_table import PAGE, TABLE
from weft.tb.test.verify.document.commands import DOCUMENTS, PAGES, ROOT, blocks, inline, keys

LIMIT_S, FIRST_TRIES_S, SOON_S = 180, 120, 10
OTHERS, OF_PROGRAMS = ("ib_write_bw", "ibv_rc_pingpong", "rping"), ("fio", "mpicc.mpich")
ITERATIONS = 200                                                # of perftest; a reader runs 5000
# TCP port of the programs; two pages may run at the same time.
PORT = 26800 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])


def here(line):
    """Return whether a line of a page runs in its test of pages."""
    return TABLE[keys(line)[0]] == PAGE


def options(words):
    """Return the options of the `weft` command that ``words`` begin with."""
    command = typer.main.get_command(app)
    for word in words:
        if not hasattr(command, "commands"):
            break
        assert word in command.commands, f"no command: weft {' '.join(words)}"
        command = command.commands[word]
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_options_of_commands_exist(document):
    text = DOCUMENTS[document]
    for line in (line for line in (*inline(text), *itertools.chain(*blocks(text)))
                 if re.match(r"(\.venv/bin/)?weft ", line)):
        words = shlex.split(line.replace("...", ""))[1:]
        own = words[:words.index("--")] if "--" in words else words
        known = options(own)
        for word in own:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, f"{document}: {line}"


def link_kept(folder):
    """Link what this checkout keeps to a folder for results: libraries, machine code, and Verilog of cards."""
    for name in ("ibverbs", "numba", "verilog"):
        kept = LIBRARY_FOLDER.absolute().with_name(name)
        kept.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(kept)


class Page:
    """Runs the commands of a page one after the other, as a reader does who waits for each.

    A background command that is not a `weft serve` is the server of the next command. The next command is repeated
    until it succeeds and the server has ended, with status 0.
    """

    def __init__(self, folder):
        self.folder, self.daemon, self.server = folder, None, None
        (folder / "sim_build").mkdir()
        link_kept(folder / "sim_build")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "WEFT_BUILD": str(folder / "sim_build")}

    def run(self, line):
        background = line.endswith("&")
        command = line.removesuffix("&").replace(".venv/bin/", "").replace(
            "make ibverbs", f"make --no-print-directory -C '{ROOT}' ibverbs").replace(
            "PREFIX=", f"PREFIX={self.folder}/").replace("ib_write_bw", f"ib_write_bw -n {ITERATIONS}").replace(
            "tb/verify/", f"{ROOT}/tb/verify/")
        command = re.sub("ib_write_bw|ibv_rc_pingpong", rf"\g<0> -p {PORT}", command)
        if re.match("weft serve", command):
            self._serve(command)
        elif background:
            self.server = self._start(command)
        else:
            self._wait(command)

    def _start(self, command):
        one = f"exec {command}" if command.startswith("weft") else command      # so that a signal reaches it
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(["bash", "-c", one], cwd=self.folder, env=self.environment, stdout=log, stderr=log,
                                    start_new_session=True)

    def _serve(self, command):
        self.end()
        words = shlex.split(command)
        folder = words[words.index("--folder") + 1] if "--folder" in words else "sim_build/serve"
        hosts = words[words.index("--hosts") + 1].split(",")
        self.daemon = self._start(command)
        deadline = time.monotonic() + LIMIT_S
        while not all((self.folder / folder / f"{host}.sock").is_socket() for host in hosts):
            assert self.daemon.poll() is None and time.monotonic() < deadline, self._printed(command)
            time.sleep(0.05)

    def _wait(self, command):
        """Run a command; with a server, until it reaches that. fio ends with status 0 if it cannot connect."""
        deadline = time.monotonic() + FIRST_TRIES_S
        while True:
            status = self._ended(self._start(command), LIMIT_S)
            if status == 0 and (not self.server or self._ended(self.server, SOON_S) is not None):
                break
            assert self.server and self.server.poll() is None and time.monotonic() < deadline, self._printed(command)
            time.sleep(0.2)
        if self.server:
            assert self.server.returncode == 0, self._printed(command)
        self.server = None

    @staticmethod
    def _ended(process, limit_s):
        """Return the exit status of a command, or None if it does not end in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(limit_s)

    def _printed(self, command):
        return f"{command}\n{(self.folder / 'log').read_text(errors='replace')}"

    def end(self):
        """End server and daemon; the daemon ends with status 0."""
        for process, number in ((self.server, signal.SIGKILL), (self.daemon, signal.SIGINT)):
            if process:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                status = process.wait(LIMIT_S)
                assert process is self.server or status == 0, self._printed("weft serve")
        self.daemon = self.server = None


@pytest.mark.parametrize("document", PAGES)
def test_commands_of_a_page_run(document, tmp_path):
    for program in OF_PROGRAMS if document == "docs/programs.md" else OTHERS:
        need(program)
    page = Page(tmp_path)
    try:
        for block in blocks(DOCUMENTS[document]):
            if all(here(line) for line in block if "weft serve" in line):       # otherwise its hosts are missing
                for line in filter(here, block):
                    page.run(line)
    finally:
        page.end()


def test_the_registers_of_a_board_are_read_as_on_the_page(tmp_path):
    """A file takes the place of BAR 2."""
    [command] = [line for block in blocks(DOCUMENTS["docs/hardware.md"]) for line in block if "python3 -c" in line]
    _, resource, _ = re.split("('/sys/[^']*')", command)
    registers = (0x5746_0001, 0x11, 0x7)
    (tmp_path / "resource2").write_bytes(struct.pack("<3Q", *registers).ljust(4096, b"\0"))
    command = command.replace(resource, f"'{tmp_path}/resource2'")
    shown = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert shown.stdout.split() == [hex(word) for word in registers], shown.stderr
