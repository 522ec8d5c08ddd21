"""Descriptions of fabrics: files, errors, paths."""

import pytest

from weft.model.fabric.experiment import FabricExperiment
from weft.model.fabric.result import watched_flows
from weft.model.fabric.toml_file import read
from weft.model.fabric.topologies import TOPOLOGIES, Shape
from weft.model.settings import BadSettings

FILE = """
hosts = ["a", "b", "c"]
watched = ["s", "b"]

[[switch]]
name = "s"
buffer_kib = 1024
marking = "step"
mark_from_kib = 64
mark_to_kib = 64

[[link]]
a = "a"
b = "s"

[[link]]
a = "s"
b = "b"
rate_gbps = 40
loss = 0.001
down_us = [[10, 20], [30, 40]]

[[link]]
a = "c"
b = "s"

[[flow]]
source = "a"
destination = "b"

[[background]]
source = "c"
destination = "b"
rate_gbps = 4
"""


def test_a_file_describes_a_fabric(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(FILE)
    fabric = FabricExperiment(fabric=str(path)).build()
    assert fabric == read(path)
    assert fabric.links[1].rate_gbps == 40 and fabric.links[1].down_us == ((10, 20), (30, 40))
    assert fabric.switches[0].marking == "step" and fabric.background[0].rate_gbps == 4
    assert fabric.rtt_ns(fabric.flows[0]) == 4000


@pytest.mark.parametrize(("old", "new", "words"), [
    ("hosts", "host", "is nothing of a fabric"), ('["s", "b"]', '["s"]', "names of two nodes"),
    ('"b", "c"]', '"b", 3]', "list of names"), ("[[flow]]", "[flow]", "write it as"),
    ("rate_gbps = 40", "speed = 40", "has no 'speed'"), ("rate_gbps = 40", "rate_gbps = 0", "from 0.01"),
    ('rate_gbps = 40', 'rate_gbps = "fast"', "a number"), ('a = "c"', "a = 7", "must be a name"),
    ("[[10, 20], [30, 40]]", "[[20, 10]]", "ascending"), ("[[10, 20], [30, 40]]", '[["now", 20]]', "write pairs"),
    ('a = "c"', 'a = "d"', "needs two nodes"), ('source = "a"', 'source = "s"', "needs two hosts"),
    ('watched = ["s", "b"]', 'watched = ["a", "b"]', "no link from"),
    ('a = "c"\nb = "s"', 'a = "a"\nb = "c"', "exactly"),
    ("mark_to_kib = 64", "mark_to_kib = 1", "at least mark_from_kib"),
    ('name = "s"', 'name = "a"', "names differ"),
    ("[[switch]]", "[[switch", "no TOML file"), ('destination = "b"\n\n', 'destination = "a"\n\n', "needs two hosts"),
    ('name = "s"', "", "missing"),
])
def test_an_impossible_file_is_refused_with_a_sentence(old, new, words, tmp_path):
    path = tmp_path / "own.toml"
    assert old in FILE
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(BadSettings, match=words):
        read(path)


@pytest.mark.parametrize("settings", [{"fabric": "ring"}, {"tuning": "speed=1"}, {"tuning": "gain=2"}, {"flows": 0}])
def test_impossible_experiments_are_refused(settings):
    with pytest.raises(BadSettings):
        FabricExperiment(**settings)


def test_a_missing_file_is_refused():
    with pytest.raises(BadSettings, match="no TOML file that can be read"):
        FabricExperiment(fabric="absent.toml").build()


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("flows", [1, 2, 7])
def test_flows_have_the_round_trip_that_was_asked_for(name, flows):
    fabric = TOPOLOGIES[name](Shape(flows=flows, rtts_us=(40.0,)))
    assert len(fabric.flows) == flows
    longest = max(fabric.rtt_ns(flow) for flow in fabric.flows)
    assert longest == pytest.approx(40e3) and min(fabric.rtt_ns(flow) for flow in fabric.flows) > 0


def test_the_victim_of_an_incast_shares_a_port_or_an_uplink():
    """Without an uplink the victim shares a switch, with it a port too."""
    for name, shared in (("incast", False), ("incast-uplink", True)):
        fabric = TOPOLOGIES[name](Shape(flows=4))
        victim = fabric.flows[-1]
        assert watched_flows(fabric) == [0, 1, 2]
        assert (fabric.distances(victim.destination)["s"] == 2) == shared
        assert (("s", "t") in fabric.ports) == shared
