"""Tests of ``weft run --network``: the name of a host is the address of its card, for TCP and RDMA alike."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weft.tb.app.serve import listening, network
from weft.tb.cli import app
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.verify.programs.session import LOOK_S, serving

LIMIT_S, PORT = 60, 7174
SERVER = """
import socket
with socket.create_server(("b", 5000)) as listener:
    print("ready", flush=True)
    connection, (address, _) = listener.accept()
    print(connection.recv(100).decode(), socket.gethostname(), socket.gethostbyname("a"))
"""
CLIENT = """
import socket
with socket.create_connection(("b", 5000)) as connection:
    connection.sendall(socket.gethostname().encode())
"""


def command(session, host, *program):
    """Return a command that runs a program in the network of a session."""
    folder = session.socket(host).parent
    return [sys.executable, "-m", "weft.tb.cli", "run", "--network", "--host", host, "--folder", folder, "--", *program]


def start(session, host, *program):
    return subprocess.Popen(command(session, host, *program), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def finish(process):
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, output
    return output


@pytest.fixture(scope="module")
def session(library):
    with serving("--preset", "test", "--hosts", "a,b,c") as session:
        done = subprocess.run(command(session, "c", "true"), capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode and "permits no network namespace" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        yield session


def test_a_tcp_client_and_a_server_meet_by_the_name_of_a_host(session):
    server = start(session, "b", sys.executable, "-c", SERVER)
    assert server.stdout.readline() == "ready\n"
    finish(start(session, "a", sys.executable, "-c", CLIENT))
    assert finish(server).split() == ["a", "b", "10.0.0.1"]


def test_rping_meets_by_the_same_name(session):
    if shutil.which("rping") is None and not tools_expected():
        pytest.skip("rping is missing; on Debian: apt-get install rdmacm-utils")
    server = start(session, "b", "rping", "-s", "-a", "b", "-C", "3")
    while not listening.at_card(session.socket("b"), PORT):
        assert server.poll() is None, server.communicate()
        time.sleep(LOOK_S)
    assert "ping data: rdma-ping-2" in finish(start(session, "a", "rping", "-c", "-a", "b", "-C", "3", "-v"))
    finish(server)


def test_programs_keep_their_folder_user_and_machine(session):
    shown = finish(start(session, "a", "sh", "-c", "pwd; id -u; ls /proc/self/fd | wc -l; cat /etc/hosts")).splitlines()
    assert shown[:2] == [os.getcwd(), str(os.getuid())] and int(shown[2]) <= 4
    assert shown[3:6] == ["10.0.0.1 a", "10.0.0.2 b", "10.0.0.3 c"]
    assert shown[6:] == Path("/etc/hosts").read_text().splitlines()
    assert socket.gethostname() not in "abc"


def test_processes_of_the_network_end_with_the_daemon(session):
    with serving("--preset", "test") as other:
        finish(start(other, "a", "true"))
        finish(start(other, "b", "true"))
        with (other.socket("a").parent / "network").open() as note:
            with pytest.raises(BlockingIOError):
                fcntl.flock(note, fcntl.LOCK_SH | fcntl.LOCK_NB)
            other.end()
            fcntl.flock(note, fcntl.LOCK_SH)      # the process that holds the network has ended


@pytest.mark.parametrize("function", ["unshare", "mount", "setns"])
def test_missing_permission_is_one_sentence_with_the_commands(tmp_path, monkeypatch, function):
    def call(name, *arguments):
        raise PermissionError(1, f"{name}: Operation not permitted")

    if function == "unshare":
        monkeypatch.setattr(network, "_call", call)
    else:
        monkeypatch.setattr(network, "_make" if function == "mount" else "_join", lambda *_: call(function))
    gids = tmp_path / "a.sys/class/infiniband/weft0/ports/1/gids"
    gids.mkdir(parents=True)
    (gids / "0").write_text("0000:0000:0000:0000:0000:ffff:0a00:0007\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as there:
        there.bind(str(tmp_path / "a.sock"))
        there.listen()
        if function == "setns":
            monkeypatch.setattr(network, "_start", lambda *_: (tmp_path / "network").write_text("1"))
        result = CliRunner().invoke(app, ["run", "--network", "--folder", str(tmp_path), "--", "true"])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and function in result.stderr
    assert "ip address add 10.0.0.7/32 dev lo && printf '10.0.0.7 a\\n' >> /etc/hosts" in result.stderr


def test_hosts_of_a_daemon_that_was_killed_have_no_names(tmp_path):
    for number, name in enumerate(("served", "killed", "gone"), 1):
        gid = tmp_path / f"{name}.sys/class/infiniband/weft0/ports/1/gids/0"
        gid.parent.mkdir(parents=True)
        gid.write_text(f"0000:0000:0000:0000:0000:ffff:0a00:000{number}\n")
    sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for listener, name in zip(sockets, ("served", "killed"), strict=True):
        listener.bind(str(tmp_path / f"{name}.sock"))
        listener.listen()
    sockets[1].close()
    with sockets[0]:
        assert network.names_below(tmp_path) == {"served": "10.0.0.1"}
