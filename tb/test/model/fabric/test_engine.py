"""Behaviour of a fabric: times, queues, marks, drops, paths, losses and cuts."""

import numpy as np
import pytest

from weft.model.fabric.description import Background, Fabric, FabricLink, Flow, Switch
from weft.model.fabric.packets import DATA, QUEUES
from weft.model.fabric.result import packets_somewhere
from weft.model.fabric.topologies import TOPOLOGIES, Shape
from weft.tb.test.model.fabric.small_runs import advance, line, start

SIZE, RATE = 4178, 12.5     # bytes, and bytes in a nanosecond


def port(fabric, a, b):
    return fabric.ports.index((a, b))


def fix(w, *, rate=RATE, limit=1 << 40):
    """Give flows without control a rate, in bytes in a nanosecond, and a limit."""
    w.flow["rate"], w.flow["limit"] = rate, limit
    w.none["rate"], w.none["limit"] = rate * 8e9, limit


def conserved(w):
    """Check that every packet is somewhere, and every transmission received, missing, or on its way."""
    assert w.s["packets"] == packets_somewhere(w)
    free, i = 0, int(w.s["free"])
    while i >= 0:
        free, i = free + 1, int(w.packet[i]["next"])
    assert free + w.s["packets"] == len(w.packet)
    assert (w.flow["in_received"] + w.flow["in_missing"] <= w.flow["sent"]).all()
    assert (w.node["used"] >= 0).all()
    switches = w.node["host"] == 0
    assert w.node["used"][switches].sum() == sum(
        w.queue["bytes"][n * QUEUES + kind] for n in range(len(w.port)) for kind in range(2)
        if not w.node[w.port[n]["node"]]["host"])


def test_a_packet_takes_its_transmissions_and_delays():
    """Two transmissions and two links there, two of a control frame and two links back."""
    w = start(line(flow={"packets": 1}))
    advance(w, 100)
    assert w.flow[0]["done_at"] == pytest.approx(2 * SIZE / RATE + 2 * 90 / RATE + 4 * 1000)
    assert w.s["packets"] == 0 and w.flow[0]["rtt_sum"] == pytest.approx(w.flow[0]["done_at"])


def test_a_flow_is_paced():
    """A rate below the line spaces the packets."""
    w = start(line())
    fix(w, rate=2.0)
    advance(w, 200)
    assert w.flow[0]["sent"] == 1 + int(200e3 / (SIZE / 2.0))


def test_the_limit_holds_bytes_in_flight():
    w = start(line())
    fix(w, limit=5 * SIZE + 17)
    advance(w, 500)
    assert w.flow[0]["in_flight_peak"] == 5 and w.flow[0]["time_outs"] == 0
    assert w.flow[0]["received"] > 400


def overloaded(**switch):
    """Return a fabric whose only bottleneck has a tenth of the rate, and a flow without control."""
    return Fabric(("a", "b"), (Switch(name="s", **switch),),
                  (FabricLink(a="a", b="s"), FabricLink(a="s", b="b", rate_gbps=10)),
                  (Flow(source="a", destination="b"),), ("s", "b"))


def test_a_full_buffer_drops():
    w = start(overloaded(buffer_kib=256, alpha=128, marking="none"))
    advance(w, 1000)
    p = w.port[port(overloaded(), "s", "b")]
    assert 0.97 * 256 * 1024 < p["queue_peak"] <= 256 * 1024
    assert p["dropped"] > 1000 and p["marked"] == 0
    assert w.flow[0]["in_missing"] > 1000
    conserved(w)


def test_one_queue_gets_its_share_of_the_free_buffer():
    """With alpha 1 a queue and the free rest are equal."""
    w = start(overloaded(buffer_kib=256, alpha=1, marking="none"))
    advance(w, 1000)
    assert w.port[port(overloaded(), "s", "b")]["queue_peak"] == pytest.approx(128 * 1024, rel=0.04)


