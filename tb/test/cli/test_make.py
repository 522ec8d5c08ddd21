"""Tests of the Makefile: variables that it passes on, variables that it rejects, and a moved checkout."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.tb.test.cli.make_variables import make_variables
from weft.tb.test.verify.document.command_table import TABLE, TARGET, TARGETS, TIERS

ROOT = Path(__file__).resolve().parents[3]
GIVEN = {"FILE": "it's  a file", "LOSS": "0.5", "REORDER": "0.1", "DUP": "0.2", "CORRUPT": "0.3", "BACK_LOSS": "1",
         "BACK_REORDER": "0", "BACK_DUP": "0.4", "BACK_CORRUPT": "x", "RTT_US": "3", "QPS": "2", "SEED": "9",
         "PMTU": "256", "SIM": "icarus", "PRESET": "basic", "BACKEND": "model", "HOSTS": "4", "FABRIC": "incast-3",
         "CONGESTION": "swift", "PFC": "3"}
FLAGS = {"STRADDLE": "1", "MAC_CLOCK": "yes", "TIMELINE": "true"}


def make(*words, folder=ROOT, **environment):
    """Return the commands of make in a checkout that is set up: status, lines of output and of errors."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name not in GIVEN}
    done = subprocess.run(["make", "--dry-run", "--no-print-directory", *words], cwd=folder, capture_output=True,
                          text=True, env={**clean, **environment})
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


def weft(*words, **environment):
    """Return the words of the ``weft`` command that make would run."""
    status, lines, errors = make(*words, **environment)
    assert status == 0, errors
    from_make, program, *command = shlex.split(lines[-1])
    assert (from_make, program) == ("WEFT_MAKE=1", ".venv/bin/weft")
    return command


def test_variables_are_the_settings_of_the_main_job():
    """``make`` must start fast, so the Makefile has a copy of the list."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", "")
    values, flags = (re.search(rf"^{name} := (.*)$", text, re.MULTILINE)[1].split() for name in ("PARAMETERS", "FLAGS"))
    assert (values, flags) == make_variables()
    assert set(GIVEN) == set(values) and set(FLAGS) == set(flags) - {"WAVES"}


@pytest.mark.parametrize(("target", "more"), [("sim", []), ("wave", ["--waves", "--view"])])
def test_every_parameter_is_passed_on(target, more):
    for command in (weft(target, *(f"{name}={value}" for name, value in GIVEN.items())), weft(target, **GIVEN)):
        name, *words = command
        assert name == "sim" and words[len(words) - len(more):] == more
        words = words[:len(words) - len(more)]
        assert dict(zip(words[::2], words[1::2], strict=True)) == {
            f"--{name.lower().replace('_', '-')}": value for name, value in GIVEN.items()}


def test_unset_variables_use_the_defaults_of_the_command():
    assert weft("sim") == ["sim"] and weft("bench") == ["bench"]
    assert weft("sim", "WAVES=1") == ["sim", "--waves"] and weft("sim", "WAVES=0") == ["sim"]
    assert weft("wave", "WAVES=1") == ["sim", "--waves", "--view"]
    assert weft("sim", "TIMELINE=no") == ["sim"]


def test_flags_are_passed_on():
    flags = ["--straddle", "--mac-clock", "--timeline"]
    assert weft("sim", *(f"{name}={value}" for name, value in FLAGS.items())) == ["sim", *flags]
    assert weft("wave", **FLAGS) == ["sim", *flags, "--waves", "--view"]


def test_parts_and_presets_are_passed_on():
    assert weft("bench", "ONLY=line-rate latency") == ["bench", "--only", "line-rate", "--only", "latency"]
    assert weft("formal", "ONLY=window") == ["formal", "--only", "window"]
    assert weft("synth", "PRESET=full") == ["synth", "--preset", "full"]
    assert "for preset in 'full'; do" in make("verilog", "PRESET=full")[1][-1]
    assert "for preset in test basic full; do" in make("verilog")[1][-1]


@pytest.mark.parametrize(("words", "message"), [
    (["sim", "loss=.9"], "loss is not a parameter; they are FILE LOSS"),
    (["sim", "loss=.9"], "; did you mean LOSS?"), (["sim", "LOS=.9"], "; did you mean LOSS?"),
    (["sim", "DELAY=3"], " PYTEST_ARGS PYTHON.  Stop."),
    (["wave", "TTR_US=3"], "TTR_US is not a parameter"),
    (["sim", "WAVES=2"], "WAVES is '2'; it must be 0 or 1"),
    (["sim", "STRADDLE=maybe"], "STRADDLE is 'maybe'; it must be 0 or 1"),
    (["bench", "only=latency"], "only is not a parameter"),
])
def test_misspelled_variable_is_rejected(words, message):
    status, lines, errors = make(*words)
    assert status == 2 and not lines and len(errors) == 1 and message in errors[0]


@pytest.fixture
def checkout(tmp_path):
    """Create a checkout in a path with spaces whose environment seems up to date."""
    folder = tmp_path / "a  checkout"
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    for name in ("bin/python", ".sim", ".dev"):
        (folder / ".venv" / name).touch()
    (folder / ".venv/pyvenv.cfg").write_text(f"home = /usr/bin\ncommand = /usr/bin/python3 -m venv {folder}/.venv\n")
    return folder


@pytest.mark.parametrize("target", ["sim", "test"])
def test_moved_or_copied_environment_is_rebuilt(checkout, tmp_path, target):
    def installs(folder):
        status, lines, errors = make(target, folder=folder)
        assert status == 0, errors
        cleared = ["venv --clear" in line for line in lines]
        installed = ["pip install" in line for line in lines]
        assert any(cleared) == any(installed)
        return any(cleared) and cleared.index(True) < installed.index(True)

    assert not installs(checkout)
    shutil.copytree(checkout, tmp_path / "copy")
    assert installs(tmp_path / "copy") and not installs(checkout)
    assert installs(checkout.rename(tmp_path / "moved"))


@pytest.mark.parametrize("target", [name for name, place in TARGETS.items() if place in (TARGET, TIERS)])
def test_a_target_runs_commands_with_a_test(target, checkout):
    """A target may take hours; each command of its recipe has a test of its size."""
    status, lines, errors = make(target, folder=checkout)
    assert status == 0, errors
    commands = re.findall(r"\.venv/bin/(weft [\w-]+|python -m [\w.]+|\w+)", "\n".join(lines))
    assert commands and set(commands) <= set(TABLE), commands


def test_clean_keeps_the_environment_only(checkout):
    for folder in ("sim_build/reports", "build", "hdl/__pycache__", ".venv/lib/__pycache__"):
        (checkout / folder).mkdir(parents=True)
    done = subprocess.run(["make", "clean"], cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in checkout.iterdir()) == [".venv", "Makefile", "constraints.txt", "hdl",
                                                                "pyproject.toml"]
    assert not list((checkout / "hdl").iterdir()) and (checkout / ".venv/lib/__pycache__").is_dir()
