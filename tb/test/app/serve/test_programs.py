"""Tests with unmodified programs of Debian on two served hosts that lose 2 % of the frames.

`make programs` runs more of them, and for longer.
"""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from weft.tb.app.serve import listening
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.test.app.serve.test_simulated_time import perftest
from weft.tb.verify.programs import run
from weft.tb.verify.programs import session as sessions
from weft.tb.verify.programs.applications import APPLICATIONS
from weft.tb.verify.programs.programs import (
    FAILED,
    FORBIDDEN,
    PASSED,
    RUNS_MAX,
    TABLE,
    TOO_LONG,
    UNHEARD,
    UNTIMED,
    Program,
    missing_packages,
    one,
)
from weft.tb.verify.programs.run import LOSSES, PORTS_OF_CARDS, good
from weft.tb.verify.programs.session import LOOK_S, CannotServe, Ended, Session, ended, serving, stopped

ROOT = Path(__file__).resolve().parents[4]
PORT, TALKS_BYTES, LIMIT_S = 23600, 1 << 18, 60
# One of each kind; the others differ in options.
CHOSEN = ("ibv_devices", "ibv_devinfo", "ibv_rc_pingpong -c -e", "ibv_srq_pingpong", "ib_write_bw -q 4",
          "ib_send_bw -e", "ib_read_bw", "ib_atomic_bw", "ib_write_lat", "ib_send_lat -e",
          "ib_send_lat -R", "rping", "fi_pingpong -c")


def chosen():
    """Return the programs of :data:`CHOSEN`, selected by name, and by options if there are any."""
    for text in CHOSEN:
        name, *options = text.split()
        yield next(p for p in TABLE if p.name == name and set(options) <= set(p.options)
                   and (options or not {"-c", "-e", "-q", "-R"} & set(p.options))).briefly()


@pytest.fixture(scope="module")
def session(library):
    with serving("--loss", "0.02") as session:
        yield session


@pytest.mark.parametrize("options", [(), ("--time", "sim")], ids=["wall", "sim"])
def test_programs_end_with_their_daemon(library, tmp_path, options):
    program = perftest("ib_write_bw", "-n", "1000000")
    port = PORT + 90 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    sent = tmp_path / "a.sent.pcap"
    with serving("--preset", "test", "--capture", str(tmp_path), *options) as session:
        server = session.start("b", *program.command(port))
        while server.poll() is None and not listening.at_tcp(port):
            time.sleep(LOOK_S)
        client = session.start("a", *program.command(port, "localhost"))
        while client.poll() is None and sent.stat().st_size < TALKS_BYTES:
            time.sleep(LOOK_S)
        session.end()
        ends = [ended(program, LIMIT_S) for program in (client, server)]
        assert all(end.status for end in ends), ends


@pytest.mark.parametrize(("ends", "status", "runs"), [
    ([f"{UNTIMED}: 0.7 < 0.9", f"{UNTIMED}: 0.8 < 0.9", None], PASSED, 3),
    ([f"{UNTIMED}: 0.7 < 0.9"] * RUNS_MAX, FAILED, RUNS_MAX),
    ([f"{UNHEARD}.", None], PASSED, 2),
    (["Failed status 976236602: wr_id 0 syndrom 0x30303a32", None], PASSED, 2),
    (["Failed status 12: wr_id 0 syndrom 0x0"], FAILED, 1),
    (["Couldn't create QP"], FAILED, 1)])
@pytest.mark.parametrize("ended_with", [1, 0], ids=["status 1", "figure 0"])
def test_program_that_its_own_error_ends_is_run_again(monkeypatch, ends, status, runs, ended_with):
    """No other failure is retried; ``ends``: the error message of each run."""
    class FailingSession:
        ran = 0

        def run_pair(self, *_commands, **_options):
            complaint = ends[self.ran]
            self.ran += 1
            return Ended(0, ""), Ended(ended_with if complaint else 0, complaint or "")

    program, session = perftest("ib_write_lat"), FailingSession()
    monkeypatch.setattr(type(program), "there", True)
    monkeypatch.setattr(type(program), "read", lambda self, output: 0.0 if output else 0.5)
    assert one(session, program, PORT)[0] == status and session.ran == runs


class OneEndFails:
    """Session in which a client fails with a message, and its server waits for ever."""

    def run_pair(self, *_commands, **_options):
        return Ended(None, ""), Ended(1, "cannot create a QP: Operation not supported\n")


@pytest.mark.parametrize(("message", "status"), [("create a QP: Operation not", f"{FORBIDDEN}no UC"),
                                                 ("create a CQ", TOO_LONG)])
def test_forbidden_program_has_its_reason(monkeypatch, message, status):
    """A program that fails in another way than expected is a failure."""
    program = Program("qperf", "qperf", forbidden=(message, "no UC"))
    monkeypatch.setattr(Program, "there", True)
    assert one(OneEndFails(), program, PORT)[0] == status
    assert good({"status": status}) == (status != TOO_LONG)


def test_program_that_starts_others_is_killed_with_them():
    """The child of the shell keeps the pipe of the output open, as a job of fio does."""
    started = Session.start_plainly("sh", "-c", "echo ready; sleep 10000 & wait")
    assert ended(started, 0) == Ended(None, "ready\n")


def test_launcher_is_terminated_so_that_it_ends_its_ranks():
    """The rank is in another group; the launcher prints after its end."""
    started = Session.start_plainly("sh", "-c", "setsid sleep 10000 & rank=$!; trap 'kill $rank; echo ended' TERM; "
                                    "until grep -q \"(sleep) . [0-9]* $rank \" /proc/$rank/stat; do sleep 0.01; done; "
                                    "echo ready; wait")
    assert started.stdout.readline() == "ready\n"
    assert stopped(started) == "ended\n"


