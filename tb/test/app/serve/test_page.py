"""Tests of the page about served programs: its commands run, and its numbers are those of the code."""

import contextlib
import importlib
import inspect
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from weft.driver.serve.quota import OF_ALL, OF_ONE, ResourceKind
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.test.app.serve.test_simulated_time import perftest
from weft.tb.verify.programs.namespaces import ADDRESSES, namespaces
from weft.tb.verify.programs.session import LOOK_S

ROOT = Path(__file__).resolve().parents[4]
NEEDED = ("ib_write_bw", "ibv_devinfo", "rping")
LIMIT_S, PORT = 300, 18515
# A user types one line after the other and reads the output; here a command that comes too early is retried.
START = r"""
set -eu
trap 'kill $pids 2> /dev/null || true; wait' EXIT
pids=
again() { for n in $(seq 200); do if "$@"; then return 0; fi; sleep 0.1; done; return 1; }
"""
# Names of the page's two machines, and a namespace for each.
MACHINES = {"one.example": "a", "other.example": "b"}
CAMPAIGN = "python -m weft.tb.verify.programs."


def page():
    return (ROOT / "docs/serve.md").read_text()


def blocks():
    """Return the shell blocks of the page."""
    return re.findall(r"^```sh\n(.*?)^```", page(), re.MULTILINE | re.DOTALL)


def commands():
    """Return the commands of the page, without comments and installation of packages."""
    lines = (re.sub(r" +#.*", "", line) for block in blocks() for line in block.splitlines())
    return [line for line in lines if not line.startswith("apt-get")]


def script(folder):
    """Return a script of all commands but the campaigns, in order, with short runs; output goes to ``folder``."""
    lines = [START]
    for line in commands():
        if CAMPAIGN in line:
            continue
        line = line.replace("sim_build/", f"{folder}/")
        for name in ("ib_write_bw", "ibv_rc_pingpong"):
            line = line.replace(f"-- {name}", f"-- {name} -n 20")
        if "weft serve" in line:
            lines.append("kill $pids 2> /dev/null || true; wait; pids=")      # earlier programs have ended
            line = line.replace("--backend rtl", "--backend model")           # `make programs` has programs on RTL
        lines.append(f"again {line}" if "weft run" in line else line)
        if line.endswith("&"):
            lines.append('pids="$pids $!"')
    return "\n".join([*lines, "echo every command has run"]) + "\n"


def test_every_command_of_the_page_runs(library, tmp_path, needs_namespaces):
    if (absent := [name for name in NEEDED if shutil.which(name) is None]) and not tools_expected():
        pytest.skip(f"{absent} are missing; the page names their packages")
    build, printed = tmp_path / "build", tmp_path / "said"
    shutil.copytree(library.parent, build / "ibverbs")
    with needs_namespaces(), namespaces() as spaces, printed.open("w") as output:
        done = subprocess.run(spaces.inside("a", ["bash", "-c", script(build)]), cwd=ROOT, stdout=output,
                              env=os.environ | {"WEFT_BUILD": str(build)}, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    assert done.returncode == 0, printed.read_text()
    assert "every command has run" in printed.read_text()


def daemons_of_two_machines():
    """Return the commands for each machine, by its namespace; each names the other machine."""
    lines = re.findall(r"^weft serve .*--link udp:.*$", page(), re.MULTILINE)
    lines = [re.sub(r" +&.*", "", line).replace("weft ", ".venv/bin/weft ", 1) for line in lines]
    others = [next(machine for machine in MACHINES if machine in line) for line in lines]
    return {next(space for machine, space in MACHINES.items() if machine != other):
            shlex.split(line.replace(other, ADDRESSES[MACHINES[other]]))
            for line, other in zip(lines, others, strict=True)}


def test_program_runs_between_the_two_machines_of_the_page(library, tmp_path, needs_namespaces):
    program = perftest("ib_write_bw", "-n", "20")
    build = tmp_path / "build"
    shutil.copytree(library.parent, build / "ibverbs")
    options = {"cwd": ROOT, "env": os.environ | {"WEFT_BUILD": str(build)}, "stdin": subprocess.DEVNULL,
               "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with needs_namespaces(), namespaces() as spaces, contextlib.ExitStack() as undo:
        def start(space, *command):
            started = subprocess.Popen(spaces.inside(space, command), **options)
            undo.callback(started.communicate)
            undo.callback(started.terminate)
            return started

        def run(space, *command):
            return start(space, ".venv/bin/weft", "run", "--host", space, "--", *command)

        commands = daemons_of_two_machines()
        assert commands.keys() == {"a", "b"}
        for space, command in commands.items():
            daemon = start(space, *command)
            while not (printed := daemon.stdout.readline()).startswith(f"hosts {space} "):
                assert printed, daemon.wait()
        server = run("b", *program.command(PORT))
        listens = spaces.inside("b", ["sh", "-c", f"ss -Hltn 'sport = {PORT}' | grep -q ."])
        while server.poll() is None and subprocess.run(listens, check=False).returncode:
            time.sleep(LOOK_S)
        client = run("a", *program.command(PORT, ADDRESSES["b"]))
        output, _ = client.communicate(timeout=LIMIT_S)
        assert client.returncode == 0, output
        assert program.read(output) > 0
        assert server.wait(LIMIT_S) == 0


def test_campaigns_of_the_page_are_tested_in_short_form():
    campaigns = [line for line in commands() if CAMPAIGN in line]
    assert campaigns and not any("python -m" in line for line in commands() if line not in campaigns)
    for line in campaigns:
        module, count = re.search(r"-m (weft\.[\w.]+) (\d+)$", line).groups()
        loaded = importlib.import_module(module)
        assert line.strip() == loaded.COMMAND.format(count=count, seed="").strip()
        assert inspect.signature(loaded.main).parameters["count"].default == int(count)


def test_the_limits_are_those_of_the_code():
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (.*) \|$", page().partition("## Limits")[2], re.MULTILINE))
    for name, subject in (("objects", ResourceKind.OBJECTS), ("registered memory", ResourceKind.MEMORY),
                          ("rings", ResourceKind.RINGS),
                          ("slots for work requests", ResourceKind.REQUESTS), ("mapped files", ResourceKind.MAPPINGS),
                          ("descriptors", ResourceKind.DESCRIPTORS), ("unread events", ResourceKind.EVENTS)):
        one, of_all = rows[name].split(" | ")
        assert number(one) == OF_ONE[subject]
        assert number(of_all) in (OF_ALL[subject], None)


def number(text):
    """Return the number in ``4 GiB`` or ``65 536``, or None for words."""
    value, unit = re.fullmatch(r"([\d ]*)(.*)", text).groups()
    return int(value.replace(" ", "")) << (30 if unit == "GiB" else 0) if value else None


def test_options_of_the_page_are_shell_words():
    assert all(shlex.split(line, comments=True) for block in blocks() for line in block.splitlines())
