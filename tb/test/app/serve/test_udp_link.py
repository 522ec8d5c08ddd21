"""Tests of two daemons, as on two machines: a program on a host of one talks to a program on a host of the other."""

import os
import socket
import time

import pytest

from weft.tb.app.serve import listening
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.app.serve.test_simulated_time import perftest
from weft.tb.verify.programs.session import LOOK_S, CannotServe, ended, serving

PORT, LIMIT_S = 27600, 200


def free_ports(count):
    """Return ports that no program uses."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def test_programs_of_two_daemons_connect(library):
    program, seed = perftest("ib_send_bw", "-n", "20"), str(drawn_seed())
    port = PORT + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    one, other = free_ports(2)
    common = ("--preset", "test", "--loss", "0.02", "--seed", seed)
    with (serving("--hosts", "a", "--link", f"udp:127.0.0.1:{other}:{one}", *common) as here,
          serving("--hosts", "b", "--link", f"udp:127.0.0.1:{one}:{other}", "--first", "2", *common) as there):
        server = there.start("b", *program.command(port))
        while server.poll() is None and not listening.at_tcp(port):
            time.sleep(LOOK_S)
        client = here.run("a", *program.command(port, "localhost"), limit_s=LIMIT_S)
        assert client.status == 0, client.output
        assert ended(server, LIMIT_S).status == 0
        assert program.read(client.output) > 0


def test_used_udp_port_prints_a_sentence(library):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("", 0))
        port = other.getsockname()[1]
        with pytest.raises(CannotServe) as printed, serving("--preset", "test", "--link", f"udp:127.0.0.1:7471:{port}"):
            pass
    assert str(printed.value) == f"weft: UDP port {port} cannot be had: Address already in use\n"
