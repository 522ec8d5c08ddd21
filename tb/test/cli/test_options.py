"""Tests of every option of every command: help, range, error message; and settings in a command line."""

import random
import shlex

import pytest
import typer
from typer.testing import CliRunner

from weft.model.settings import PMTUS, BadSetting, check, fields, words
from weft.tb.app.job.job import Job
from weft.tb.app.job.job_settings import BACKENDS, SIMULATORS, JobSettings
from weft.tb.app.perf.options import Options
from weft.tb.app.serve.settings import Settings
from weft.tb.cli import app
from weft.tb.cli.options import FROM_MAKE, typed
from weft.tb.sim.flow.seed import drawn_seed

GROUPS = {"": app, **{f"{group.name} ": group.typer_instance for group in app.registered_groups}}
COMMANDS = {f"{words}{name}": command for words, group in GROUPS.items()
            for name, command in typer.main.get_command(group).commands.items() if not hasattr(command, "commands")}
SETTINGS = {words + (command.name or command.callback.__name__.replace("_", "-")): command.callback.settings
            for words, group in GROUPS.items() for command in group.registered_commands}
FIELDS = [(command, field) for command, found in SETTINGS.items() for field in found.values()]
# One command for each option that many commands share.
ONCE = list({id(field): (command, field) for command, field in FIELDS}.values())
# Numbers with another type in the command line.
WORDS = {("soft-server", "mac"): "an address", ("soft-server", "ip"): "an address"} | {
    (command, "duration"): "a time with its unit" for command in SETTINGS if command.endswith(("_bw", "_lat"))}


def refusal(command, field, value, **environment):
    """Return the message that rejects a value of an option."""
    done = CliRunner().invoke(app, [*command.split(), f"{field.names[-1]}={value}"], env=environment)
    assert done.exit_code == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.output
    return done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_a_setting_with_a_help_text(command):
    assert set(COMMANDS) == set(SETTINGS)
    for parameter in COMMANDS[command].params:
        assert parameter.help, parameter.name
        assert parameter.param_type_name == "argument" or parameter.name in SETTINGS[command]


def test_every_number_has_a_range_or_a_reason():
    for command, field in FIELDS:
        if field.kind in (int, float) and (command, field.name) not in WORDS:
            assert field.setting.choices or field.ranged and field.setting.most is not None, (command, field.name)
        if field.default is not None and not field.many:
            field.check(field.default)


