"""Tests of the eight commands: figures on functional cards, one command on RTL, and error messages."""

import json

import pytest
from typer.testing import CliRunner

from weft.model.functional.host import FunctionalDevice
from weft.tb.app.perf.plan import COMMANDS, TITLES
from weft.tb.app.stage import host as stage_host
from weft.tb.cli import app
from weft.tb.sim.flow.seed import drawn_seed

LINE_GBPS = 100


def weft(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def measured(tmp_path, *words):
    """Return the rows of a command that must succeed, and its output."""
    file = tmp_path / "out.json"
    seed = drawn_seed()
    result = weft(*words, "--seed", seed, "--out_json", "--out_json_file", file)
    assert result.exit_code == 0, (seed, result.output)
    left = json.loads(file.read_text())
    rows = left["results"]
    return rows if isinstance(rows, list) else [rows], left["test_info"], result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_the_table_of_perftest(tmp_path, command):
    [row], info, text = measured(tmp_path, command, "-n", 30, "--report_gbits")
    verb, bandwidth = command.partition("_")[0], command.endswith("_bw")
    assert info["test"].startswith(TITLES[verb]) and "Clock           : simulated" in text
    head, figures = text.splitlines()[-3:-1]
    assert head.split()[0] == "#bytes" and figures.split()[:2] == [str(row["MsgSize"]), "30"]
    if bandwidth:
        assert head.split()[2:4] == ["BW", "peak[Gb/sec]"]
        assert 0 < row["BW_average"] <= row["BW_peak"] * (1 + 1e-9) < LINE_GBPS
        assert row["BW_average"] == pytest.approx(row["MsgRate"] * row["MsgSize"] * 8 / 1000)
        if verb != "atomic":
            assert row["BW_average"] > 0.93 * LINE_GBPS
    else:
        assert 0 < row["t_min"] <= row["t_typical"] <= row["percentile_99"] <= row["t_max"] < 10
    assert row["MsgSize"] == (8 if verb == "atomic" else 65536 if bandwidth else 2)


@pytest.mark.parametrize("words", [
    ["write_bw", "-s", 4096, "-n", 64, "-q", 3, "-l", 8],
    ["write_bw", "-s", 100, "-n", 60, "-I", 128, "-e", "-Q", 7, "-t", 20],
    ["send_bw", "-s", 5000, "-n", 40, "-b", "-e", "-r", 30, "-q", 2],
    ["read_bw", "-s", 70_000, "-n", 20, "-b", "-o", 2, "-m", 1024],
    ["atomic_bw", "-n", 40, "-q", 2, "-A", "CMP_AND_SWAP", "-l", 5],
    ["write_bw", "-s", 3000, "-n", 60, "--loss", 0.05, "--rtt-us", 4],
    ["send_lat", "-s", 300, "-n", 10, "-e", "--loss", 0.05, "--rtt-us", 4],
    ["write_lat", "-s", 9000, "-n", 10, "--loss", 0.05, "--rtt-us", 4],
    ["read_lat", "-s", 9000, "-n", 10, "-e"],
], ids=lambda words: " ".join(map(str, words)))
def test_options_together(tmp_path, words):
    [row], _, _ = measured(tmp_path, *words)
    options = dict(zip(words[1:], words[2:], strict=False))
    assert row["n_iterations"] == options["-n"] * options.get("-q", 1) * (2 if "-b" in words else 1)
    assert row["MsgSize"] == options.get("-s", 8)


def test_link_delay_adds_to_latency(tmp_path):
    near, far = (measured(tmp_path, "write_lat", "-n", 10, "--rtt-us", rtt)[0][0]["t_typical"] for rtt in (0, 40))
    assert far - near == pytest.approx(20, abs=0.5)


def test_all_sizes(tmp_path):
    rows, _, text = measured(tmp_path, "write_bw", "-a", "-n", 1)
    assert [row["MsgSize"] for row in rows] == [1 << n for n in range(1, 24)]
    assert all(row["MsgRate"] > 0 for row in rows) and text.count("\n 1048576") == 1


def test_duration_counts_the_completions_in_it(tmp_path):
    for words in (["write_bw", "-D", "60us"], ["write_bw", "-D", "60us", "-s", 2000, "-l", 4, "-q", 2],
                  ["read_lat", "-D", "0.00006"]):
        [row], _, _ = measured(tmp_path, *words, "--report_gbits")
        if "BW_average" in row:
            assert 0.8 * LINE_GBPS < row["BW_average"] < LINE_GBPS
            assert row["n_iterations"] == pytest.approx(row["BW_average"] * 60_000 / 8 / row["MsgSize"])
        else:
            assert row["t_avg"] * row["n_iterations"] == pytest.approx(60, abs=2 * row["t_max"])


def test_passive_host_waits_for_the_whole_duration(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_host, "SILENCE_NS", 50_000)
    [row], _, _ = measured(tmp_path, "write_bw", "-D", "200us", "-t", 4, "--rtt-us", "0.01")
    assert row["n_iterations"] > 0


class Damaging:
    """Memory for a card that stores zeros instead of long payload."""

    def __init__(self, memory):
        self._memory = memory

    def __getattr__(self, name):
        return getattr(self._memory, name)

    def write(self, physical, data):
        self._memory.write(physical, bytes(len(data)) if len(data) > 2000 else data)


@pytest.mark.parametrize("command", ["write_bw", "send_bw", "read_bw", "send_lat"])
def test_wrong_bytes_fail_the_test(monkeypatch, command):
    plain = FunctionalDevice.__init__

    def damaging(self, *args, **options):
        plain(self, *args, **options)
        self.card.memory = Damaging(self.card.memory)

    monkeypatch.setattr(FunctionalDevice, "__init__", damaging)
    result = weft(command, "-s", 4000, "-n", 3)
    assert result.exit_code == 1 and "other bytes" in result.stderr


def test_link_without_delivery_prints_a_sentence():
    for command in ("write_bw", "read_lat"):
        result = weft(command, "-n", 3, "--loss", 1)
        assert result.exit_code == 1 and result.stderr.startswith("weft: ") and "RETRY_EXC_ERR" in result.stderr


@pytest.mark.parametrize(("words", "message"), [
    (["write_bw", "--backend", "slow"], "functional"),
    (["write_bw", "-s", "0"], "1 to 8388608"), (["write_bw", "-s", "1e3"], "whole number"),
    (["write_bw", "-n", "0"], "--iters"), (["write_bw", "-q", "15"], "1 to 14"), (["write_bw", "-m", "1500"], "4096"),
    (["write_bw", "-t", "0"], "--tx-depth"), (["write_bw", "-I", "257"], "0 to 256"),
    (["write_bw", "-l", "129"], "1 to 128"), (["write_bw", "-l", "4", "-Q", "4"], "-Q with -l"),
    (["write_bw", "-Q", "129"], "1 to 128"), (["write_bw", "-a", "-s", "4"], "-s with -a"),
    (["write_bw", "-a", "-D", "1ms"], "-a with -D"), (["write_bw", "-n", "4", "-D", "1ms"], "-n with -D"),
    (["write_bw", "-D", "3x"], "--duration"), (["write_bw", "-D", "-1"], "--duration"), (["write_bw", "-r", "4"], "-r"),
    (["write_bw", "-A", "FETCH_AND_ADD"], "-A"), (["write_bw", "-o", "4"], "-o"), (["read_bw", "-I", "4"], "-I"),
    (["read_bw", "-o", "17"], "1 to 16"), (["atomic_bw", "-s", "16"], "8 bytes"), (["atomic_bw", "-a"], "8 bytes"),
    (["atomic_bw", "-A", "SWAP"], "CMP_AND_SWAP"), (["write_lat", "-q", "2"], "one outstanding message"),
    (["send_lat", "-t", "2"], "one outstanding message"), (["read_lat", "-l", "2"], "one outstanding message"),
    (["send_lat", "-b"], "uses both directions"),
    (["write_bw", "--loss", "2"], "0 to 1"), (["write_bw", "--rtt-us", "-1"], "--rtt-us"),
    (["write_bw", "--seed", "x"], "--seed"), (["write_bw", "--preset", "huge"], "test, basic, full"),
    (["write_bw", "-q", "14", "-s", "2000000"], "choose a larger one"), (["write_bw", "--port", "1"], "No such option"),
], ids=lambda words: " ".join(words) if isinstance(words, list) else "")
def test_bad_usage_prints_a_sentence_and_exits_with_2(words, message):
    result = weft(*words)
    assert result.exit_code == 2 and result.stdout == "" and message in result.stderr


@pytest.mark.cards
def test_model_and_rtl_agree(tmp_path):
    found = {}
    for backend in ("rtl", "model"):
        [row], info, _ = measured(tmp_path, "send_lat", "--backend", backend, "-n", 3, "-s", 100)
        assert 2 < row["t_min"] <= row["t_max"] < 50 and "RTL" in info["Clock"]
        found[backend] = row["t_typical"]
    assert found["model"] == pytest.approx(found["rtl"], rel=0.1)
