"""Hosts on functional cards whose simulated time never overtakes wall-clock time."""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from weft.driver.device.device import Device
from weft.driver.serve.daemon import ServeBackend
from weft.driver.verbs.context import Context, ContextConfig
from weft.driver.verbs.device_list import add_device, remove_device
from weft.model.fabric.description import Fabric
from weft.model.fabric.frame.fabric import FrameFabric
from weft.model.fabric.frame.on_loop import LoopFabric
from weft.model.fabric.frame.report import report, sentences
from weft.model.functional.host import FunctionalDevice
from weft.model.impairments import FrameKind, LinkCounters
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop
from weft.tb.app.serve.switch import AWAY_NS, Switch, UdpLink
from weft.tb.app.serve.wall_clock import WallClock

MAC, IP = 0x02_0000_0000_01, 0x0A00_0001      # of the first host; those of the others follow
REST_S = 1.0
SLOT_LOG2 = 13      # slots for datagrams of 4096 bytes


def config_for(delay_ns: int, seed: str, congestion: str = "none", *, path_search: bool = False) -> ContextConfig:
    """Return the configuration of a driver for cards with this delay, and one path or several, between them."""
    return ContextConfig(keep_qp_num=True, ring_log2=8, nic_slot_log2=SLOT_LOG2, time_wait_qps=64,
                         probe_timeout_ns=2 * delay_ns + 50_000, random=random.Random(f"{seed}/driver"),
                         congestion=congestion, path_search=path_search)


def sentence_of(host: str, counters: LinkCounters) -> str:
    """Return a sentence about the frames of a host, from the counters of its link."""
    more = "".join(f", {number} {name}" for name in ("duplicated", "reordered", "corrupted")
                   if (number := getattr(counters, name).total()))
    return (f"host {host}: {counters.sent.total()} frames sent, {counters.lost.total()} lost{more}; "
            f"{counters.destroyed_data} packets lost, {counters.sent[FrameKind.RETX]} sent again")


class CardBackend(ServeBackend):
    """Card, driver and link of each host.

    Attributes
    ----------
    contexts
        Context of each host, which keeps its card enabled without programs.
    links
        Link on which each host sends, by name of the host.
    fabric
        Network after these links, or None.
    """

    fabric: FrameFabric | None = None

    def __init__(self) -> None:
        self.hosts: dict[str, str] = {}
        self.contexts: list[Context] = []
        self.links: dict[str, Link] = {}

    def _open(self, name: str, number: int, device: Device, link: Link | None, config: ContextConfig) -> None:
        """Open the driver of host ``number``, counted from 0. Hardware has no ``link`` here."""
        if link is not None:
            self.links[name] = link
        self.hosts[name] = add_device(device, mac=MAC + number, ip=IP + number, config=config)
        self.contexts.append(Context(name=self.hosts[name]))

    @property
    def driver_due_ns(self) -> float | None:
        """Earliest deadline of the drivers, or None."""
        dues: list[float | None] = []
        for engine in (context.engine for context in self.contexts):
            dues += [engine.qps.deadline, engine.neighbours.deadline, *(one.deadline for one in engine.services)]
        return min((due for due in dues if due is not None), default=None)

    def summary(self) -> Iterator[str]:
        """Yield a sentence about the frames of each host, and the counters of the fabric."""
        for name, link in self.links.items():
            yield sentence_of(name, link.counters)
        if self.fabric is not None:
            yield from sentences(report(self.fabric))

    def close(self) -> None:
        """Stop the cards."""
        for context, name in zip(self.contexts, self.hosts.values(), strict=True):
            context.close()
            remove_device(name)


class FunctionalBackend(CardBackend):
    """Functional cards on a switch; subclasses set another ``device_type`` on the event loop.

    Parameters
    ----------
    loss
        Chance of a loss of each frame before the switch.
    delay_ns
        Delay from one host to another.
    first
        The last byte of the first host's addresses.
    uplink
        Link to the hosts of another daemon.
    network
        Fabric instead of the switch; its hosts are these, in their order. It has no uplink.
    congestion
        Congestion control of the drivers.
    """

    device_type: type[FunctionalDevice] = FunctionalDevice

    def __init__(self, hosts: Sequence[str], *, loss: float = 0.0, delay_ns: int = 1_000, seed: int | str = 1,
                 preset: str = "full", first: int = 1, uplink: UdpLink | None = None,
                 network: Fabric | None = None, congestion: str = "none") -> None:
        super().__init__()
        self.loop, self.switch, self.seed, self._uplink = EventLoop(), Switch(), seed, uplink
        self.devices: list[Any] = []            # of `device_type`
        delay = delay_ns if uplink is None else delay_ns + AWAY_NS
        if uplink is not None:
            self.switch.uplink, self.files = uplink.send, [uplink.fileno()]
        for n, name in enumerate(hosts, first - 1):
            device = self.device_type(self.loop, seed=f"{seed}/{n}", preset=preset)
            self.switch.ports[(MAC + n).to_bytes(6, "big")] = device.card.receive
            link = Link(self.loop, self.switch.carry, LinkConfig(delay_ns=0 if network else delay_ns, loss=loss),
                        f"{seed}/{n}")
            device.transmit = link.send
            self.devices.append(device)
            self._open(name, n, device, link,
                       config_for(delay, f"{seed}/{n}", congestion, path_search=network is not None))
        if network is not None:
            self._connect(network)
        self._clock = WallClock(self.loop)

    def _connect(self, network: Fabric) -> None:
        """Put a fabric between the links."""
        ports = self.switch.ports       # a capture replaces its functions
        self.fabric = FrameFabric(network, list(ports), f"{self.seed}/fabric", list(self.hosts))
        macs = list(ports)
        fabric = LoopFabric(self.loop, self.fabric, lambda host, frame: ports[macs[host]](frame))
        for host, link in enumerate(self.links.values()):
            link.deliver = partial(fabric.send, host)

    def progress(self) -> bool:
        happened = False
        for frame in self._uplink.frames() if self._uplink else ():
            self.switch.deliver(frame)
            happened = True
        for context in self.contexts:
            happened |= self.work(context)
        return self._clock.advance() or happened

    def rest_s(self) -> float:
        due = min((due for due in (self.loop.due_ns, self.driver_due_ns) if due is not None), default=None)
        return REST_S if due is None else min(REST_S, max(0, due - self.loop.now_ns) / 1e9)

    def close(self) -> None:
        super().close()
        if self._uplink:
            self._uplink.close()