def test_step_marking_begins_at_its_threshold():
    """Exactly the packets that find at least the threshold are marked."""
    w = start(overloaded(marking="step", mark_from_kib=0, mark_to_kib=0))
    advance(w, 100)
    p = w.port[port(overloaded(), "s", "b")]
    assert p["marked"] == p["data_in"] > 100
    w = start(overloaded(marking="step", mark_from_kib=100, mark_to_kib=100))
    advance(w, 100)
    found = int(w.port[port(overloaded(), "s", "b")]["data_in"]) - int(w.port[port(overloaded(), "s", "b")]["marked"])
    assert found == pytest.approx(100 * 1024 / (0.9 * SIZE), abs=3)


def test_red_marks_with_a_growing_chance(seed):
    """Around the middle of the range half of the largest chance, above it all."""
    fabric = overloaded(marking="red", mark_from_kib=0, mark_to_kib=20_000, mark_chance=0.4)
    w = start(fabric, seed=seed)
    advance(w, 1500)
    p = w.port[port(fabric, "s", "b")]
    mean = p["queue_peak"] / (20_000 * 1024) / 2 * 0.4
    assert p["marked"] / p["data_in"] == pytest.approx(mean, rel=0.25)
    w = start(overloaded(marking="red", mark_from_kib=0, mark_to_kib=1, mark_chance=0), seed=seed)
    advance(w, 100)
    assert w.port[port(fabric, "s", "b")]["marked"] >= w.port[port(fabric, "s", "b")]["data_in"] - 2


def test_control_frames_overtake_data():
    """The acknowledgements of a flow cross the queue that its own direction has filled."""
    fabric = Fabric(("a", "b", "c"), (Switch(name="s", marking="none"), Switch(name="t", marking="none")),
                    (FabricLink(a="a", b="s"), FabricLink(a="c", b="t"), FabricLink(a="b", b="t"),
                     FabricLink(a="s", b="t", rate_gbps=10)),
                    (Flow(source="b", destination="a"), Flow(source="a", destination="c", packets=100)), ("t", "s"))
    w = start(fabric)
    advance(w, 1000)
    queue = w.queue[port(fabric, "t", "s") * QUEUES + DATA]["bytes"]
    assert queue > 1e6                                      # 0.8 ms of data
    assert 0 < w.flow[1]["done_at"] < 500e3 and w.flow[1]["time_outs"] == 0
    conserved(w)


def test_notifications_keep_their_distance():
    w = start(overloaded(marking="step", mark_from_kib=0, mark_to_kib=0), cnp_interval=100e3)
    advance(w, 1050)
    assert w.flow[0]["cnps"] in (10, 11)


@pytest.mark.parametrize("link", [{"loss": 0.05}, {"burst": 2, "burst_loss": 0.05}])
def test_links_lose_their_share_and_flows_recover(link, seed):
    fabric = line(flow={"packets": 20_000}, **link)
    w = start(fabric, seed=seed)
    advance(w, 30_000)
    p = w.port[port(fabric, "s", "b")]
    assert p["lost"] / p["sent"] == pytest.approx(0.05, rel=0.3)
    assert w.flow[0]["done_at"] > 0 and w.flow[0]["in_received"] >= 20_000 and w.flow[0]["late"] == 0
    conserved(w)


def test_jitter_delays_and_keeps_the_order(seed):
    w = start(line(jitter_us=5.0, flow={"packets": 2000}), seed=seed)
    advance(w, 5000)
    assert w.flow[0]["late"] == 0 == w.flow[0]["in_missing"]
    assert w.flow[0]["rtt_sum"] / w.flow[0]["rtt_count"] > 6000


