"""Hosts on functional or timed cards; the daemon controls simulated time."""

from weft.driver.serve.simulated_world import SimulatedWorld
from weft.model.card.host import TimedDevice, WatchedMemory
from weft.model.functional.host import FunctionalDevice
from weft.tb.app.serve.functional import FunctionalWorld
from weft.tb.app.serve.notices import Mapping, Notices, beginning_after, driver_due_ns, settle

QUIET_NS = 5_000             # no work is outstanding if the next event is later than this
REST_STEPS_MAX = 10_000      # number of events after which the wait for idle cards ends


class ServedDevice(Mapping, FunctionalDevice):
    """Functional card with observable memory writes."""

    memory_type = WatchedMemory

    def __init__(self, loop, **options):
        self.program_pages = set()
        super().__init__(loop, **options)
        self.card.memory = self.memory.dma()


class ServedTimedDevice(Mapping, TimedDevice):
    """Timed card."""

    def __init__(self, loop, **options):
        self.program_pages = set()
        super().__init__(loop, **options)


class LoopWorld(FunctionalWorld, SimulatedWorld):
    """Functional cards whose simulated time the daemon controls."""

    device_type = ServedDevice

    def __init__(self, hosts, *, seed=1, **options):
        super().__init__(hosts, seed=seed, **options)
        self._seed, self.notices = seed, Notices()
        for context, name in zip(self.contexts, self.hosts.values(), strict=True):
            self.notices.watch(context.device.memory, name, context.device.program_pages)

    @property
    def now_ns(self):
        return self.loop.now_ns

    @property
    def due_ns(self):
        dues = self.loop.due_ns, self._driver_due_ns
        return min((due for due in dues if due is not None), default=None)

    @property
    def _driver_due_ns(self):
        return driver_due_ns(self.contexts)

    def settle(self):
        settle(self.contexts)

    def rest(self, number):
        for _ in range(REST_STEPS_MAX):
            if (due := self.loop.due_ns) is None or due > self.loop.now_ns + QUIET_NS:
                break
            self.advance(due, frozenset())
        self.loop.run(beginning_after(self.loop.now_ns))
        for name, context in zip(self.hosts, self.contexts, strict=True):
            for part, rng in self._random(name, context.device):
                rng.seed(f"{self._seed}/{number}/{name}/{part}")

    def _random(self, name, device):
        """Return names and random sequences of a host and its link."""
        return [("link", self.links[name].impairments), ("card", device.card.random)]

    def advance(self, until_ns, watched):
        notices, due = self.notices, self._driver_due_ns
        notices.clear(watched)
        until = max(until_ns if due is None else min(until_ns, due), self.loop.now_ns)
        while not notices and (at := self.loop.due_ns) is not None and at <= until:
            self.loop.step()
        if not notices and self.due_ns is not None:      # otherwise no work is left that takes time
            self.loop.run(until)
        if notices.driver or due is not None and self.loop.now_ns >= due:
            self.settle()
        return notices.program


class ModelWorld(LoopWorld):
    """Timed cards whose simulated time the daemon controls."""

    device_type = ServedTimedDevice

    def _random(self, name, device):
        return [("link", self.links[name].impairments), ("pcie", device.card.pcie.random)]


class WallModelWorld(FunctionalWorld):
    """Timed cards whose simulated time never overtakes wall-clock time."""

    device_type = TimedDevice
