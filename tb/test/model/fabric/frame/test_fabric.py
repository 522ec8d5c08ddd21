"""Fabric of frames: times, classes, marks, groups, cuts, losses, background traffic, limits."""

import pytest

from weft.hdl.contract import wire
from weft.model.fabric.description import Background, Fabric, FabricLink, Flow, Switch
from weft.model.fabric.frame import fabric as engine_file
from weft.model.fabric.frame.fabric import FrameFabric
from weft.model.fabric.frame.header import is_control
from weft.model.fabric.frame.report import OTHERS, report, sentences
from weft.model.settings import BadSettings
from weft.tb.test.model.fabric.frame.frames import frame, macs
from weft.tb.test.model.fabric.small_runs import line

END = 1e9


def engine(description, seed=1):
    return FrameFabric(description, macs(len(description.hosts)), seed)


def port(fabric, name):
    return report(fabric)["ports"][name]


def arrivals(fabric, until=END):
    """Return ``(time, host, frame)`` of all frames that arrive."""
    found = []
    while (at := fabric.next_ns) is not None and at <= until:
        found += [(at, *one) for one in fabric.advance(at)]
    return found


def psn_of(data):
    return int.from_bytes(data[wire.BTH_OFFSET + 9:wire.BTH_OFFSET + 12])


def star(hosts, **switch):
    names = [f"h{n}" for n in range(hosts)]
    return Fabric(tuple(names), (Switch(name="s", **switch),), tuple(FabricLink(a=a, b="s") for a in names),
                  (Flow(source="h0", destination="h1"),), ("s", "h1"))


def diamond(**cut):
    """Return two hosts with two paths between; ``cut`` has properties of a link of the first path."""
    ends = [("a", "s"), ("s", "p"), ("p", "t"), ("s", "q"), ("q", "t"), ("t", "b")]
    return Fabric(("a", "b"), tuple(Switch(name=name) for name in "stpq"),
                  tuple(FabricLink(a=a, b=b, **(cut if (a, b) == ("s", "p") else {})) for a, b in ends),
                  (Flow(source="a", destination="b"),), ("s", "p"))


def test_a_frame_takes_one_transmission_and_the_delays():
    """The card has transmitted it before: the link of its host adds its delay only."""
    fabric, data = engine(line()), frame(0, 1)
    fabric.send(0, data, 1000.0)
    assert arrivals(fabric) == [(1000 + 2000 + wire.line_bytes(len(data)) / 12.5, 1, data)]
    assert fabric.in_flight == 0 and report(fabric)["paths"] == {"a s b": 1}


def test_a_slow_link_of_a_host_makes_its_frames_wait():
    slow = Fabric(("a", "b"), (Switch(name="s"),), (FabricLink(a="a", b="s", rate_gbps=10), FabricLink(a="s", b="b")),
                  (Flow(source="a", destination="b"),), ("s", "b"))
    fabric, size = engine(slow), wire.line_bytes(len(frame(0, 1)))
    for n in range(3):
        fabric.send(0, frame(0, 1, psn=n), (n + 1) * size / 12.5)
    times = [at for at, *_ in arrivals(fabric)]
    assert times == pytest.approx([(n + 1) * size / 1.25 + 2000 + size / 12.5 for n in range(3)])


def test_what_waits_at_a_slow_host_is_limited(monkeypatch):
    monkeypatch.setattr(engine_file, "HOST_BYTES_MAX", 20_000)
    slow = Fabric(("a", "b"), (Switch(name="s"),), (FabricLink(a="a", b="s", rate_gbps=1), FabricLink(a="s", b="b")),
                  (Flow(source="a", destination="b"),), ("s", "b"))
    fabric = engine(slow)
    for _ in range(100):
        fabric.send(0, frame(0, 1), 0.0)
    assert 4 <= len(arrivals(fabric)) <= 6 and port(fabric, "a to s")["dropped"]["data"] >= 94
    assert fabric.destroyed.total() >= 94 and fabric.in_flight == 0


def both_send(fabric, count):
    """Send packets of two hosts to a third at line rate; return what arrives until the last one is sent."""
    found, time = [], wire.line_bytes(len(frame(0, 2))) / 12.5
    for n in range(count):
        found += fabric.advance(n * time)
        for source in (0, 1):
            fabric.send(source, frame(source, 2, psn=n), n * time)
    return found


