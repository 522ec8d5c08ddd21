"""Hosts on functional or timed cards; the daemon controls simulated time."""

from collections.abc import Sequence
from typing import Any

from weft.model.card.host import TimedDevice
from weft.model.functional.host import FunctionalDevice
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.app.serve.notices import NoticedBackend, Notices, beginning_after
from weft.tb.sim.pair.loop_pair import WatchedDevice

QUIET_NS = 5_000             # no work is outstanding if the next event is later than this
REST_STEPS_MAX = 10_000      # number of events after which the wait for idle cards ends


class LoopBackend(FunctionalBackend, NoticedBackend):
    """Functional cards whose simulated time the daemon controls."""

    device_type: type[FunctionalDevice] = WatchedDevice

    def __init__(self, hosts: Sequence[str], *, seed: int | str = 1, **options: Any) -> None:
        super().__init__(hosts, seed=seed, **options)
        self.notices = Notices()
        for device, name in zip(self.devices, self.hosts.values(), strict=True):
            self.notices.watch(device.memory, name)

    @property
    def now_ns(self) -> float:
        return self.loop.now_ns

    @property
    def due_ns(self) -> float | None:
        return min((due for due in (self.loop.due_ns, self.driver_due_ns) if due is not None), default=None)

    def rest(self, number: int) -> None:
        for _ in range(REST_STEPS_MAX):
            if (due := self.loop.due_ns) is None or due > self.loop.now_ns + QUIET_NS:
                break
            self.advance(due, frozenset())
        self.loop.run(beginning_after(self.loop.now_ns))
        for name, device in zip(self.hosts, self.devices, strict=True):
            for part, rng in self._random(name, device):
                rng.seed(f"{self.seed}/{number}/{name}/{part}")
        if self.fabric is not None:
            self.fabric.seed(f"{self.seed}/{number}/fabric")

    def _random(self, name: str, device: Any) -> list[tuple[str, Any]]:
        """Return names and random sequences of a host and its link."""
        return [("link", self.links[name].impairments), ("card", device.card.random)]

    def _pass(self, until_ns: float) -> None:
        until_ns = max(until_ns, self.loop.now_ns)
        while not self.notices and (at := self.loop.due_ns) is not None and at <= until_ns:
            self.loop.step()
        if not self.notices and self.due_ns is not None:      # otherwise no work is left that takes time
            self.loop.run(until_ns)


class ModelBackend(LoopBackend):
    """Timed cards whose simulated time the daemon controls."""

    device_type = TimedDevice

    def _random(self, name: str, device: Any) -> list[tuple[str, Any]]:
        return [("link", self.links[name].impairments), ("pcie", device.card.pcie.random)]


class WallClockModelBackend(FunctionalBackend):
    """Timed cards whose simulated time never overtakes wall-clock time."""

    device_type = TimedDevice
