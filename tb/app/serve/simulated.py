"""Hosts on functional or timed cards; the daemon controls simulated time."""

from collections.abc import Collection, Sequence
from typing import Any

from weft.driver.serve.simulated_backend import SimulatedBackend
from weft.model.card.host import TimedDevice, WatchedMemory
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.app.serve.notices import Notices, beginning_after, driver_due_ns, settle

QUIET_NS = 5_000             # no work is outstanding if the next event is later than this
REST_STEPS_MAX = 10_000      # number of events after which the wait for idle cards ends


class ServedDevice(FunctionalDevice):
    """Functional card with observable memory writes."""

    memory_type = WatchedMemory
    memory: WatchedMemory

    def __init__(self, loop: EventLoop, **options: Any) -> None:
        super().__init__(loop, **options)
        self.card.memory = self.memory.dma()


class LoopBackend(FunctionalBackend, SimulatedBackend):
    """Functional cards whose simulated time the daemon controls."""

    device_type: type[FunctionalDevice] = ServedDevice
    notices: Notices

    def __init__(self, hosts: Sequence[str], *, seed: int | str = 1, **options: Any) -> None:
        super().__init__(hosts, seed=seed, **options)
        self._seed, self.notices = seed, Notices()
        for device, name in zip(self.devices, self.hosts.values(), strict=True):
            self.notices.watch(device.memory, name)

    @property
    def now_ns(self) -> float:
        return self.loop.now_ns

    @property
    def due_ns(self) -> float | None:
        dues = self.loop.due_ns, driver_due_ns(self.contexts)
        return min((due for due in dues if due is not None), default=None)

    def settle(self) -> None:
        settle(self)

    def rest(self, number: int) -> None:
        for _ in range(REST_STEPS_MAX):
            if (due := self.loop.due_ns) is None or due > self.loop.now_ns + QUIET_NS:
                break
            self.advance(due, frozenset())
        self.loop.run(beginning_after(self.loop.now_ns))
        for name, device in zip(self.hosts, self.devices, strict=True):
            for part, rng in self._random(name, device):
                rng.seed(f"{self._seed}/{number}/{name}/{part}")

    def _random(self, name: str, device: Any) -> list[tuple[str, Any]]:
        """Return names and random sequences of a host and its link."""
        return [("link", self.links[name].impairments), ("card", device.card.random)]

    def advance(self, until_ns: float, watched: Collection[str]) -> bool:
        notices, due = self.notices, driver_due_ns(self.contexts)
        notices.clear(watched)
        until = max(until_ns if due is None else min(until_ns, due), self.loop.now_ns)
        while not notices and (at := self.loop.due_ns) is not None and at <= until:
            self.loop.step()
        if not notices and self.due_ns is not None:      # otherwise no work is left that takes time
            self.loop.run(until)
        if notices.driver or due is not None and self.loop.now_ns >= due:
            self.settle()
        return notices.program


class ModelBackend(LoopBackend):
    """Timed cards whose simulated time the daemon controls."""

    device_type = TimedDevice

    def _random(self, name: str, device: Any) -> list[tuple[str, Any]]:
        return [("link", self.links[name].impairments), ("pcie", device.card.pcie.random)]


class WallClockModelBackend(FunctionalBackend):
    """Timed cards whose simulated time never overtakes wall-clock time."""

    device_type = TimedDevice