def flooded(**switch):
    """Return the engine after two hosts sent 600 packets each, and the frames that arrived."""
    fabric = engine(star(3, marking="none", buffer_kib=1024, **switch))
    found = both_send(fabric, 600)
    return fabric, found + [(host, data) for _, host, data in arrivals(fabric)]


def test_a_switch_that_pauses_its_links_drops_nothing_and_keeps_the_order():
    """A link has at most what the threshold, two delays and two packets admit."""
    fabric, found = flooded(pfc=True, pause_kib=128)
    assert len(found) == 1200 and fabric.in_flight == 0 and not fabric.destroyed
    for source in (0, 1):
        psns = [psn_of(data) for _, data in found if data[11] == source + 1]
        assert psns == sorted(psns) and len(psns) == 600
        counts = port(fabric, f"h{source} to s")
        assert counts["pauses"] > 3 and counts["peak_bytes"]["data"] > 500_000
    most = 2 * ((128 << 10) + 2 * 1000 * 12.5 + 3 * 4178)
    assert 2 * (128 << 10) <= report(fabric)["switches"]["s"]["used_peak_bytes"] <= most
    assert any("paused" in sentence for sentence in sentences(report(fabric)))
    assert len(flooded(alpha=1)[1]) < 1200


def test_a_pause_holds_no_control_frame():
    fabric = engine(star(3, pfc=True, pause_kib=16, marking="none"))
    both_send(fabric, 40)
    assert port(fabric, "h0 to s")["peak_bytes"]["data"] > 10_000
    fabric.send(0, frame(0, 2, opcode=wire.Opcode.ACKNOWLEDGE, payload=4), 40 * 335.0)
    order = [data[wire.BTH_OFFSET] for _, _, data in arrivals(fabric)]
    assert order.index(wire.Opcode.ACKNOWLEDGE) < 10 < len(order)


def test_what_waits_at_a_paused_host_is_limited(monkeypatch):
    monkeypatch.setattr(engine_file, "HOST_BYTES_MAX", 50_000)
    fabric, found = flooded(pfc=True, pause_kib=16)
    lost = sum(port(fabric, f"h{source} to s")["dropped"]["data"] for source in (0, 1))
    assert lost > 100 and len(found) == 1200 - lost and fabric.in_flight == 0


def test_a_full_switch_sends_the_headers_on():
    """The first of them overtake data that came before, and what is whole keeps its order."""
    fabric, found = flooded(trim=True, alpha=1)
    whole = [data for _, data in found if len(data) == len(frame(0, 2))]
    headers = [data for _, data in found if len(data) == wire.DATA_HEADER_BYTES]
    count = port(fabric, "s to h2")
    assert len(whole) + len(headers) == len(found) == 1200 and fabric.in_flight == 0
    assert len(headers) == count["trimmed"] == count["queued"]["control"] == fabric.destroyed.total() > 50
    assert count["dropped"] == {"control": 0, "data": 0} and len(whole) == fabric.delivered_data
    assert all(map(is_control, headers))
    assert f"; {len(headers)} trimmed" in "".join(sentences(report(fabric)))
    for source in (0, 1):
        psns = [psn_of(data) for data in whole if data[11] == source + 1]
        assert psns == sorted(psns)
    arrived = [data for _, data in found]
    assert any(psn_of(data) < psn_of(headers[0]) for data in arrived[arrived.index(headers[0]):])


def test_what_cannot_be_trimmed_is_dropped():
    """Frames that are not IPv4, and those as short as the headers."""
    fabric = engine(star(3, marking="none", buffer_kib=16, trim=True, alpha=1))
    other, short = bytes(frame(0, 2)[:12]) + bytes(4000), frame(0, 2, payload=0)[:60]
    for _ in range(100):
        for data in (other, short):
            fabric.send(0, data, 0.0)
            fabric.send(1, data, 0.0)
    found = [data for _, _, data in arrivals(fabric)]
    count = port(fabric, "s to h2")
    assert count["trimmed"] == 0 and count["dropped"]["data"] == 400 - len(found) and fabric.in_flight == 0
    assert 0 < found.count(short) < 200 and 0 < found.count(other) < 180


