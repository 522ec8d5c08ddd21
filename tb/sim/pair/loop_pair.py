"""Two functional or two timed cards on an event loop, with an open driver on each side."""

from typing import Any

from weft.model.card.host import WatchedMemory
from weft.model.functional.host import FunctionalDevice, connected_pair, run_apps
from weft.model.loop import EventLoop
from weft.tb.sim.link.pcap import Captures
from weft.tb.sim.pair.pair import LINGER_NS, Pair
from weft.tb.sim.pair.settings import SIDES, BySide

LIMIT_NS = 1 << 62


def complete(coroutine):
    """Run a coroutine that calls a :class:`LoopPair`, whose methods never suspend it; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    raise RuntimeError(f"{coroutine} waits for something that is not a LoopPair")


class WatchedDevice(FunctionalDevice):
    """Functional card whose memory writes can be observed: see :class:`~weft.model.card.host.WatchedMemory`."""

    memory_type = WatchedMemory
    memory: WatchedMemory

    def __init__(self, loop: EventLoop, **options: Any) -> None:
        super().__init__(loop, **options)
        self.card.memory = self.memory.dma()


class LoopPair(Pair):
    """:class:`Pair` with cards of :mod:`weft.model`, which are up from the start.

    Parameters
    ----------
    device_type : type
        Type of the hosts with their cards.
    seed : hashable
        Seed of cards, links and drivers; with None the drivers draw their random numbers themselves.
    captures : Path or None
        Folder of the captures.
    watched : bool
        Makes the :class:`Pair` ``guarded`` and ``judged``.
    limit_ns : int
        Limit of the simulated time of :meth:`run`.
    options
        Passed to :func:`~weft.model.functional.host.connected_pair`.

    Attributes
    ----------
    loop : EventLoop
    """

    def __init__(self, device_type, context_config, *, seed=0, captures=None, watched=True, limit_ns=LIMIT_NS,
                 sides=SIDES, **options):
        super().__init__(context_config, seed=seed, guarded=watched, judged=watched, sides=sides)
        self._captures, self.limit_ns = Captures(captures), limit_ns
        devices, links = self._made(device_type, seed, **options)
        self.hosts, self.devices, self.links = BySide(devices), BySide(devices), BySide(links)
        for side in self.sides:
            self._open(side)
        self._watch_links()

    def _made(self, device_type, seed, **options):
        """Return the devices and the links on which they send."""
        self.loop, devices, links = connected_pair(seed=seed, taps=self._captures.taps, device_type=device_type,
                                                   **options)
        return devices, links

    @property
    def frames_in_flight(self):
        """Return the number of frames on the links."""
        return sum(link.in_flight for link in self.links)

    def window_bits(self, side):
        return self.devices[side].card.params.window_bits

    def now_ns(self):
        return self.loop.now_ns

    def advance(self, nanoseconds):
        self.loop.run(self.loop.now_ns + nanoseconds)

    def every(self, nanoseconds, function):
        ended = []

        def call():
            if not ended:
                function()
                self.loop.call_in(nanoseconds, call)

        self.loop.call_in(nanoseconds, call)
        return lambda: ended.append(True)

    def on_interrupt(self, side, function):
        card = self.devices[side].card
        reached = card.interrupt
        card.interrupt = lambda vector: (function(vector), reached(vector))

    def run(self, *functions):
        """Run a function on each side at the same time; return their results."""
        return run_apps(self.loop, list(zip(self.devices, functions, strict=False)), self.limit_ns)

    async def start(self):
        pass      # done by the constructor

    async def call(self, function, *arguments, **options):
        return function(*arguments, **options)

    async def each(self, function):
        for side in self.sides:
            function(side)

    async def gather(self, *functions):
        return self.run(*functions)

    async def _settle(self):
        while self.frames_in_flight:
            self.loop.step()
        self.advance(LINGER_NS)

    def _finish(self):
        self._captures.close()
