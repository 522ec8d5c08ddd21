"""Switches that pause their neighbours or trim packets when their buffers fill."""

import pytest

from weft.model.fabric.description import Fabric, FabricLink, Flow, Switch
from weft.model.fabric.experiment import FabricExperiment
from weft.model.fabric.forwarding import pauses
from weft.model.fabric.packets import DATA, QUEUES
from weft.model.settings import BadSettings
from weft.tb.test.model.fabric.small_runs import advance, start
from weft.tb.test.model.fabric.test_engine import conserved

KIB = 1024


def two_into_one(**switch):
    """Return two senders at one switch, whose uplink leads to a slow receiver and to a fast one."""
    names = {"marking": "none", "buffer_kib": 1024, **switch}
    links = [("a", "s", 100), ("c", "s", 100), ("s", "t", 100), ("t", "b", 10), ("t", "d", 100)]
    return Fabric(("a", "c", "b", "d"), (Switch(name="s", **names), Switch(name="t", **names)),
                  tuple(FabricLink(a=a, b=b, rate_gbps=rate) for a, b, rate in links),
                  (Flow(source="a", destination="b"), Flow(source="c", destination="d")), ("t", "b"))


def port(fabric, a, b):
    return fabric.ports.index((a, b))


def test_pauses_spread_to_the_senders_and_nothing_is_lost():
    """Without congestion control the victim, to an idle port, has the rate of the slow one: its packets wait, too."""
    fabric = two_into_one(pfc=True, pause_kib=256)
    w = start(fabric)
    advance(w, 5000)
    assert w.port["dropped"].sum() == w.flow["missing"].sum() == 0
    assert w.port[port(fabric, "s", "t")]["pauses"] > 5 and w.port[port(fabric, "a", "s")]["pauses"] > 5
    assert w.flow[1]["placed"] == pytest.approx(w.flow[0]["placed"], rel=0.1)
    conserved(w)


def test_a_pause_lasts_until_less_than_its_second_limit_is_left():
    pausing, seen = False, []
    for held in (0, 99, 100, 99, 50, 49, 99, 100):
        pausing = pauses(held, pausing, 100, 50)
        seen.append(pausing)
    assert seen == [False, False, True, True, True, False, False, True]
    assert not pauses(1 << 40, False, 0, 0)


def test_a_link_holds_what_its_pause_allows(seed):
    """The buffer has at most the threshold and what was on the way when the signal left: two delays and two packets."""
    fabric = two_into_one(pfc=True, pause_kib=256)
    w = start(fabric, seed=seed)
    most, uplink = 0, port(fabric, "s", "t")
    for us in range(1, 3000):
        advance(w, us)
        p = w.port[uplink]
        most = max(most, int(p["held"]))
        waiting = sum(w.queue[n * QUEUES + DATA]["bytes"] for n in (port(fabric, "t", "b"), port(fabric, "t", "d")))
        assert p["held"] == waiting
    assert 256 * KIB <= most <= 256 * KIB + 2 * 1000 * 12.5 + 3 * 4178


def test_a_cut_link_releases_what_it_held():
    fabric = two_into_one(pfc=True, pause_kib=256)
    links = (*fabric.links[:3], FabricLink(a="t", b="b", rate_gbps=10, down_us=((1000, 1100),)), fabric.links[4])
    fabric = Fabric(fabric.hosts, fabric.switches, links, fabric.flows, fabric.watched)
    w = start(fabric, time_out=200e3)
    advance(w, 1001)
    assert w.port["cut"].sum() > 10 and w.port[port(fabric, "s", "t")]["held"] < 256 * KIB
    before = int(w.flow[0]["placed"])
    advance(w, 5000)
    assert w.flow[0]["placed"] > before + 500
    conserved(w)


def test_headers_of_trimmed_packets_report_each_loss_once():
    fabric = two_into_one(trim=True, alpha=1, buffer_kib=256)
    w = start(fabric)
    w.flow["total"] = 2000
    advance(w, 50_000)
    f = w.flow[0]
    assert w.port["trimmed"].sum() > 100 and w.port["dropped"].sum() == 0
    assert f["done_at"] > 0 and f["placed"] == 2000 == f["sent"] - f["missing"] and f["late"] == f["time_outs"] == 0
    assert f["trimmed"] == f["in_missing"] and w.flow["trimmed"].sum() == w.port["trimmed"].sum()
    conserved(w)


def test_a_lost_packet_among_trimmed_ones_is_counted_too(seed):
    links = two_into_one().links
    fabric = two_into_one(trim=True, alpha=1, buffer_kib=256)
    lossy = FabricLink(a="s", b="t", loss=0.01)
    fabric = Fabric(fabric.hosts, fabric.switches, (*links[:2], lossy, *links[3:]), fabric.flows, fabric.watched)
    w = start(fabric, seed=seed)
    w.flow["total"] = 2000
    advance(w, 50_000)
    f = w.flow[0]
    assert f["done_at"] > 0 and f["placed"] == 2000 and f["late"] == 0 and f["in_missing"] > f["trimmed"] > 0


def test_trimming_needs_a_sender_that_uses_it():
    with pytest.raises(BadSettings, match="choose recovery adamap"):
        FabricExperiment(trim=True, recovery="irn").build()
