"""Tests of arguments that ``weft serve`` and ``weft run`` reject: one sentence and exit status 2."""

import socket

import pytest
from typer.testing import CliRunner

from weft.tb.cli import app


def end_of(*arguments):
    """Return (exit status, sentence) of a command without other output."""
    result = CliRunner().invoke(app, arguments)
    assert result.stdout == "" and result.stderr.startswith("weft: ") and result.stderr.count("\n") == 1, result.output
    return result.exit_code, result.stderr


@pytest.mark.parametrize(("arguments", "words"), [
    (["--link", "udp:localhost"], ["udp:HOST:PORT is needed"]),
    (["--link", "udp:localhost:0"], ["'0'", "1 to 65535"]),
    (["--link", "udp:localhost:99999"], ["'99999'", "1 to 65535"]),
    (["--link", "udp:localhost:65536:7471"], ["'65536'", "1 to 65535"]),
    (["--link", "udp:localhost:7471:0"], ["'0'", "1 to 65535"]),
    (["--link", "udp:localhost:7471:65536"], ["'65536'", "1 to 65535"]),
    (["--link", "udp:no-such-host.invalid:7471"], ["no-such-host.invalid", "--link"]),
    (["--link", f"udp:{'x' * 64}.invalid:7471"], ["--link"]),
    (["--link", "udp:localhost:7471", "--backend", "rtl"], ["--link", "cards in Python"]),
    (["--link", "udp:localhost:7471", "--time", "sim"], ["--link", "wall-clock time"]),
    (["--first", "0"], ["--first", "1 to 199"]),
    (["--first", "200"], ["--first", "1 to 199"]),
    (["--first", "199", "--hosts", "a,b,c"], ["--first", "1 to 198"]),
    (["--hosts", "a,a"], ["--hosts"]),
    (["--hosts", ""], ["--hosts"]),
    (["--hosts", "a", "--backend", "rtl"], ["--hosts", "2 cards"]),
    (["--loss", "1.5"], ["--loss", "0 to 1"]),
    (["--burst", "0.5"], ["--burst", "1 to 1000000"]),
    (["--jitter-us", "-1"], ["--jitter-us", "0 to 1000000"]),
    (["--faults", "no-such-file.toml"], ["--faults", "does not exist"]),
    (["--delay-us", "nan"], ["--delay-us", "0 to 1000000"]),
    (["--backend", "silicon"], ["--backend", "functional, model, rtl"]),
    (["--backend", "direct", "--loss", "0.1"], ["--loss", "needs packets"]),
    (["--time", "later"], ["--time", "wall, sim"]),
    (["--fabric", "ring"], ["--fabric", "'ring' is not a fabric", "dumbbell"]),
    (["--fabric", "absent.toml"], ["--fabric", "not a TOML file that can be read"]),
    (["--fabric", "incast-3"], ["--fabric", "4 hosts (a0, a1, a2, b)", "2 are given"]),
    (["--fabric", "pair", "--hosts", "a,b,c"], ["--fabric", "2 hosts", "3 are given"]),
    (["--fabric", "pair", "--delay-us", "3"], ["--delay-us", "have their own"]),
    (["--fabric", "pair", "--rate-gbps", "3"], ["--rate-gbps", "have their own"]),
    (["--fabric", "pair", "--jitter-us", "3"], ["--jitter-us", "have their own"]),
    (["--fabric", "pair", "--backend", "direct"], ["--fabric", "needs packets"]),
    (["--fabric", "pair", "--backend", "rtl"], ["--fabric", "cards in Python"]),
    (["--fabric", "pair", "--link", "udp:localhost:7471"], ["--fabric", "one daemon"]),
    (["--fabric", "pair", "--backend", "pci", "--device", "0000:00:03.0,0000:00:04.0"], ["simulated cards"]),
    (["--preset", "huge"], ["preset", "test, basic, full"]),
])
def test_bad_options_print_a_sentence_and_exit_with_2(arguments, words, tmp_path):
    status, sentence = end_of("serve", "--folder", str(tmp_path), *arguments)
    assert status == 2
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(("text", "words"), [
    ("seed = ", ["the schedule is not TOML"]),
    ("sede = 1", ["'sede'", "[[step]]"]),
    ("step = 5", ["[[step]]"]),
    ("[[step]]\nat_ms = 3", ["step 1", "`do`", "set, cut, restore, rule, clear"]),
    ('[[step]]\ndo = "cut"\n[[step]]\ndo = "show"', ["step 2", "`do`"]),
    ('[[step]]\ndo = "cut"\nsource = "z"', ["step 1", "source is 'z'", "a, b"]),
    ('[[step]]\ndo = "cut"\nsource = ["a"]', ["step 1", "source is ['a']"]),
    ('[[step]]\ndo = "set"\nlos = 0.1', ["step 1", "'los'", "loss, burst"]),
    ('[[step]]\ndo = "set"\nloss = "much"', ["step 1", "loss is 'much'", "0 to 1"]),
    ('[[step]]\ndo = "rule"\nopcode = "RDMA_WRITE_FIRST"', ["step 1", "ACKNOWLEDGE", "RDMA_WRITE_ONLY"]),
    ('[[step]]\ndo = "cut"\nat_ms = -1', ["step 1", "at_ms", "milliseconds"]),
    ('[[step]]\ndo = "cut"\nat_ms = 1\nframes = 1', ["step 1", "frames", "combined"]),
    ('[[step]]\ndo = "cut"\n' * 1001, ["1000 tables"]),
    ("\0", ["not TOML"]),
    ("#" * 70_000, ["--faults", "65536 bytes"]),
    ("\xff", ["--faults", "UTF-8"]),
])
def test_bad_schedules_print_a_sentence_and_exit_with_2(text, words, tmp_path):
    file = tmp_path / "faults.toml"
    file.write_bytes(text.encode("latin-1"))
    status, sentence = end_of("serve", "--folder", str(tmp_path / "x"), "--preset", "test", "--faults", str(file))
    assert status == 2
    for word in words:
        assert word in sentence


def test_folder_with_too_long_socket_paths_is_rejected(tmp_path):
    folder = tmp_path / ("x" * 110)
    status, sentence = end_of("serve", "--folder", str(folder), "--preset", "test", "--hosts", "a,bc")
    assert status == 2
    assert f"{folder}/bc.sock" in sentence and "too long" in sentence


@pytest.mark.parametrize("runs", [True, False])
def test_sockets_of_a_running_daemon_are_kept(tmp_path, runs):
    path = tmp_path / "b.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as there:
        there.bind(str(path))
        if runs:
            there.listen()
        status, sentence = end_of("serve", "--folder", str(tmp_path), *([] if runs else ["--preset", "huge"]))
        assert status == 2
        assert (str(path) in sentence) == runs, sentence


def test_run_needs_a_served_host(tmp_path):
    status, sentence = end_of("run", "--host", "z", "--folder", str(tmp_path), "--", "true")
    assert status == 2 and "z.sock" in sentence