def test_a_cut_link_ends_what_waits_for_the_end_of_a_pause():
    hosts = star(3, pfc=True, pause_kib=16, marking="none")
    cut = FabricLink(a="h0", b="s", down_us=((20.0, 30.0),))
    fabric = engine(Fabric(hosts.hosts, hosts.switches, (cut, *hosts.links[1:]), hosts.flows, hosts.watched))
    arrived = len(both_send(fabric, 200)) + len(arrivals(fabric))
    count = port(fabric, "h0 to s")
    assert count["pauses"] > 0 and count["cut"] > 20 and fabric.in_flight == 0
    assert arrived == 400 - fabric.destroyed.total() and fabric.destroyed.total() >= count["cut"]


def test_control_frames_overtake_data():
    fabric, time = engine(star(3)), wire.line_bytes(len(frame(0, 2))) / 12.5
    for n in range(20):
        fabric.send(0, frame(0, 2, psn=n), n * time)
        fabric.send(1, frame(1, 2, psn=n), n * time)
    fabric.send(0, frame(0, 2, opcode=wire.Opcode.ACKNOWLEDGE, payload=4), 20 * time)
    order = [data[wire.BTH_OFFSET] for _, _, data in arrivals(fabric)]
    assert len(order) == 41 and 20 <= order.index(wire.Opcode.ACKNOWLEDGE) <= 22
    assert port(fabric, "s to h2")["queued"] == {"control": 1, "data": 40}


def test_packets_that_cannot_be_marked_are_counted_and_pass():
    for tos, marked in ((2, 30), (0, 0)):
        fabric = engine(star(3, marking="step", mark_from_kib=0, mark_to_kib=0))
        for n in range(30):
            fabric.send(n % 2, frame(n % 2, 2, tos=tos, psn=n), 0.0)
        found = arrivals(fabric)
        assert [data[15] & 3 for _, _, data in found].count(3) == marked and len(found) == 30
        assert (port(fabric, "s to h2")["marked"], port(fabric, "s to h2")["unmarkable"]) == (marked, 30 - marked)


def test_red_marks_with_its_chance():
    fabric = engine(star(3, marking="red", mark_from_kib=0, mark_to_kib=16384, mark_chance=1.0))
    for n in range(3000):
        fabric.send(n % 2, frame(n % 2, 2, payload=1024), 0.0)
    arrivals(fabric)
    peak = port(fabric, "s to h2")["peak_bytes"]["data"]
    assert port(fabric, "s to h2")["marked"] == pytest.approx(3000 * peak / 2 / (16384 * 1024), rel=0.3)


def test_a_group_frame_reaches_every_other_host_once():
    fabric = engine(star(4))
    data = b"\xff" * 6 + frame(1, 0)[6:]
    fabric.send(1, data, 0.0)
    assert sorted(host for _, host, found in arrivals(fabric) if found == data) == [0, 2, 3]
    assert fabric.in_flight == 0 and port(fabric, "h1 to s")["sent"] == 1


@pytest.mark.parametrize("to", ["020000000099", "0180c2000001", ""])
def test_a_frame_for_nobody_has_no_path(to):
    fabric = engine(star(3))
    fabric.send(0, bytes.fromhex(to) + frame(0, 1)[6:] if to else b"", 0.0)
    assert arrivals(fabric) == [] and fabric.in_flight == 0
    assert report(fabric)["switches"]["s"]["no_path"] == 1


def test_a_card_reaches_itself():
    fabric = engine(star(2))
    fabric.send(0, frame(0, 0), 0.0)
    assert [host for _, host, _ in arrivals(fabric)] == [0]


def test_another_source_port_takes_another_path():
    fabric = engine(diamond())
    for n in range(64):
        fabric.send(0, frame(0, 1, sport=49152 + n), 100.0 * n)
    arrivals(fabric)
    paths = report(fabric)["paths"]
    assert set(paths) == {"a s p t b", "a s q t b"} and min(paths.values()) > 12


