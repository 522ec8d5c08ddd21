"""Tests that run commands of minutes or hours in a small form: sizes and the design are replaced, all else runs.

Arguments that no small form has reach a function that is replaced.
"""

import pytest
import typer
from typer.testing import CliRunner

from weft.hdl.contract import params
from weft.tb.app.machine.settings import BACKENDS
from weft.tb.cli import app
from weft.tb.sim.flow import build, figures
from weft.tb.sim.synth import mapped, place, synth
from weft.tb.test.sim.synth.test_synth import DESIGN
from weft.tb.verify.linux import run as machines
from weft.tb.verify.mutate import campaign, coverage, subsystems
from weft.tb.verify.mutate import run as mutation
from weft.tb.verify.mutate.subsystems import COUNT, SEED, Target
from weft.tb.verify.soak import runs

ADDER = "tb/test/verify/mutate/test_mutate.py"
ADDERS = (Target("adder", "adder", (ADDER,), (f"{ADDER}::test_adder[all_sums]",)),)
# Replaced values, (module, name, value), and commands with words of their output.
FORMS = {
    "coverage": ([], {"weft coverage --only tb/test/hdl/ring/test_status.py": "ring "}),
    "mutants": ([(mutation, "TARGETS", ADDERS), (mutation, "SUBSYSTEMS", ("adder",)),
                 (subsystems, "SUBSYSTEMS", ("adder",)), (campaign, "LEAST_PER_SUBSYSTEM", 1),
                 (mutation, "explained", dict)],
                {"weft mutants --count 2": "tests 2/2 ", "weft mutants --only adder --count 2": "adder "}),
    "soak": ([(runs, "BAD_LINK_SEEDS", []), (runs, "job", runs.operations), (runs, "OPERATIONS_COUNT", 1000)],
             {"weft soak --budget 1": "1 runs in "}),
    "synth": ([(synth, "card_text", lambda params: DESIGN), (place, "REFERENCE", "half"), (place, "TRIES", ((1, 4),))],
              {"weft synth --preset basic --preset full": "report ",
               "weft synth --preset basic --only half --depth 3 --paths 10": "half.add ",
               "weft synth --preset basic --place --only half": "1.00 ",
               "weft bench --only synth": "synth_worst_path_ns"}),
}

# Command line: module and name of its function, and the arguments.
ARGUMENTS = {
    "weft coverage": (coverage, "run", ([],)),
    "weft linux": (machines, "run", (BACKENDS,)),
    "weft mutants": (mutation, "run", ([], COUNT, SEED, 2)),
    "weft soak": (runs, "run", (600,)),
    "weft verilog --preset basic --straddle": (build, "card_text", (params.preset("basic").with_(straddle=True),)),
}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Keep the results of commands in a folder of the test."""
    for module, name in ((coverage, "FOLDER"), (coverage, "ANNOTATED"), (campaign, "KEPT"), (mutation, "REPORT"),
                         (figures, "REPORT"), (mapped, "KEPT"), (synth, "REPORT"), (place, "BUILD_ROOT")):
        monkeypatch.setattr(module, name, tmp_path / f"{module.__name__}.{name}")
    mapped.KEPT.mkdir()


@pytest.mark.parametrize("name", FORMS)
def test_small_form(name, results, monkeypatch, capfd):
    changes, commands = FORMS[name]
    for change in changes:
        monkeypatch.setattr(*change)
    for command, words in commands.items():
        done = CliRunner().invoke(app, command.split()[1:])
        assert done.exit_code == 0 and words in done.stdout, f"{done.output}{capfd.readouterr()}"


@pytest.mark.parametrize("command", ARGUMENTS)
def test_arguments_reach_the_function(command, monkeypatch, tmp_path):
    module, name, expected = ARGUMENTS[command]
    seen = []

    def called(*arguments):
        seen.append(arguments)
        raise typer.Exit(3)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, name, called)
    done = CliRunner().invoke(app, command.split()[1:])
    assert done.exit_code == 3, done.output
    assert seen == [expected]


def test_a_file_without_benches_is_named(results, capfd):
    done = CliRunner().invoke(app, ["coverage", "--only", "tb/test/cli/test_ci.py"])
    assert done.exit_code == 2 and "test_ci.py runs under Verilator" in capfd.readouterr().err + done.output


def test_a_missing_bench_is_named():
    done = CliRunner().invoke(app, ["coverage", "--only", "tb/test/hdl/none.py"])
    assert done.exit_code == 2 and "the benches are in tb/test/hdl" in done.output
