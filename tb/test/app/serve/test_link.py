"""Tests of programs under faults on demand: `weft serve --faults`, and `weft link` while they run."""

import json
import os
import shutil
import time

import pytest
from typer.testing import CliRunner

from weft.hdl.contract import wire
from weft.model.impairments import FrameKind, frame_kind
from weft.tb.app.serve import listening
from weft.tb.cli import app
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.verify.programs.session import LOOK_S, ended, serving

LIMIT_S, FOREVER = 90, "100000000"
PORT = 19_400


@pytest.fixture
def port():
    return PORT + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])


@pytest.fixture
def pingpong(library, port):
    """Return a function that returns the command of rdma-core's example, which ends after ``count`` messages."""
    if shutil.which("ibv_rc_pingpong") is None and not tools_expected():
        pytest.skip("ibv_rc_pingpong is missing; on Debian: apt-get install ibverbs-utils")
    return lambda count, *server: ["ibv_rc_pingpong", "-g", "0", "-c", "-p", str(port), "-n", str(count), *server]


@pytest.mark.parametrize("command", [["link", "clear"], ["serve"]])
def test_a_seed_that_no_encoding_has_is_refused(command):
    ended = CliRunner().invoke(app, [*command, "--seed", "\udcff"])
    assert ended.exit_code == 2 and "it must be text in UTF-8" in ended.output + (ended.stderr or "")


def until(condition):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(LOOK_S)


def started(session, pingpong, port, count):
    """Return a server on host b and a client on host a that exchange messages."""
    server = session.start("b", *pingpong(count))
    until(lambda: server.poll() is not None or listening.at_tcp(port))
    client = session.start("a", *pingpong(count, "localhost"))
    until(lambda: client.poll() is not None or counters(session, "a")["sent"].get("data", 0) >= 20)
    return server, client


def works(session, pingpong, port, count):
    """Assert that both programs end well."""
    ends = session.run_pair(pingpong(count), pingpong(count, "localhost"), port=port, limit_s=LIMIT_S)
    assert [end.status for end in ends] == [0, 0], ends


def link(session, *words):
    """Run `weft link` for a session; return its output."""
    done = CliRunner().invoke(app, ["link", words[0], "--folder", str(session.socket("a").parent), *words[1:]])
    assert done.exit_code == 0, done.output
    return done.stdout


def state(session):
    return json.loads(link(session, "show", "--json"))


def counters(session, host):
    return state(session)["hosts"][host]["counters"]


def schedule(folder, text):
    (folder / "faults.toml").write_text(text)
    return "--faults", str(folder / "faults.toml")


def test_a_cut_link_ends_a_program_with_retry_exceeded_and_a_restored_one_serves_the_next(pingpong, port):
    with serving("--backend", "functional", "--preset", "test") as session:
        programs = started(session, pingpong, port, FOREVER)
        link(session, "cut")
        until(lambda: any(program.poll() is not None for program in programs))
        for program in programs:       # the one that waited for a message would wait for ever
            program.terminate()
        assert "transport retry counter exceeded" in "".join(ended(program, LIMIT_S).output for program in programs)
        assert sum(counters(session, host)["lost"]["all"] for host in "ab") > 0
        link(session, "restore")
        works(session, pingpong, port, 50)


def test_a_program_survives_a_short_cut_by_schedule(pingpong, port, tmp_path):
    options = schedule(tmp_path, """
        [[step]]
        frames = 100
        do = "cut"
        [[step]]
        frames = 104
        do = "restore"
        """)
    with serving("--backend", "functional", "--preset", "test", *options) as session:
        works(session, pingpong, port, 300)
        assert sum(counters(session, host)["lost"]["all"] for host in "ab") == 4
        output = session.end()
    assert "after 100 frames of the schedule: cut" in output and "schedule: 2 of 2 steps done" in output


@pytest.mark.parametrize("options", [
    (), ("--time", "sim"), ("--backend", "model"), ("--backend", "model", "--time", "sim"),
    ("--backend", "rtl", "--time", "sim")], ids=["functional", "functional-sim", "model", "model-sim", "rtl"])
