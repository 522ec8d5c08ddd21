"""Oracle: the compiled engine and the one of frames decide alike about the same arrivals."""

import pytest

from weft.hdl.contract import wire
from weft.model.fabric.description import Fabric, FabricLink, Flow, Switch
from weft.model.fabric.frame.fabric import FrameFabric
from weft.tb.test.model.fabric.frame.frames import frame, macs
from weft.tb.test.model.fabric.small_runs import advance, start

UNTIL_US = 400
RATES = {"a": 9.03, "c": 7.01, "d": 4.97}      # bytes in a nanosecond; no two packets arrive at the same time
LAST = 1 << 40


def star(**switch):
    """Return three senders with one receiver, whose link is slower than each of theirs."""
    links = [FabricLink(a=name, b="s", delay_us=1 + 0.137 * n) for n, name in enumerate(RATES)]
    return Fabric((*RATES, "b"), (Switch(name="s", **switch),), (*links, FabricLink(a="s", b="b", rate_gbps=40)),
                  tuple(Flow(source=name, destination="b", start_us=0.311 * n) for n, name in enumerate(RATES)),
                  ("s", "b"))


def slow_end(**pausing):
    """Return the senders of :func:`star` at a switch whose uplink leads to another one, which pauses it."""
    links = [FabricLink(a=name, b="s", delay_us=1 + 0.137 * n) for n, name in enumerate(RATES)]
    ends = (FabricLink(a="s", b="t", delay_us=0.913), FabricLink(a="t", b="b", rate_gbps=40))
    return Fabric((*RATES, "b"), (Switch(name="s", marking="none"), Switch(name="t", marking="none", **pausing)),
                  (*links, *ends), tuple(Flow(source=name, destination="b", start_us=0.311 * n)
                                         for n, name in enumerate(RATES)), ("t", "b"))


def many_paths():
    """Return two hosts with two switches of two paths between, and flows with different ports."""
    names = [("a", "s"), ("s", "p"), ("p", "t"), ("s", "q"), ("q", "t"), ("t", "b")]
    return Fabric(("a", "b"), tuple(Switch(name=name) for name in "stpq"),
                  tuple(FabricLink(a=a, b=b) for a, b in names),
                  tuple(Flow(source="a", destination="b", port=49152 + 7 * n, start_us=3.1 * n) for n in range(32)),
                  ("s", "p"))


def compiled(fabric, rates, size):
    w = start(fabric, packet_bytes=size, time_out=1e12, ack_every=1 << 30)
    w.flow["rate"], w.none["rate"] = rates, [8e9 * rate for rate in rates]
    w.flow["limit"] = w.none["limit"] = LAST
    w.flow["next_at"] = [flow.start_us * 1e3 for flow in fabric.flows]
    advance(w, UNTIL_US)
    return w


def in_frames(fabric, rates, size):
    """Send the packets that the senders of the other engine have begun; run until the same time."""
    engine, sent = FrameFabric(fabric, macs(len(fabric.hosts))), []
    for flow, rate in zip(fabric.flows, rates, strict=True):
        source, destination = (fabric.hosts.index(name) for name in (flow.source, flow.destination))
        data, at = frame(source, destination, sport=flow.port), flow.start_us * 1e3
        while at + size / 12.5 <= UNTIL_US * 1e3:
            sent.append((at + size / 12.5, source, data))
            at += size / rate
    for at, source, data in sorted(sent):
        engine.advance(at)
        engine.send(source, data, at)
    engine.advance(UNTIL_US * 1e3)
    return engine


def alike(fabric, rates):
    """Compare all ports that carry data; return the engine of frames."""
    size = wire.line_bytes(len(frame(0, 1)))
    w, engine = compiled(fabric, rates, size), in_frames(fabric, rates, size)
    towards = [n for n, port in enumerate(w.port) if port["data_in"] or w.node[port["node"]]["host"] and port["sent"]]
    for n in towards:
        if fabric.ports[n][0] == "b":           # acknowledgements
            continue
        ours, theirs = engine.ports[n].counters, w.port[n]
        assert (ours.sent, ours.sent_bytes, ours.pauses, ours.trimmed) == tuple(
            theirs[name] for name in ("sent", "sent_bytes", "pauses", "trimmed")), fabric.ports[n]
        if not w.node[theirs["node"]]["host"]:
            assert (ours.dropped["data"], ours.marked, ours.peak_bytes["data"], ours.queued["data"]) == (
                theirs["dropped"], theirs["marked"], theirs["queue_peak"], theirs["data_in"]), fabric.ports[n]
    return engine


@pytest.mark.parametrize(("switch", "dropped", "marked"), [
    ({"buffer_kib": 256, "alpha": 0.5, "marking": "none"}, True, False),
    ({"buffer_kib": 128, "alpha": 128, "marking": "step", "mark_from_kib": 64, "mark_to_kib": 64}, True, True),
    ({"marking": "step", "mark_from_kib": 300, "mark_to_kib": 300}, False, True),
    ({"marking": "red", "mark_from_kib": 40, "mark_to_kib": 90, "mark_chance": 0}, False, True)])
def test_drops_marks_and_queues_are_those_of_the_compiled_engine(switch, dropped, marked):
    fabric = star(**switch)
    port = alike(fabric, list(RATES.values())).ports[fabric.ports.index(("s", "b"))].counters
    assert (port.dropped.total() > 50, port.marked > 50) == (dropped, marked)


def test_pauses_are_those_of_the_compiled_engine():
    fabric = slow_end(pfc=True, pause_kib=64)
    uplink = alike(fabric, list(RATES.values())).ports[fabric.ports.index(("s", "t"))].counters
    assert uplink.pauses > 5 and uplink.peak_bytes["data"] > 300_000 and uplink.dropped.total() == 0


def test_trimmed_packets_are_those_of_the_compiled_engine():
    fabric = star(buffer_kib=256, alpha=0.5, marking="none", trim=True)
    port = alike(fabric, list(RATES.values())).ports[fabric.ports.index(("s", "b"))].counters
    assert port.trimmed > 50 and port.dropped.total() == 0


def test_paths_are_those_of_the_compiled_engine():
    fabric = many_paths()
    engine = alike(fabric, [0.3] * 32)
    counts = sorted(engine.paths.values())
    assert len(counts) == 2 and counts[0] > 0.1 * counts[1]
