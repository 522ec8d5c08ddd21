"""Description of a fabric: hosts, switches, links, and the flows and background traffic between hosts."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

from ..settings import BadSetting, BadSettings, Setting, chance, check

MARKINGS = NO_MARKING, STEP, RED = "none", "step", "red"
NODES_MAX = 4096


@dataclass(frozen=True, kw_only=True)
class Switch:
    """Output-queued switch whose ports share one buffer. Raises BadSetting."""

    name: str
    buffer_kib: Annotated[int, Setting("Buffer that all ports share.", unit="KiB", least=16, most=1 << 24)] = 32768
    alpha: Annotated[float, Setting("Share of the free buffer that one queue may occupy: dynamic thresholds.",
                                    least=1 / 128, most=128)] = 8.0
    marking: Annotated[str, Setting("ECN marking: at mark_from_kib, or with a chance that grows from there to "
                                    "mark_to_kib.", choices=MARKINGS)] = RED
    mark_from_kib: Annotated[float, Setting("Queue from which packets are marked.", unit="KiB",
                                            least=0, most=1 << 24)] = 100.0
    mark_to_kib: Annotated[float, Setting("Queue from which RED marks every packet.", unit="KiB",
                                          least=0, most=1 << 24)] = 400.0
    mark_chance: Annotated[float, chance("Chance of a mark just below mark_to_kib.")] = 0.1
    pfc: Annotated[bool, Setting("Pause the data of a link that has filled pause_kib of the buffer; no queue is "
                                 "limited by alpha then.")] = False
    pause_kib: Annotated[int, Setting("Data of a link from which on it is paused, until half of that is left.",
                                      unit="KiB", least=1, most=1 << 24)] = 512
    trim: Annotated[bool, Setting("Send on the headers of a packet that finds no space.")] = False

    def __post_init__(self) -> None:
        check(self)
        if self.mark_to_kib < self.mark_from_kib:
            raise BadSetting("mark_to_kib", self.mark_to_kib, "it must be at least mark_from_kib")

    @property
    def mark_bytes(self) -> tuple[int, int]:
        """Queues from which some and all packets are marked; the second is -1 without marking."""
        start = int(self.mark_from_kib * 1024)
        return start, {STEP: start, RED: int(self.mark_to_kib * 1024)}.get(self.marking, -1)

    @property
    def pause_bytes(self) -> tuple[int, int]:
        """Data of a link from which on it is paused, and below which the pause ends; 0 without ``pfc``."""
        return (self.pause_kib << 10, self.pause_kib << 9) if self.pfc else (0, 0)


@dataclass(frozen=True, kw_only=True)
class FabricLink:
    """Link between two nodes, equal in both directions. Raises BadSetting.

    Attributes
    ----------
    a, b
        Names of its nodes.
    down_us
        Pairs of times at which the link goes down and up again.
    """

    a: str
    b: str
    rate_gbps: Annotated[float, Setting("Rate.", unit="Gb/s", least=0.01, most=1600)] = 100.0
    delay_us: Annotated[float, Setting("Delay one way.", unit="microseconds", least=0, most=1e6)] = 1.0
    jitter_us: Annotated[float, Setting("Largest additional delay; frames keep their order.",
                                        unit="microseconds", least=0, most=1e6)] = 0.0
    loss: Annotated[float, chance("Chance of each frame to be lost.")] = 0.0
    burst: Annotated[float, Setting("Gilbert-Elliott: mean length of a burst.", unit="frames",
                                    least=1, most=1e6)] = 1.0
    burst_loss: Annotated[float, Setting("Share of frames that bursts lose.", least=0, most=0.5)] = 0.0
    down_us: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        check(self)
        times = [time for pair in self.down_us for time in pair]
        if any(len(pair) != 2 for pair in self.down_us) or times != sorted(times) or (times and times[0] < 0):
            raise BadSetting("down_us", self.down_us, "write pairs [down, up] of microseconds in ascending order")


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Connection from one host to another. Raises BadSetting."""

    source: str
    destination: str
    start_us: Annotated[float, Setting("Time of the first packet.", unit="microseconds", least=0, most=1e9)] = 0.0
    packets: Annotated[int, Setting("Length; 0: endless.", unit="packets", least=0, most=1 << 40)] = 0
    port: Annotated[int, Setting("UDP source port; its hash selects one of several equal paths.",
                                 least=0, most=65535)] = 49152

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class Background:
    """Packets without congestion control at random times. Raises BadSetting."""

    source: str
    destination: str
    rate_gbps: Annotated[float, Setting("Mean rate.", unit="Gb/s", least=0.001, most=1600)] = 1.0
    packet: Annotated[int, Setting("Packet on the wire.", unit="bytes", least=64, most=16384)] = 1106

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Fabric:
    """Network and its traffic. Raises BadSettings.

    Attributes
    ----------
    watched
        Nodes of the bottleneck: the port of the first towards the second.
    """

    hosts: tuple[str, ...]
    switches: tuple[Switch, ...]
    links: tuple[FabricLink, ...]
    flows: tuple[Flow, ...]
    watched: tuple[str, str]
    background: tuple[Background, ...] = field(default=())

    def __post_init__(self) -> None:
        names = self.nodes
        if not self.hosts:
            raise BadSettings("a fabric needs hosts")
        if len(names) > NODES_MAX:
            raise BadSettings(f"the fabric has {len(names)} nodes; at most {NODES_MAX} are possible")
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise BadSettings(f"{twice[0]!r} is the name of two nodes; give each node another name")
        ends = [(link.a, link.b) for link in self.links]
        if len({frozenset(pair) for pair in ends}) != len(ends):
            raise BadSettings("two links have the same ends; put a switch into one of them")
        for a, b in (*ends, self.watched):
            if a == b or a not in names or b not in names:
                raise BadSettings(f"a link from {a!r} to {b!r} needs two nodes of the fabric")
        if self.watched not in ends and self.watched[::-1] not in ends:
            raise BadSettings(f"watched is {self.watched[0]!r} to {self.watched[1]!r}; there is no such link")
        for host in self.hosts:
            if sum(host in pair for pair in ends) != 1:
                raise BadSettings(f"host {host!r} needs exactly one link")
        senders: tuple[Flow | Background, ...] = (*self.flows, *self.background)
        for one in senders:
            if one.source not in self.hosts or one.destination not in self.hosts or one.source == one.destination:
                raise BadSettings(f"a flow from {one.source!r} to {one.destination!r} needs two hosts of the fabric")
        reached = self.distances(self.hosts[0])
        if lost := [host for host in self.hosts if host not in reached]:
            raise BadSettings(f"no path leads from {self.hosts[0]!r} to {lost[0]!r}")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Hosts, then switches."""
        return (*self.hosts, *(switch.name for switch in self.switches))

    @property
    def ports(self) -> list[tuple[str, str]]:
        """``(node, peer)`` of both directions of every link, in the order of the links."""
        return [pair for link in self.links for pair in ((link.a, link.b), (link.b, link.a))]

    def distances(self, destination: str) -> dict[str, int]:
        """Return the number of links from each node to a host; only switches forward."""
        found, edge = {destination: 0}, [destination]
        while edge:
            near = {b for a in edge for c, b in self.ports if c == a}
            step = found[edge[0]] + 1
            new = [name for name in sorted(near) if name not in found]
            found |= dict.fromkeys(new, step)
            edge = [name for name in new if name not in self.hosts]
        return found

    def routes(self) -> list[list[list[int]]]:
        """Return, by node and host, the ports on shortest paths, as numbers in :attr:`ports`."""
        far = [self.distances(host) for host in self.hosts]
        own: dict[str, list[tuple[int, str]]] = {name: [] for name in self.nodes}
        for number, (a, b) in enumerate(self.ports):
            own[a].append((number, b))
        return [[[number for number, b in own[node] if to.get(b, NODES_MAX) < to.get(node, 0)] for to in far]
                for node in self.nodes]

    @property
    def longest_ns(self) -> float:
        """Largest sum of delays of a shortest path between two hosts, without transmission times."""
        delay, longest = {pair: link.delay_us + link.jitter_us for link in self.links
                          for pair in ((link.a, link.b), (link.b, link.a))}, 0.0
        routes, ports, number = self.routes(), self.ports, {name: n for n, name in enumerate(self.nodes)}
        for to, destination in enumerate(self.hosts):
            far = self.distances(destination)
            total = {destination: 0.0}
            for node in sorted(far, key=far.__getitem__):
                for port in routes[number[node]][to]:
                    total[node] = max(total.get(node, 0.0), delay[ports[port]] + total[ports[port][1]])
            longest = max(longest, *(total[host] for host in self.hosts))
        return longest * 1e3

    def rtt_ns(self, flow: Flow) -> float:
        """Return the round trip time of a flow's shortest path, without transmission times."""
        delay = {pair: link.delay_us for link in self.links for pair in ((link.a, link.b), (link.b, link.a))}
        far, at, total = self.distances(flow.destination), flow.source, 0.0
        while at != flow.destination:
            to = next(b for a, b in self.ports if a == at and far.get(b, NODES_MAX) == far[at] - 1)
            total, at = total + delay[at, to], to
        return 2e3 * total