def test_the_third_acknowledgement_is_dropped_exactly_once(pingpong, port, options):
    with serving("--backend", "functional", "--preset", "test", *options) as session:
        assert link(session, "rule", "--opcode", "ACKNOWLEDGE", "--source", "b", "--nth", "3") == "rule 1\n"
        works(session, pingpong, port, 40)
        (rule,) = state(session)["rules"]
        lost = counters(session, "b")["lost"]
        assert rule["faults"] == 1 and rule["matched"] > 3 and lost == {"ack": 1, "all": 1}, (rule, lost)
        assert counters(session, "a")["lost"]["all"] == 0
        assert "rule 1 (action drop, source b, opcode ACKNOWLEDGE, nth 3)" in session.end()


def test_rules_hit_the_packets_of_one_qp_only(pingpong, port, tmp_path):
    with serving("--backend", "functional", "--preset", "test", "--capture", str(tmp_path)) as session:
        programs = started(session, pingpong, port, 700)
        qpn = next(wire.BTH.unpack(frame[wire.BTH_OFFSET:]).dest_qp for _, frame in read_pcap(tmp_path / "a.sent.pcap")
                   if frame_kind(frame) is FrameKind.DATA)
        for action in ("duplicate", "corrupt", "drop"):
            link(session, "rule", "--action", action, "--chance", "0.1", "--qp", str(qpn))
        link(session, "rule", "--action", "delay", "--delay-us", "50", "--every", "5", "--qp", str(qpn))
        ends = [ended(program, LIMIT_S) for program in programs]
        assert [end.status for end in ends] == [0, 0], ends
        rules = state(session)["rules"]
        assert all(rule["faults"] > 5 for rule in rules), rules
        assert counters(session, "b")["lost"]["all"] == 0
        works(session, pingpong, port, 50)
        assert state(session)["rules"] == rules


def test_impairments_at_the_start_are_counted_in_the_report(pingpong, port):
    with serving("--preset", "test", "--loss", "0.05", "--burst", "3", "--duplicate", "0.05", "--reorder", "0.05",
                 "--corrupt", "0.05", "--rate-gbps", "1", "--jitter-us", "20", "--seed", "5") as session:
        works(session, pingpong, port, 60)
        output = session.end()
    for word in ("lost, ", "duplicated, ", "reordered, ", "corrupted; "):
        assert word in output


def test_same_seed_and_same_packets_give_the_same_faults(pingpong, port, tmp_path):
    def run():
        with serving("--backend", "functional", "--preset", "test", "--time", "sim", *schedule(tmp_path, """
                seed = "again"
                [[step]]
                do = "rule"
                source = "a"
                opcode = "data"
                chance = 0.2
                count = 25
                """)) as session:
            works(session, pingpong, port, 100)
            return state(session)["rules"], counters(session, "a")["lost"]
    assert run() == run()


def test_without_a_daemon_the_command_to_start_one_is_named(tmp_path):
    done = CliRunner().invoke(app, ["link", "cut", "--folder", str(tmp_path)])
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr == f"weft: no daemon serves below {tmp_path}; start one with: weft serve --folder {tmp_path}\n"


@pytest.mark.parametrize(("words", "sentence"), [
    (["set"], "weft link set needs an option; weft link set --help lists them"),
    (["set", "--source", "a"], "weft link set needs an option; weft link set --help lists them"),
    (["set", "--loss", "2"], "--loss is '2'; it must be a number from 0 to 1"),
    (["rule", "--action", "delay"], "--action is 'delay'; action delay needs delay_us, and the others do not have it"),
    (["rule", "--nth", "1", "--every", "2"], "--every is '2'; it cannot be combined with nth"),
    (["clear", "--rule", "1", "--seed", "x"], "--seed is 'x'; it cannot be combined with rule"),
    (["schedule", "--faults", "none.toml"], "--faults is 'none.toml'; the file does not exist"),
])
def test_bad_commands_are_one_sentence(words, sentence, tmp_path):
    done = CliRunner().invoke(app, ["link", *words, "--folder", str(tmp_path)])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"weft: {sentence}\n")


def test_a_rejection_of_the_daemon_names_the_option(library):
    with serving("--backend", "functional", "--preset", "test") as session:
        folder = str(session.socket("a").parent)
        for words, sentence in (
                (["cut", "--source", "z"], "--source is 'z'; choose one of a, b"),
                (["clear", "--rule", "7"], "--rule is '7'; no rule in force has this number")):
            done = CliRunner().invoke(app, ["link", *words, "--folder", folder])
            assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"weft: {sentence}\n")
