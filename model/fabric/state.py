"""Arrays of a run, sized for its fabric."""

from typing import Any, NamedTuple

import numpy as np

from weft.driver.congestion.algorithm import NS_BITS
from weft.driver.congestion.algorithms import create

from ..wan.path.draw import streams
from . import background, engine, events, host, link, packets, rules, switch, trim
from .description import Fabric
from .forwarding import ADDRESS, tuple_hash

ENDLESS = 1 << 60
PACKETS_MAX = 1 << 22
RUN = np.dtype(events.STATE + packets.STATE + host.STATE + host.CONFIG + [("lengths_most", "i8")])
PORT = np.dtype(link.PORT + host.PORT + switch.PORT)
FLOW = np.dtype(host.FLOW)


class State(NamedTuple):
    """Arrays of records."""

    s: np.void              # configuration, state and counts of the run
    random: np.ndarray      # streams of random numbers
    event: np.ndarray       # heap
    packet: np.ndarray      # pool
    queue: np.ndarray       # three for each port
    port: np.ndarray        # of hosts and switches, in the order of `Fabric.ports`
    lengths: np.ndarray     # (ports, BINS): time at each length of the data queue
    node: np.ndarray        # hosts, then switches
    route: np.ndarray       # (nodes, hosts): range of `hop`
    hop: np.ndarray         # ports
    flow: np.ndarray
    source: np.ndarray      # of background traffic
    change: np.ndarray      # of links
    got: np.ndarray         # (flows, span): PSNs that the receiver has, beyond `cum`
    again: np.ndarray       # (flows, span): queue of PSNs to send again
    number: np.ndarray      # (flows, span): PSN of each transmission
    ahead: np.ndarray       # (flows, AHEAD_MAX): 1 if a transmission was trimmed
    none: np.ndarray        # state of each algorithm, by flow
    dcqcn: np.ndarray
    swift: np.ndarray
    rate_match: np.ndarray


def make(fabric: Fabric, algorithm: str, config: dict[str, Any], seed: int, tuning: dict[str, Any]) -> State:
    """Return the arrays of a fabric before its first event.

    Parameters
    ----------
    fabric
    algorithm
        Name of the congestion control of all flows.
    config
        Values of ``host.CONFIG``; times in nanoseconds.
    seed
    tuning
        Settings of the algorithm that differ from their defaults.
    """
    ports, flows, changes = len(fabric.ports), len(fabric.flows), 4 * sum(len(a.down_us) for a in fabric.links)
    pool = _pool(fabric, config["packet_bytes"])
    w = State(
        s=np.zeros(1, RUN)[0], random=streams(seed),
        event=np.zeros(3 * ports + 3 * flows + changes + len(fabric.background) + 2, events.EVENT),
        packet=np.zeros(pool, packets.PACKET), queue=np.zeros(ports * packets.QUEUES, packets.QUEUE),
        port=np.zeros(ports, PORT), lengths=np.zeros((ports, switch.BINS)),
        node=np.zeros(len(fabric.nodes), switch.NODE),
        route=np.zeros((len(fabric.nodes), len(fabric.hosts)), [("first", "i4"), ("count", "i4")]),
        hop=np.array(_hops(fabric), np.int32), flow=np.zeros(flows, FLOW),
        source=np.zeros(max(1, len(fabric.background)), background.SOURCE),
        change=np.zeros(max(1, changes), engine.CHANGE), got=np.zeros((flows, config["span"]), np.uint8),
        again=np.zeros((flows, config["span"]), np.int64), number=np.zeros((flows, config["span"]), np.int64),
        ahead=np.zeros((flows, trim.AHEAD_MAX), np.uint8),
        **{name.replace("-", "_"): np.zeros(flows, rules.record(name)) for name in rules.NAMES})
    for name, value in config.items():
        w.s[name] = value
    w.packet["next"] = [*range(1, pool), -1]
    w.queue["head"] = -1
    w.s["lengths_most"] = max((a.buffer_kib << 10 for a in fabric.switches), default=1 << 20)
    _nodes(w, fabric)
    _links(w, fabric)
    _routes(w, fabric)
    _flows(w, fabric, algorithm, tuning)
    _schedule(w, fabric)
    return w


