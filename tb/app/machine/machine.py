"""Cards as PCI devices of virtual machines: a vfio-user socket for each host, and a switch between the cards."""

import resource
import select
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from weft.driver.vfio_user.card_function import CardFunction, Incarnation
from weft.driver.vfio_user.endpoint import Endpoint
from weft.hdl.contract import params
from weft.hdl.contract.pci import card_function
from weft.model.card.card import TimedCard
from weft.model.fabric.frame.header import is_group
from weft.model.functional.card import FunctionalCard
from weft.model.impairments import Frame
from weft.model.link import Link
from weft.model.loop import EventLoop
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.app.serve.functional import REST_S, sentence_of
from weft.tb.app.serve.wall_clock import WallClock

CARDS: dict[str, type[FunctionalCard]] = {"functional": FunctionalCard, "model": TimedCard}
QEMU = ("-object memory-backend-memfd,id=m,size=512M,share=on -m 512 -machine q35,memory-backend=m "
        "-device intel-iommu,caching-mode=on -device "
        """'{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{path}"}},"x-msg-timeout":60000}}'""")


class CardLoop:
    """Event loop of a card: it makes the calls of the card by ``run``."""

    def __init__(self, loop: EventLoop, run: Callable[..., None]) -> None:
        self._loop, self._run = loop, run

    @property
    def now_ns(self) -> float:
        return self._loop.now_ns

    def call_at(self, time_ns: float, function: Callable[..., object], *args: Any) -> None:
        self._loop.call_at(time_ns, self._run, function, *args)

    def call_in(self, delay_ns: float, function: Callable[..., object], *args: Any) -> None:
        self._loop.call_in(delay_ns, self._run, function, *args)


class Machine:
    """Functions, endpoints and links of all hosts.

    The switch learns the address of a host from its frames, and floods frames for unknown addresses.

    Parameters
    ----------
    settings : MachineSettings
    report : callable(sentence)
    """

    def __init__(self, settings: MachineSettings, report: Callable[[str], object]) -> None:
        self.loop, self._settings = EventLoop(), settings
        self._clock, self._macs = WallClock(self.loop), dict[str, bytes]()
        config = settings.config()
        self.links = {name: Link(self.loop, partial(self._carry, name), config, f"{settings.seed}/{name}")
                      for name in settings.hosts}
        description = card_function(params.preset(settings.preset))
        self.functions = {name: CardFunction(description, partial(self._make, name), partial(_named, report, name))
                          for name in settings.hosts}
        Path(settings.folder).mkdir(parents=True, exist_ok=True)
        self.endpoints = [Endpoint(settings.socket(name), function, report)
                          for name, function in self.functions.items()]

    def _make(self, name: str, incarnation: Incarnation) -> FunctionalCard:
        settings = self._settings
        return CARDS[settings.backend](
            incarnation, CardLoop(self.loop, incarnation.run), self.links[name].send, incarnation.interrupt,
            preset=settings.preset, seed=f"{settings.seed}/{name}", checks_driver=False)

    def _carry(self, sender: str, frame: Frame) -> None:
        head = frame[:12] if isinstance(frame, bytes) else bytes(frame)[:12]
        to, self._macs[sender] = head[:6], head[6:]
        known = to in self._macs.values()
        for name, function in self.functions.items():
            if name != sender and (is_group(to) or not known or self._macs.get(name) == to):
                function.receive(frame)

    def turn(self) -> None:
        """Serve the machines and advance time, or wait until there is something to do."""
        happened = self._clock.advance()
        for endpoint in self.endpoints:
            happened |= endpoint.turn()
        if not happened:
            due = self.loop.due_ns
            rest_s = REST_S if due is None else min(REST_S, max(0, due - self.loop.now_ns) / 1e9)
            poll = select.poll()
            for endpoint in self.endpoints:
                for event, files in ((select.POLLIN, endpoint.reads), (select.POLLOUT, endpoint.writes)):
                    for file in files:
                        poll.register(file, event)
            poll.poll(int(rest_s * 1000))       # a wait of less than a millisecond is none

    def summary(self) -> Iterator[str]:
        """Yield a sentence about the frames and requests of each host."""
        for name, function in self.functions.items():
            counts = function.counters
            yield (f"{sentence_of(name, self.links[name].counters)}; "
                   f"{counts['unsupported_requests']} unsupported requests, {counts['resets']} resets")

    def close(self) -> None:
        """End all connections."""
        for endpoint in self.endpoints:
            endpoint.close()


def _named(report: Callable[[str], object], name: str, sentence: str) -> None:
    report(f"host {name}: {sentence}")


def serve(settings: MachineSettings, report: Callable[[str], object], ended: object) -> None:
    """Serve the cards until ``ended`` is true; then report their numbers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))       # a machine can share about 400 descriptors
    machine = Machine(settings, report)
    report(f"hosts {', '.join(settings.hosts)} wait for virtual machines; QEMU 10.1 or later, for host "
           f"{settings.hosts[0]}: {QEMU.format(path=settings.socket(settings.hosts[0]))}")
    while not ended:
        machine.turn()
    machine.close()
    for sentence in machine.summary():
        report(sentence)
