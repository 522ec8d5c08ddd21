"""Descriptions of fabrics: files, errors, paths."""

import re

import pytest

from weft.model.fabric.experiment import FabricExperiment
from weft.model.fabric.named import of_cards
from weft.model.fabric.result import Unmeasured, measure, watched_flows
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
    ("hosts", "host", "a fabric has no 'host'"), ('["s", "b"]', '["s"]', "names of two nodes"),
    ('"b", "c"]', '"b", 3]', "list of names"), ("[[flow]]", "[flow]", "write it as"),
    ("rate_gbps = 40", "speed = 40", "has no 'speed'"), ("rate_gbps = 40", "rate_gbps = 0", "from 0.01"),
    ('rate_gbps = 40', 'rate_gbps = "fast"', "a number"), ('a = "c"', "a = 7", "must be a name"),
    ("[[10, 20], [30, 40]]", "[[20, 10]]", "ascending"), ("[[10, 20], [30, 40]]", '[["now", 20]]', "write pairs"),
    ('a = "c"', 'a = "d"', "needs two nodes"), ('source = "a"', 'source = "s"', "needs two hosts"),
    ('watched = ["s", "b"]', 'watched = ["a", "b"]', "there is no such link"),
    ('a = "c"\nb = "s"', 'a = "a"\nb = "c"', "exactly"),
    ("mark_to_kib = 64", "mark_to_kib = 1", "at least mark_from_kib"),
    ('name = "s"', 'name = "a"', "is the name of two nodes"),
    ("[[switch]]", "[[switch", "not a TOML file"),
    ('destination = "b"\n\n', 'destination = "a"\n\n', "needs two hosts"),
    ('name = "s"', "", "missing"), ("[[link]]", "[[background]]", "has no 'a'"),
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
    with pytest.raises(BadSettings, match="not a TOML file that can be read"):
        FabricExperiment(fabric="absent.toml").build()


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("flows", [1, 2, 7])
def test_flows_have_the_round_trip_that_was_asked_for(name, flows):
    fabric = TOPOLOGIES[name](Shape(flows=flows, rtts_us=(40.0,)))
    assert len(fabric.flows) == flows
    longest = max(fabric.rtt_ns(flow) for flow in fabric.flows)
    assert longest == pytest.approx(40e3) and min(fabric.rtt_ns(flow) for flow in fabric.flows) > 0


def test_a_name_with_a_number_has_so_many_flows():
    """An incast with a number has no victim: N senders and one receiver."""
    hosts = {"incast-3": ("a0", "a1", "a2", "b"), "dumbbell-2": ("a0", "a1", "b0", "b1"), "pair-5": ("a", "b"),
             "incast-uplink-1": ("a0", "b")}
    for name, expected in hosts.items():
        assert of_cards(name).hosts == expected == FabricExperiment(fabric=name).build().hosts
        assert len(of_cards(name).flows) == int(name.rpartition("-")[2])
    assert {flow.destination for flow in of_cards("incast-3").flows} == {"b"}
    for name in ("incast-0", "incast-200", "incast-", "ring", "incast-3-3", "incast-٣", ""):
        with pytest.raises(BadSettings, match=r"is not a fabric; choose one of pair, .* or a file \*\.toml"):
            of_cards(name)


def test_cards_on_a_long_path_have_its_delay():
    for text, rtt_us, expected in (("wan", None, 1e7), ("dumbbell", None, 1e4), ("wan-3", 20.0, 2e4), ("pair", 0.0, 0)):
        fabric = of_cards(text, rtt_us=rtt_us, loss=0.25)
        assert fabric.rtt_ns(fabric.flows[0]) == pytest.approx(expected)
        assert {link.loss for link in fabric.links} == {0.0, 0.25}


def test_a_file_without_flows_is_for_cards_only(tmp_path):
    """The bottleneck is the first link if the file names none."""
    path = tmp_path / "own.toml"
    path.write_text(re.sub(r"\[\[(flow|background)\]\]\n(\w+ = .*\n)+", "", FILE).replace('watched = ["s", "b"]', ""))
    assert of_cards(str(path)).watched == ("a", "s") and of_cards(str(path)).flows == ()
    with pytest.raises(Unmeasured, match="no flow passes the watched port"):
        measure(FabricExperiment(fabric=str(path)))


def test_the_victim_of_an_incast_shares_a_port_or_an_uplink():
    """Without an uplink the victim shares a switch, with it a port too."""
    for name, shared in (("incast", False), ("incast-uplink", True)):
        fabric = TOPOLOGIES[name](Shape(flows=4))
        victim = fabric.flows[-1]
        assert watched_flows(fabric) == [0, 1, 2]
        assert (fabric.distances(victim.destination)["s"] == 2) == shared
        assert (("s", "t") in fabric.ports) == shared