def _pool(fabric: Fabric, packet_bytes: int) -> int:
    """Return the number of packets: all buffers, and all links twice, full of packets; and acknowledgements."""
    links = sum(4 * (a.delay_us + a.jitter_us) * a.rate_gbps * 125 / packet_bytes for a in fabric.links)
    buffers = sum(a.buffer_kib * 1024 / packet_bytes for a in fabric.switches)
    return int(min(PACKETS_MAX, links + 2 * buffers + 4096 + 64 * len(fabric.flows)))


def _nodes(w: State, fabric: Fabric) -> None:
    w.node["host"][:len(fabric.hosts)] = 1
    for node, a in zip(w.node[len(fabric.hosts):], fabric.switches, strict=True):
        node["buffer"], node["alpha"], node["mark_chance"] = a.buffer_kib << 10, a.alpha, a.mark_chance
        node["mark_from"], node["mark_to"] = a.mark_bytes
        node["trim"] = a.trim
        node["pause_from"], node["pause_until"] = a.pause_bytes


def _links(w: State, fabric: Fabric) -> None:
    number = {name: n for n, name in enumerate(fabric.nodes)}
    for n, (a, b) in enumerate(fabric.ports):
        one, p = fabric.links[n // 2], w.port[n]
        p["node"], p["peer"], p["rate"], p["delay"] = number[a], number[b], one.rate_gbps / 8, one.delay_us * 1e3
        p["jitter"], p["loss"], p["up"], p["ready_head"] = one.jitter_us * 1e3, one.loss, 1, -1
        p["burst_leave"] = 1 / one.burst
        p["burst_enter"] = one.burst_loss / (1 - one.burst_loss) / one.burst


def _hops(fabric: Fabric) -> list[int]:
    return [port for rows in fabric.routes() for ports in rows for port in ports]


def _routes(w: State, fabric: Fabric) -> None:
    first = 0
    for row, choices in zip(w.route, fabric.routes(), strict=True):
        for route, ports in zip(row, choices, strict=True):
            route["first"], route["count"] = first, len(ports)
            first += len(ports)


def _hash(number: dict[str, int], source: str, destination: str, port: int) -> int:
    return tuple_hash(ADDRESS + number[source], ADDRESS + number[destination], port)


def _flows(w: State, fabric: Fabric, algorithm: str, tuning: dict[str, Any]) -> None:
    number = {name: n for n, name in enumerate(fabric.nodes)}
    port_of = {node: n for n, (node, _) in enumerate(fabric.ports)}
    rate = {node: fabric.links[n // 2].rate_gbps for n, (node, _) in enumerate(fabric.ports)}
    for n, one in enumerate(fabric.flows):
        f, control = w.flow[n], create(algorithm, rate[one.source] * 1e9, fabric.rtt_ns(one), **tuning)
        rules.store(getattr(w, algorithm.replace("-", "_"))[n], control)
        f["source"], f["destination"] = number[one.source], number[one.destination]
        f["port"], f["back_port"] = port_of[one.source], port_of[one.destination]
        f["algorithm"], f["state"], f["total"] = rules.NAMES.index(algorithm), host.WAITING, one.packets or ENDLESS
        f["hash"] = _hash(number, one.source, one.destination, one.port)
        f["rate"], f["limit"], f["done_at"], f["cnp_at"] = control.rate / NS_BITS, control.limit, -1, -1e18
        f["refused_epoch"] = -1


def _schedule(w: State, fabric: Fabric) -> None:
    """Put the first events into the heap: a sorted array is one."""
    number = {name: n for n, name in enumerate(fabric.nodes)}
    port_of = {node: n for n, (node, _) in enumerate(fabric.ports)}
    found = [(one.start_us * 1e3, events.PACED, n) for n, one in enumerate(fabric.flows)]
    for n, one in enumerate(fabric.background):
        b = w.source[n]
        b["port"], b["to"], b["bytes"] = port_of[one.source], number[one.destination], one.packet
        b["gap"], b["hash"] = one.packet * 8 / one.rate_gbps, _hash(number, one.source, one.destination, n)
        found.append((0.0, events.BACKGROUND, n))
    changes = [(at * 1e3, 2 * n + side, up) for n, one in enumerate(fabric.links) for pair in one.down_us
               for up, at in enumerate(pair) for side in (0, 1)]
    for n, (at, port, up) in enumerate(changes):
        w.change[n]["port"], w.change[n]["up"] = port, up
        found.append((at, events.LINK, n))
    for n, (at, kind, index) in enumerate(sorted(found)):
        e = w.event[n]
        e["at"], e["number"], e["kind"], e["index"] = at, n, kind, index
    w.s["events"] = w.s["events_number"] = len(found)