def test_help_shows_range_and_choices():
    shown = " ".join(CliRunner().invoke(app, ["sim", "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "0<=x<=1" in shown and "verilator|icarus" in shown and "in microseconds" in shown
    assert "range>" not in shown and shown.count("<bool>") <= 1      # that of typer's --help


@pytest.mark.parametrize(("command", "field"), [one for one in ONCE if one[1].ranged],
                         ids=lambda one: one if isinstance(one, str) else one.name)
def test_value_out_of_range_names_the_option_as_typed(command, field):
    least, most = field.setting.least, field.setting.most
    for value in (least - 1, most + 1):
        sentence = refusal(command, field, value)
        assert sentence.startswith(f"weft: {'/'.join(field.names)} is '{value}'; it must be a ")
        assert sentence.endswith(f" from {least} to {most}\n")
    for text in ("x", "", "1x", str(least - 1)):
        with pytest.raises(BadSetting):
            field.read(text)
    name = field.names[-1].strip("-").replace("-", "_").upper()
    assert refusal(command, field, most + 1, **{FROM_MAKE: "1"}).startswith(f"weft: {name} is '{most + 1}'; ")


@pytest.mark.parametrize(("command", "field"), [one for one in ONCE if one[1].setting.choices],
                         ids=lambda one: one if isinstance(one, str) else one.name)
def test_value_outside_the_choices_is_rejected(command, field):
    assert refusal(command, field, "another") == (
        f"weft: {'/'.join(field.names)} is 'another'; choose one of {', '.join(map(str, field.setting.choices))}\n")


@pytest.mark.parametrize(("value", "good"), [(1, True), (0.5, True), (True, False), ("1", False), (float("nan"), False),
                                             (None, False)])
def test_python_values_are_checked_by_the_same_rule(value, good):
    if good:
        assert JobSettings(loss=value).loss == value
    else:
        with pytest.raises(BadSetting, match=r"^loss is .*; it must be a number from 0 to 1$"):
            JobSettings(loss=value)


def test_conflicting_options_are_named_as_typed():
    words = ["sim", "--backend", "model", "--straddle"]
    for environment, names in ({}, ("--straddle", "--backend rtl")), ({FROM_MAKE: "1"}, ("STRADDLE", "BACKEND=rtl")):
        done = CliRunner().invoke(app, words, env=environment)
        assert (done.exit_code, done.stderr) == (2, f"weft: {names[0]} is not possible with back end model, which has "
                                                    f"no straddle; use {names[1]}\n")
    assert typed("-s", "--size") == "-s/--size"


@pytest.mark.parametrize(("words", "message"), [
    (["--bogus"], "No such option: --bogus"), (["sim", "--los", "0.1"], "No such option: --los"),
    (["sin"], "No such command 'sin'"), (["sim", "--loss"], "--loss"), (["run"], "Missing argument"),
    (["link", "sever"], "No such command 'sever'"), (["link", "cut", "--host", "a"], "No such option: --host"),
    (["write_bw", "localhost"],
     "(localhost); weft write_bw takes neither a server nor a device, because both hosts run in one process"),
    (["read_lat", "-d", "mlx5_0"], "No such option: -d; weft read_lat takes neither a server nor a device"),
])
def test_usage_that_typer_refuses_is_one_sentence_too(words, message):
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("weft: ") and done.stderr.count("\n") == 1 and message in done.stderr


def drawn_job(rng, file):
    """Return random settings within their ranges, of the types of the command line."""
    backend, found = rng.choice(BACKENDS), {}
    for name, field in fields(JobSettings).items():
        setting = field.setting
        if (name in ("backend", "hosts", "fabric") or setting.backends and backend not in setting.backends
                or rng.random() < 0.3):
            continue
        if field.kind is bool:
            found[name] = rng.random() < 0.5
        elif setting.choices:
            found[name] = rng.choice(setting.choices)
        elif field.kind is float:
            found[name] = rng.choice([setting.least, setting.most, rng.uniform(setting.least, setting.most)])
        elif field.kind is int:
            found[name] = rng.randint(setting.least, 14 if name == "qps" else setting.most)
        else:
            found[name] = str(file)
    return JobSettings(backend=backend, **found)


def job_on_a_fabric(rng, folder):
    """Return settings with a fabric: a name, or a file with an unusual one."""
    (file := folder / "it's a µ.toml").write_text("hosts = ['a', 'b']\n[[link]]\na = 'a'\nb = 'b'\n"
                                                  "[[flow]]\nsource = 'a'\ndestination = 'b'\n")
    return rng.choice([JobSettings(fabric="incast-3", hosts=4, loss=0.5), JobSettings(fabric=str(file))])


def test_settings_survive_their_command(tmp_path, monkeypatch):
    from weft.tb.app.job import run

    seen, seed = [], drawn_seed()
    print(f"seed {seed}")
    rng, file = random.Random(seed), tmp_path / "it's  a µ file"
    file.touch()
    monkeypatch.setattr(run, "run", lambda settings, **_: seen.append(settings) or 0)
    drawn = [drawn_job(rng, file) for _ in range(100)]     # one of 5 PMTUs is missing once in 10^5 runs
    drawn += [job_on_a_fabric(rng, tmp_path) for _ in range(5)]
    for settings in drawn:
        done = CliRunner().invoke(app, ["sim", *words(settings)])
        assert done.exit_code == 0, done.output
        job = Job(**vars(settings), folder="f")
        monkeypatch.setenv(*job.environment().popitem())
        assert Job.from_environment() == job
        assert shlex.split(job.command) == ["weft", "sim", *words(settings)]
    assert seen == drawn
    assert {settings.sim for settings in drawn} == set(SIMULATORS) and len({one.pmtu for one in drawn}) == len(PMTUS)


@pytest.mark.parametrize("settings", [JobSettings(), Options(), Settings()], ids=lambda one: type(one).__module__)
def test_defaults_are_valid(settings):
    check(settings)
