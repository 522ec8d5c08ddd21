"""Fabrics by name: ``pair``, ``dumbbell``, ``incast``, ``incast-uplink``, ``parking-lot``, ``leaf-spine``, ``wan``."""

from collections.abc import Callable
from dataclasses import dataclass, field

from .description import Fabric, FabricLink, Flow, Switch

FIRST_PORT = 49152      # of the range for RoCEv2
LEAF_HOSTS = 4


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes that a topology uses.

    Attributes
    ----------
    flows
        Number of flows; each topology distributes them over its hosts.
    host_gbps, bottleneck_gbps
        Rates of the hosts' links and of the watched link, in Gb/s.
    rtts_us
        Round trip times without transmission, in microseconds; the flows take them in turn.
    loss
        Chance of a loss on the watched link.
    jitter_us
        Jitter of the hosts' links. Without it, equal flows stay in step, and full buffers drop packets of some only.
    packets
        Length of each flow; 0: endless.
    switch
        Properties of every switch.
    """

    flows: int = 2
    host_gbps: float = 100.0
    bottleneck_gbps: float = 100.0
    rtts_us: tuple[float, ...] = (10.0,)
    loss: float = 0.0
    jitter_us: float = 0.0
    packets: int = 0
    switch: dict[str, object] = field(default_factory=dict)

    def switches(self, *names: str) -> tuple[Switch, ...]:
        """Return equal switches with these names."""
        return tuple(Switch(name=name, **self.switch) for name in names)  # type: ignore[arg-type]

    def link(self, a: str, b: str, share: float, *, rtt_us: float | None = None) -> FabricLink:
        """Return a link of a host with a share of the round trip time."""
        rtt_us = self.rtts_us[0] if rtt_us is None else rtt_us
        return FabricLink(a=a, b=b, rate_gbps=self.host_gbps, delay_us=rtt_us * share / 2, jitter_us=self.jitter_us)

    def bottleneck(self, a: str, b: str, share: float) -> FabricLink:
        """Return the watched link with a share of the shortest round trip time."""
        return FabricLink(a=a, b=b, rate_gbps=self.bottleneck_gbps, delay_us=min(self.rtts_us) * share / 2,
                          loss=self.loss)

    def flow(self, number: int, source: str, destination: str) -> Flow:
        """Return a flow whose port differs from those of others."""
        return Flow(source=source, destination=destination, packets=self.packets, port=FIRST_PORT + number % 16384)


def pair(shape: Shape) -> Fabric:
    """Two hosts and one switch; all flows have the same direction."""
    return Fabric(("a", "b"), shape.switches("s"), (shape.link("a", "s", 0.5), shape.bottleneck("s", "b", 0.5)),
                  tuple(shape.flow(n, "a", "b") for n in range(shape.flows)), ("s", "b"))


def dumbbell(shape: Shape) -> Fabric:
    """A host pair per flow; all pairs share the link between two switches."""
    left, right = [f"a{n}" for n in range(shape.flows)], [f"b{n}" for n in range(shape.flows)]
    shortest, links = min(shape.rtts_us), [shape.bottleneck("s", "t", 0.4)]
    for n, (a, b) in enumerate(zip(left, right, strict=True)):
        rest = shape.rtts_us[n % len(shape.rtts_us)] - 0.4 * shortest
        links += [shape.link(a, "s", 0.5, rtt_us=rest), shape.link(b, "t", 0.5, rtt_us=rest)]
    return Fabric((*left, *right), shape.switches("s", "t"), tuple(links),
                  tuple(shape.flow(n, a, b) for n, (a, b) in enumerate(zip(left, right, strict=True))), ("s", "t"))


def incast(shape: Shape) -> Fabric:
    """All but the last flow lead to one host. The last one, the victim, is endless and has a host to itself."""
    senders = [f"a{n}" for n in range(shape.flows)]
    links = [shape.link(a, "s", 0.5) for a in senders]
    links += [shape.bottleneck("s", "b", 0.5), shape.link("s", "v", 0.5)]
    return Fabric((*senders, "b", "v"), shape.switches("s"), tuple(links), _incast_flows(shape, senders), ("s", "b"))


def incast_uplink(shape: Shape) -> Fabric:
    """The same with an uplink that the victim shares; its rate is that of both receivers together."""
    senders = [f"a{n}" for n in range(shape.flows)]
    links = [shape.link(a, "s", 0.4) for a in senders]
    links += [FabricLink(a="s", b="t", rate_gbps=shape.bottleneck_gbps + shape.host_gbps,
                         delay_us=shape.rtts_us[0] * 0.2 / 2),
              shape.bottleneck("t", "b", 0.4), shape.link("t", "v", 0.4)]
    flows = _incast_flows(shape, senders)
    return Fabric((*senders, "b", "v"), shape.switches("s", "t"), tuple(links), flows, ("t", "b"))


def _incast_flows(shape: Shape, senders: list[str]) -> tuple[Flow, ...]:
    victim = Flow(source=senders[-1], destination="v", port=FIRST_PORT)
    return (*(shape.flow(n, a, "b") for n, a in enumerate(senders[:-1])), victim)


def parking_lot(shape: Shape) -> Fabric:
    """The first flow crosses a chain of switches; each of the others crosses one link of the chain."""
    count = max(1, shape.flows - 1)
    names = [f"s{n}" for n in range(count + 1)]
    hosts, links, flows = ["a", "b"], [shape.link("a", names[0], 0.2), shape.link("b", names[-1], 0.2)], []
    flows.append(shape.flow(0, "a", "b"))
    for n in range(count):
        links.append(shape.bottleneck(names[n], names[n + 1], 0.6 / count))
    for n in range(shape.flows - 1):
        hosts += [f"c{n}", f"d{n}"]
        links += [shape.link(f"c{n}", names[n], 0.2), shape.link(f"d{n}", names[n + 1], 0.2)]
        flows.append(shape.flow(n + 1, f"c{n}", f"d{n}"))
    return Fabric(tuple(hosts), shape.switches(*names), tuple(links), tuple(flows), (names[0], names[1]))


def leaf_spine(shape: Shape) -> Fabric:
    """Leaves of four hosts below two spines; each host of the first half sends to one of the second half."""
    leaves = [f"l{n}" for n in range(2 * -(-shape.flows // LEAF_HOSTS))]
    half = len(leaves) // 2
    sources = [f"{leaf}h{n}" for leaf in leaves[:half] for n in range(LEAF_HOSTS)][:shape.flows]
    sinks = [f"{leaf}h{n}" for leaf in leaves[half:] for n in range(LEAF_HOSTS)][:shape.flows]
    links = [shape.link(host, host.partition("h")[0], 0.25) for host in (*sources, *sinks)]
    links += [shape.bottleneck(leaf, spine, 0.25) for leaf in leaves for spine in ("p0", "p1")]
    return Fabric((*sources, *sinks), shape.switches(*leaves, "p0", "p1"), tuple(links),
                  tuple(shape.flow(n, a, b) for n, (a, b) in enumerate(zip(sources, sinks, strict=True))), ("l0", "p0"))


TOPOLOGIES: dict[str, Callable[[Shape], Fabric]] = {
    "pair": pair, "dumbbell": dumbbell, "incast": incast, "incast-uplink": incast_uplink, "parking-lot": parking_lot,
    "leaf-spine": leaf_spine, "wan": dumbbell}
