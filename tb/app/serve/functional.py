"""Hosts on functional cards whose simulated time never overtakes wall-clock time."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from weft.driver.engine.card_engine import CardEngine
from weft.driver.serve.daemon import ServeBackend
from weft.driver.verbs.context import Context, ContextConfig
from weft.driver.verbs.device_list import add_device, remove_device
from weft.model.functional.host import FunctionalDevice
from weft.model.impairments import FrameKind, LinkCounters
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop
from weft.tb.app.serve.switch import Switch
from weft.tb.app.serve.udp_link import AWAY_NS, UdpLink

MAC, IP = 0x02_0000_0000_01, 0x0A00_0001      # of the first host; those of the others follow
STEP_NS = 20_000                              # longest simulated time between two checks of the programs
REST_S = 1.0
SLOT_LOG2 = 13      # slots for datagrams of 4096 bytes


def dues_of(engine: CardEngine) -> tuple[float | None, ...]:
    """Return the deadlines of an engine; None for parts that wait for no time."""
    return engine.qps.deadline, engine.neighbours.deadline, *(service.deadline for service in engine.services)


def config_for(delay_ns: int) -> ContextConfig:
    """Return the driver configuration for cards with this delay between them."""
    return ContextConfig(keep_qp_num=True, ring_log2=8, nic_slot_log2=SLOT_LOG2, time_wait_qps=64,
                         probe_timeout_ns=2 * delay_ns + 50_000)


def sentence_of(host: str, counters: LinkCounters) -> str:
    """Return a sentence about the frames of a host, from the counters of its link."""
    return (f"host {host}: {counters.sent.total()} frames sent, {counters.lost.total()} lost; "
            f"{counters.destroyed_data} packets lost, {counters.sent[FrameKind.RETX]} sent again")


class FunctionalBackend(ServeBackend):
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
    """

    device_type: type[FunctionalDevice] = FunctionalDevice

    def __init__(self, hosts: Sequence[str], *, loss: float = 0.0, delay_ns: int = 1_000, seed: int | str = 1,
                 preset: str = "full", first: int = 1, uplink: UdpLink | None = None) -> None:
        self.loop, self.switch, self._uplink = EventLoop(), Switch(), uplink
        self.hosts: dict[str, str] = {}
        self.links: dict[str, Link] = {}
        self.devices: list[Any] = []            # of `device_type`
        self.contexts: list[Context] = []       # one per host, which keeps its card enabled without programs
        config = config_for(delay_ns if uplink is None else delay_ns + AWAY_NS)
        if uplink is not None:
            self.switch.uplink, self.files = uplink.send, [uplink.fileno()]
        for n, name in enumerate(hosts, first - 1):
            device = self.device_type(self.loop, seed=f"{seed}/{n}", preset=preset)
            self.switch.ports[(MAC + n).to_bytes(6, "big")] = device.card.receive
            link = Link(self.loop, self.switch.carry, LinkConfig(delay_ns=delay_ns, loss=loss), f"{seed}/{n}")
            device.transmit, self.links[name] = link.send, link
            self.devices.append(device)
            mine = replace(config, random=random.Random(f"{seed}/{n}/driver"))
            self.hosts[name] = add_device(device, mac=MAC + n, ip=IP + n, config=mine)
            self.contexts.append(Context(name=self.hosts[name]))
        self._seen_ns = time.monotonic_ns()

    def progress(self) -> bool:
        happened = False
        for frame in self._uplink.frames() if self._uplink else ():
            self.switch.deliver(frame)
            happened = True
        for context in self.contexts:
            happened |= context.progress()
        return self._let_time_go() or happened

    def _let_time_go(self) -> bool:
        """Advance simulated time by the elapsed wall-clock time, at most to :data:`STEP_NS` after the next event.

        After an event the programs are checked first, and the rest of the elapsed time is dropped. Return true if an
        event occurred.
        """
        wall, before = time.monotonic_ns(), self.loop.now_ns
        target, self._seen_ns = before + wall - self._seen_ns, wall
        due = self.loop.due_ns
        if due is None or due > target:
            self.loop.run(target)
            return False
        self.loop.run(min(target, max(due, before) + STEP_NS))
        return True

    def rest_s(self) -> float:
        dues = [self.loop.due_ns, *(due for context in self.contexts for due in dues_of(context.engine))]
        due = min((due for due in dues if due is not None), default=None)
        return REST_S if due is None else min(REST_S, max(0, due - self.loop.now_ns) / 1e9)

    def summary(self) -> Iterator[str]:
        """Yield a sentence about the frames of each host."""
        for name, link in self.links.items():
            yield sentence_of(name, link.counters)

    def close(self) -> None:
        """Stop the cards."""
        for context, name in zip(self.contexts, self.hosts.values(), strict=True):
            context.close()
            remove_device(name)
        if self._uplink:
            self._uplink.close()