def two_paths(**cut):
    """Return two hosts whose switches have two paths; ``cut`` has the schedule of one link of the first."""
    names = [("a", "s"), ("s", "p"), ("p", "t"), ("s", "q"), ("q", "t"), ("t", "b")]
    links = tuple(FabricLink(a=a, b=b, **(cut if (a, b) == ("p", "t") else {})) for a, b in names)
    return Fabric(("a", "b"), tuple(Switch(name=name) for name in "stpq"), links,
                  tuple(Flow(source="a", destination="b", port=n) for n in range(64)), ("s", "p"))


def test_equal_paths_are_chosen_by_hash():
    """Both paths carry traffic, each flow takes one and stays on it."""
    fabric = two_paths()
    w = start(fabric)
    fix(w, rate=0.05)
    advance(w, 1000)
    shares = [int(w.port[port(fabric, "s", name)]["sent"]) for name in "pq"]
    assert min(shares) > 0.2 * sum(shares)
    assert w.flow["late"].sum() == 0 == w.flow["in_missing"].sum()


def test_flows_return_after_a_cut():
    """The cut is two links away, so that the first switch does not see it: time-outs find the other path."""
    fabric = two_paths(down_us=((1000.0, 60_000.0),))
    w = start(fabric, time_out=500e3)
    fix(w, rate=0.05)
    advance(w, 1000)
    before = w.flow["in_received"].copy()
    advance(w, 30_000)
    middle = w.flow["in_received"].copy()
    advance(w, 31_000)
    assert (before > 0).all() and w.flow["time_outs"].sum() > 0 and (w.flow["in_received"] > middle).all()
    assert w.node["no_path"].sum() > 0
    conserved(w)


def test_a_link_that_goes_up_carries_traffic_again():
    fabric = line(down_us=((100.0, 400.0),), flow={"packets": 5000})
    w = start(fabric, time_out=100e3)
    advance(w, 200)
    at = int(w.flow[0]["in_received"])
    advance(w, 390)
    assert w.flow[0]["in_received"] == at and w.port["cut"].sum() > 0
    advance(w, 4000)
    assert w.flow[0]["done_at"] > 0 and w.flow[0]["time_outs"] > 0
    conserved(w)


def test_background_traffic_has_its_rate(seed):
    fabric = Fabric(("a", "b"), (Switch(name="s"),), (FabricLink(a="a", b="s"), FabricLink(a="s", b="b")),
                    (Flow(source="b", destination="a", packets=1),), ("s", "b"),
                    (Background(source="a", destination="b", rate_gbps=10.0, packet=1000),))
    w = start(fabric, seed=seed)
    advance(w, 5000)
    assert w.s["other_packets"] == pytest.approx(5000e3 * 1.25 / 1000, rel=0.1)
    assert w.source[0]["sent"] - w.s["other_packets"] < 10 and w.source[0]["skipped"] == 0


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_carries_every_flow(name):
    fabric = TOPOLOGIES[name](Shape(flows=5, packets=50))
    w = start(fabric, "swift")
    advance(w, 3000)
    assert (w.flow["in_received"] >= 50).all()
    assert (w.flow["done_at"] > 0).sum() == sum(flow.packets > 0 for flow in fabric.flows) >= 4
    conserved(w)


def test_equal_seeds_give_equal_runs(seed):
    runs = []
    for _ in range(2):
        w = start(line(loss=0.01, jitter_us=1.0), "rate-match", seed=seed)
        advance(w, 2000)
        runs.append((w.flow.copy(), w.port.copy()))
    assert np.array_equal(runs[0][0], runs[1][0]) and np.array_equal(runs[0][1], runs[1][1])
    w = start(line(loss=0.01, jitter_us=1.0), "rate-match", seed=seed + 1)
    advance(w, 2000)
    assert not np.array_equal(runs[0][0], w.flow)


def test_without_packets_the_run_ends():
    """A pool that is too small stops the run and is reported."""
    from weft.model.fabric import engine
    w = start(overloaded(buffer_kib=1 << 16))
    w.packet["next"][100] = -1
    engine.run(w, 5e6)
    assert w.s["overflow"] == 1