def test_a_cut_begins_with_the_first_frame_and_moves_traffic():
    """The switch knows that its link is down, and takes the other path; what is on the link is lost."""
    fabric = engine(diamond(down_us=((50.0, 100.0),)))
    ports = [49152 + n for n in range(16)]
    for time in range(0, 150_000, 500):
        fabric.advance(7e6 + time)
        for sport in ports:
            fabric.send(0, frame(0, 1, sport=sport, payload=256), 7e6 + time)
    found = arrivals(fabric)
    count = port(fabric, "s to p")
    assert 0 < count["cut"] < 200 and fabric.in_flight == 0 and found
    assert fabric.destroyed.total() == count["cut"] + port(fabric, "p to s")["cut"]
    assert 0 < report(fabric)["paths"]["a s p t b"] < report(fabric)["paths"]["a s q t b"]


def test_losses_have_their_rates(seed):
    for link in ({"loss": 0.1}, {"burst": 5, "burst_loss": 0.1}):
        fabric = engine(line(**link), seed)
        for n in range(5000):
            fabric.send(0, frame(0, 1, payload=64), 100.0 * n)
        gone = 5000 - len(arrivals(fabric))
        assert gone == port(fabric, "s to b")["lost"] == fabric.destroyed["data"] and 250 < gone < 850


def test_jitter_keeps_the_order(seed):
    fabric = engine(line(jitter_us=50.0), seed)
    for n in range(200):
        fabric.send(0, frame(0, 1, psn=n), 500.0 * n)
    found = arrivals(fabric)
    assert [data for _, _, data in found] == [frame(0, 1, psn=n) for n in range(200)]
    assert found[-1][0] > 500.0 * 199 + 2500


def test_background_traffic_has_its_rate_and_ends(seed):
    """It takes its share of the receiver's link, is delivered to no card, and pauses when no host sends."""
    fabric = engine(Fabric(("a", "b", "c"), (Switch(name="s"),), tuple(FabricLink(a=a, b="s") for a in "abc"),
                           (Flow(source="a", destination="b"),), ("s", "b"),
                           (Background(source="c", destination="b", rate_gbps=20.0, packet=1000),)), seed)
    for n in range(100):
        fabric.advance(n * 10_000.0)
        fabric.send(0, frame(0, 1), n * 10_000.0)
    assert sum(host == 1 for _, host, _ in arrivals(fabric)) <= 100
    count = report(fabric)["paths"]
    assert count["c s b"] == pytest.approx(20 * 1.09e6 / 8000, rel=0.15) and count["a s b"] == 100
    assert fabric.next_ns is None and fabric.in_flight == 0


def test_the_same_seed_repeats_a_run():
    def run(seed):
        fabric = engine(line(loss=0.3, jitter_us=3.0), seed)
        for n in range(100):
            fabric.send(0, frame(0, 1, psn=n), 400.0 * n)
        return arrivals(fabric)

    assert run(5) == run(5) != run(6)


def test_the_table_of_paths_is_limited(monkeypatch):
    monkeypatch.setattr(engine_file, "PATHS_MAX", 2)
    fabric = engine(star(4))
    for to in (1, 2, 3):
        fabric.send(0, frame(0, to), 0.0)
    arrivals(fabric)
    assert report(fabric)["paths"] == {OTHERS: 1, "h0 s h1": 1, "h0 s h2": 1}


def test_sentences_have_the_counters():
    fabric = engine(star(3, buffer_kib=16, alpha=128))
    for n in range(20):
        fabric.send(n % 2, frame(n % 2, 2, psn=n), 0.0)
    arrivals(fabric)
    text = "\n".join(sentences(report(fabric)))
    dropped = port(fabric, "s to h2")["dropped"]["data"]
    assert dropped > 0 and f"{dropped} dropped" in text and "path h0 s h2" in text and "switch s: at most" in text


def test_wrong_numbers_of_hosts_and_links_faster_than_cards_are_refused():
    with pytest.raises(BadSettings, match=r"the fabric has 3 hosts \(h0, h1, h2\), and 2 are given"):
        FrameFabric(star(3), macs(2))
    fast = Fabric(("a", "b"), (Switch(name="s"),), (FabricLink(a="a", b="s", rate_gbps=200), FabricLink(a="s", b="b")),
                  (Flow(source="a", destination="b"),), ("s", "b"))
    with pytest.raises(BadSettings, match="link of host 'a' has 200 Gb/s; a card has 100"):
        FrameFabric(fast, macs(2))
