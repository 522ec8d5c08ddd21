"""Cards as PCI devices of virtual machines: a vfio-user socket for each host, and a switch between the cards."""

import resource
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from weft.driver.vfio_user.card_function import CardFunction, Incarnation
from weft.hdl.contract.pci import PciFunction
from weft.model.card.card import TimedCard
from weft.model.fabric.frame.header import is_group
from weft.model.functional.card import FunctionalCard
from weft.model.impairments import Frame
from weft.model.link import Link
from weft.model.loop import EventLoop
from weft.tb.app.machine.endpoints import Endpoints
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.app.serve.functional import REST_S
from weft.tb.app.serve.wall_clock import WallClock

CARDS: dict[str, type[FunctionalCard]] = {"functional": FunctionalCard, "model": TimedCard}
QEMU = ("-object memory-backend-memfd,id=m,size=512M,share=on -m 512 -machine q35,memory-backend=m "
        "-device intel-iommu,caching-mode=on -device "
        """'{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{path}"}},"x-msg-timeout":600000}}'""")


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


class Machine(Endpoints):
    """Functions, endpoints and links of all hosts, with cards in Python.

    The switch learns the address of a host from its frames, and floods frames for unknown addresses.

    Parameters
    ----------
    settings : MachineSettings
    report : callable(sentence)
    """

    functions: Mapping[str, CardFunction]

    def __init__(self, settings: MachineSettings, report: Callable[[str], object]) -> None:
        self.loop, self._settings = EventLoop(), settings
        self._clock, self._macs = WallClock(self.loop), dict[str, bytes]()
        config = settings.config()
        links = {name: Link(self.loop, partial(self._carry, name), config, f"{settings.seed}/{name}")
                 for name in settings.hosts}
        super().__init__(settings, report, links)

    def function(self, name: str, description: PciFunction, report: Callable[[str], object]) -> CardFunction:
        return CardFunction(description, partial(self._make, name), report)

    def _make(self, name: str, incarnation: Incarnation) -> FunctionalCard:
        settings = self._settings
        return CARDS[settings.backend](
            incarnation, CardLoop(self.loop, incarnation.run), self.links[name].send, incarnation.interrupt,
            preset=settings.card, seed=f"{settings.seed}/{name}", checks_driver=False)

    def _carry(self, sender: str, frame: Frame) -> None:
        head = frame[:12] if isinstance(frame, bytes) else bytes(frame)[:12]
        to, self._macs[sender] = head[:6], head[6:]
        known = to in self._macs.values()
        for name, function in self.functions.items():
            if name != sender and (is_group(to) or not known or self._macs.get(name) == to):
                function.receive(frame)

    def turn(self) -> None:
        happened = self._clock.advance()
        happened |= self.serve()
        if not happened:
            due = self.loop.due_ns
            self.wait(REST_S if due is None else min(REST_S, max(0, due - self.loop.now_ns) / 1e9))


def serve(settings: MachineSettings, report: Callable[[str], object], ended: object) -> None:
    """Serve the cards until ``ended`` is true; then report their numbers."""
    serve_machine(Machine(settings, report), settings, report, ended)


def serve_machine(machine: Endpoints, settings: MachineSettings, report: Callable[[str], object],
                  ended: object) -> None:
    """Serve these cards until ``ended`` is true; then report their numbers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))       # a machine can share about 400 descriptors
    report(f"hosts {', '.join(settings.hosts)} wait for virtual machines; QEMU 10.1 or later, for host "
           f"{settings.hosts[0]}: {QEMU.format(path=settings.socket(settings.hosts[0]))}")
    while not ended:
        machine.turn()
    machine.close()
    for sentence in machine.summary():
        report(sentence)