def test_program_that_ignores_termination_is_killed(monkeypatch):
    monkeypatch.setattr(sessions, "END_S", 0.1)
    started = Session.start_plainly("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    assert started.stdout.readline() == "ready\n"
    assert stopped(started) == ""
    assert started.wait() == -signal.SIGKILL


@pytest.mark.parametrize("failure", [KeyboardInterrupt, FileNotFoundError])
def test_interrupted_pair_leaves_no_server(monkeypatch, failure):
    session, servers = Session(None, None, None), []

    def start(_host, *command):
        if servers:
            raise failure
        servers.append(Session.start_plainly(*command))
        return servers[0]

    monkeypatch.setattr(session, "start", start)
    with pytest.raises(failure):
        session.run_pair(("sleep", "10000"), ("true",), port=0)
    assert servers[0].poll() == -signal.SIGTERM


def test_daemon_that_does_not_start_in_time_is_a_sentence(monkeypatch):
    monkeypatch.setattr(sessions, "START_S", 0)
    with pytest.raises(CannotServe, match="has not started within 0 s; is the machine busy"), serving():
        pass


@pytest.mark.parametrize(("words", "sentence"), [(["--only", "nothing"], "no program has 'nothing' in its name"),
                                                 (["--backend", "x"], "invalid choice")])
def test_wrong_options_of_the_table(monkeypatch, capsys, words, sentence):
    monkeypatch.setattr("sys.argv", ["run", *words])
    with pytest.raises(SystemExit) as end:
        run.main()
    assert end.value.code == 2 and sentence in capsys.readouterr().err


def test_client_of_a_failed_server_is_ended(monkeypatch):
    monkeypatch.setattr(sessions, "END_S", 0.1)
    session = Session(None, None, None)
    monkeypatch.setattr(session, "start", lambda _host, *command: Session.start_plainly(*command))
    ends = session.run_pair(("sh", "-c", "exit 3"), ("sleep", "10000"), port=0, limit_s=10000)
    assert [end.status for end in ends] == [3, None]


@pytest.mark.parametrize(("script", "status"), [("exec sleep 10000", 0), ("exit 3", 3)])
def test_endless_server_ends_after_its_client(monkeypatch, script, status):
    """It is successful if it runs until then."""
    session = Session(None, None, None)
    monkeypatch.setattr(session, "start", lambda _host, *command: Session.start_plainly(*command))
    monkeypatch.setattr(session, "_listens", lambda *_arguments: False)
    server, client = session.run_pair(("sh", "-c", script), ("true",), port=int(status != 0), endless=True, limit_s=60)
    assert (server.status, client.status) == (status, 0)


def test_rows_have_the_commands_of_a_user():
    program = Program("qperf", "qperf", network=True, roles=(("-lp", "{port}"), ("-lp", "{port}", "{server}")))
    assert program.lines(7000, "10.0.0.2") == ["weft run --network --host b -- qperf -lp 7000",
                                               "weft run --network --host a -- qperf -lp 7000 b"]
    launched = next(p for p in APPLICATIONS if p.name == "mpirun.mpich")
    assert launched.lines(7000, "10.0.0.2")[-1].startswith("mpirun.mpich -n 1 weft run --host a -- ")


def test_rows_of_the_report_are_distinct():
    rows = [(p.name, p.label) for p in (*TABLE, *APPLICATIONS)]
    assert len(rows) == len(set(rows)) < PORTS_OF_CARDS / len(LOSSES)


def test_fields_of_the_report_keep_their_names(monkeypatch):
    monkeypatch.setattr(run, "one", lambda *_arguments: (PASSED, 1.5, ""))
    row, = run.table(None, [TABLE[0]], "direct", "0", iter([PORT]))
    assert list(row) == ["program", "options", "backend", "loss", "status", "figure", "unit", "seconds", "commands"]


def rows_of_the_page():
    """Return the rows of the table of docs/programs.md, each as a list of its cells."""
    lines = (ROOT / "docs/programs.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return rows[2:]


def test_page_names_the_programs_of_the_table():
    page = rows_of_the_page()
    packages = {word for row in page for word in re.findall(r"[\w-]+", row[1])}
    assert packages == {word for p in (*TABLE, *APPLICATIONS) for word in p.package.split()}
    for program in (p for p in APPLICATIONS if p.forbidden):
        row, = (row for row in page if row[0] == f"{program.name} `{program.kind}`")
        assert row[2] == "" and "pass" not in row[3:], "the page claims that it runs"
    for program in (p for p in (*TABLE, *APPLICATIONS) if not p.reliable and "UD" in p.options):
        assert "-c UD" in next(row for row in page if "datagrams" in row[2])[0], program.label
    assert all(row[5] != "pass" for row in page if row[2] == "datagrams"), "they wait for lost datagrams"


@pytest.mark.parametrize("number", range(len(CHOSEN)), ids=[text.replace(" ", "") for text in CHOSEN])
def test_an_unmodified_program_runs(session, number):
    program = list(chosen())[number]
    if not program.there and not tools_expected():
        pytest.skip(f"{program.name} is missing; on Debian: apt-get install {' '.join(missing_packages([program]))}")
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    status, figure, output = one(session, program, PORT + 100 * worker + number, limit_s=300)
    assert status == PASSED, output
    assert program.figure is None or figure > 0, output
