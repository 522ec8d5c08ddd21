"""Tests that run the commands of the documents, and check the options of all others."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.cli import app
from weft.tb.test.system import need
from weft.tb.verify.document import parts

ROOT = Path(__file__).resolve().parents[4]
DOCUMENTS = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in parts.documents(ROOT)}
PAGES = ("docs/serve.md", "docs/direct.md", "docs/faults.md")   # their blocks run here, in order
TUTORIAL = "docs/tutorial.md"                                   # its blocks run in test_documents.py
# Options whose blocks run in app/serve/test_simulated_time.py and test_page.py.
ELSEWHERE_AS_A_BLOCK = ("--backend rtl", "--link udp")
LIMIT_S, FIRST_TRIES_S = 180, 60
ITERATIONS = 200                                                # of perftest; a reader runs 5000
# Pages whose commands need a board, packages or minutes, and tests that run the same or smaller ones.
PAGES_ELSEWHERE = {
    "docs/conformance.md": "verify/conformance/test_suite.py",
    "docs/congestion.md": "model/fabric/test_engine.py",
    "docs/hardware.md": "app/machine/test_serve.py",
    "docs/programs.md": "app/serve/test_programs.py",
}
# Beginnings of the commands that run elsewhere, or cannot run in a test, and where or why.
ELSEWHERE = {
    "apt-get install": "changes the system",
    "docker ": "app/serve/test_containers.py runs the steps of the containers",
    "pip install git+": "needs a published repository; test_package.py installs the wheel",
    ".venv/bin/pip install -c": "the Makefile installs so",
    "make test": "this run",
    "make sim": "app/job/test_entry.py",
    "make wave": "cli/test_make.py",
    ".venv/bin/python -m pytest": "selects tests of this run",
    "WEFT_SEED": "selects tests of this run",
    "WEFT_FRAMES": "selects tests of this run",
    ".venv/bin/weft synth": "sim/synth/test_synth.py",
    ".venv/bin/python -m weft.tb.sim.synth.same_netlist": "sim/synth/test_same_netlist.py",
    ".venv/bin/python -m weft.tb.verify.programs.hostile": "app/serve/test_clients.py",
    ".venv/bin/python -m weft.tb.verify.programs.kills": "app/serve/test_kills.py",
    ".venv/bin/python -m weft.tb.test.driver.serve": "driver/serve/test_direct.py",
    ".venv/bin/weft sim": "app/job/test_timed_job.py",
    ".venv/bin/weft sweep": "app/sweep/test_sweep.py",
    ".venv/bin/weft machine": "app/machine/test_linux.py",
    "qemu-system-x86_64": "app/machine/test_linux.py",
    "weft devices": "app/machine/test_linux.py",
    "0000:": "output",
    ".venv/bin/weft soft-server": "verify/interop/test_interop.py",
    "sudo ": "verify/interop/test_interop.py runs the same in a guest",
    "ip ": "verify/interop/test_interop.py runs the same in a guest",
    "rdma link": "verify/interop/test_interop.py",
    "ib_write_bw -d rxe0": "verify/interop/test_interop.py",
    ".venv/bin/python -m weft.driver.soft.dissector": "driver/soft/test_dissector.py",
    "tshark -X": "driver/soft/test_dissector.py",
}


def blocks(text):
    """Return the commands of each block of a page, without prompts and comments."""
    for block in re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        split = (line.partition(" #")[0].strip().removeprefix("$ ") for line in block.replace("\\\n", " ").splitlines())
        yield [" ".join(line.split()) for line in split if line and not line.startswith("#")]


def lines(text):
    return [line for block in blocks(text) for line in block]


def elsewhere(line):
    return any(line.startswith(beginning) for beginning in ELSEWHERE)


def test_every_command_runs_in_a_test():
    for document, text in DOCUMENTS.items():
        for line in lines(text):
            assert document in (*PAGES, TUTORIAL, *PAGES_ELSEWHERE) or elsewhere(line), f"{document}: {line}"


def test_places_of_other_commands_exist():
    used = [line for text in DOCUMENTS.values() for line in lines(text)]
    for beginning in ELSEWHERE:
        assert any(line.startswith(beginning) for line in used), beginning
    assert set(PAGES_ELSEWHERE) <= set(DOCUMENTS)
    for place in (*ELSEWHERE.values(), *PAGES_ELSEWHERE.values()):
        for file in re.findall(r"[\w/]+\.py", place):
            assert (ROOT / "tb/test" / file).exists(), file


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
    text = re.sub(r"^```.*?^```", "", DOCUMENTS[document], flags=re.MULTILINE | re.DOTALL)
    inline = [" ".join(code.split()) for code in re.findall(r"`((?:\.venv/bin/)?weft [a-z][^`]*)`", text)]
    for line in inline + [line for line in lines(DOCUMENTS[document]) if re.match(r"(\.venv/bin/)?weft ", line)]:
        words = shlex.split(line.replace("...", ""))[1:]
        own = words[:words.index("--")] if "--" in words else words
        known = options(own)
        for word in own:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, f"{document}: {line}"


class Page:
    """Runs the commands of a page one after the other, as a reader does who waits for each.

    A background command that is no `weft serve` is the server of the next command. The next command is repeated until
    the server listens. The server has to end with status 0 after it.
    """

    def __init__(self, folder):
        self.folder, self.daemon, self.server = folder, None, None
        (folder / "sim_build").mkdir()
        (folder / "sim_build/ibverbs").symlink_to(LIBRARY_FOLDER.absolute())
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "WEFT_BUILD": str(folder / "sim_build")}

    def run(self, line):
        background = line.endswith("&")
        command = line.removesuffix("&").replace(".venv/bin/", "").replace(
            "make ibverbs", f"make --no-print-directory -C '{ROOT}' ibverbs").replace(
            "PREFIX=", f"PREFIX={self.folder}/").replace("ib_write_bw", f"ib_write_bw -n {ITERATIONS}")
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
        deadline = time.monotonic() + FIRST_TRIES_S
        while (status := self._start(command).wait(LIMIT_S)) and self.server and time.monotonic() < deadline:
            assert self.server.poll() is None, self._printed(command)
            time.sleep(0.2)
        assert status == 0, self._printed(command)
        if self.server:
            assert self.server.wait(LIMIT_S) == 0, self._printed(command)
        self.server = None

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
    for program in ("ib_write_bw", "ibv_rc_pingpong", "rping"):
        need(program)
    page = Page(tmp_path)
    try:
        for block in blocks(DOCUMENTS[document]):
            if not any(text in line for line in block for text in ELSEWHERE_AS_A_BLOCK):
                for line in block:
                    if not elsewhere(line):
                        page.run(line)
    finally:
        page.end()
