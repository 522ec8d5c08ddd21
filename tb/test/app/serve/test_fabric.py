"""Programs on hosts of a fabric: `weft serve --fabric`."""

import os
import re
import shutil

import pytest

from weft.model.fabric.named import of_cards
from weft.tb.app.serve.faults import Faults
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.app.serve.settings import Settings
from weft.tb.app.serve.simulated import ModelBackend
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.verify.programs.session import serving

PORT = 19_700
LOSSY = """
hosts = ["x", "y", "z"]

[[switch]]
name = "s"
marking = "step"
mark_from_kib = 0
mark_to_kib = 0

[[link]]
a = "x"
b = "s"

[[link]]
a = "s"
b = "y"
rate_gbps = 10
loss = 0.1
jitter_us = 2

[[link]]
a = "z"
b = "s"
"""


@pytest.fixture
def pingpong(library):
    """Return a function that returns the command of rdma-core's example for a number of messages, and its port."""
    if shutil.which("ibv_rc_pingpong") is None and not tools_expected():
        pytest.skip("ibv_rc_pingpong is missing; on Debian: apt-get install ibverbs-utils")
    port = PORT + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    return lambda count: (["ibv_rc_pingpong", "-g", "0", "-c", "-p", str(port), "-n", str(count)], port)


def play(session, command, port):
    """Run the example between hosts b and a."""
    ends = session.run_pair(command, [*command, "localhost"], port=port)
    assert all(end.status == 0 for end in ends), ends


def test_hosts_are_those_of_the_fabric_in_their_order(pingpong, tmp_path):
    """Counters have the names of the daemon's hosts, and captures are as without a fabric."""
    with serving("--hosts", "a,c,d,b", "--fabric", "incast-3", "--preset", "test",
                 "--capture", str(tmp_path)) as session:
        play(session, *pingpong(100))
        output = session.end()
    there, back = (int(re.search(rf"^path {path}: (\d+) packets delivered$", output, re.MULTILINE)[1])
                   for path in ("a s b", "b s a"))
    assert min(there, back) > 100 and "path c s b" not in output
    assert re.search(rf"^port s to b: {there} packets sent, \d+ of them control; 0 marked, 0", output, re.MULTILINE)
    assert len(read_pcap(tmp_path / "b.arrived.pcap")) == there and len(read_pcap(tmp_path / "b.sent.pcap")) == back


def test_timed_cards_on_a_fabric_depend_on_the_seed_only(pingpong, tmp_path):
    """Losses of the fabric are recovered; their number, and the time of the program, are repeated."""
    file, seed, found = tmp_path / "own.toml", str(drawn_seed()), []
    file.write_text(LOSSY)
    print("seed", seed)
    for _ in range(2):
        with serving("--hosts", "a,b,c", "--fabric", str(file), "--backend", "model", "--time", "sim",
                     "--preset", "test", "--seed", seed) as session:
            play(session, *pingpong(20))
            output = session.end()
        found.append(re.findall(r"^(?:port|switch|path) .*$", output, re.MULTILINE))
    lost = [int(count) for count in re.findall(r"(\d+) lost", "\n".join(found[0]))]
    assert found[0] == found[1] and sum(lost) > 0


def test_links_before_a_fabric_keep_their_impairments_and_have_no_delay():
    settings = Settings(hosts=("a", "b"), fabric="wan-1", loss=0.25)
    assert settings.cards == "functional" and settings.path_ns == 5_000_000
    backend = FunctionalBackend(settings.hosts, delay_ns=settings.path_ns, preset="test", network=settings.network())
    try:
        Faults(backend, settings, print)
        config = backend.links["a"].impairments.config
        assert (config.loss, config.delay_ns) == (0.25, 0)
    finally:
        backend.close()


def test_a_new_seed_of_the_daemon_begins_the_sequences_of_the_fabric():
    backend = ModelBackend(["a", "b"], seed=5, preset="test", network=of_cards("pair", loss=0.5))
    try:
        settings = Settings(hosts=("a", "b"), fabric="pair", time="sim", backend="model")
        port = backend.fabric.ports[2]
        drawn = []
        for _ in range(2):
            Faults(backend, settings, print).obey({"do": "clear", "seed": "again"})
            drawn.append([port.lost(0.0) for _ in range(50)])
        assert drawn[0] == drawn[1] and 5 < sum(drawn[0]) < 45
    finally:
        backend.close()
