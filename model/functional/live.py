"""Functional card in real time, for programs with threads."""

import threading
import time

from .host import FunctionalDevice

_NAP_S = 1e-5


class LiveDevice(FunctionalDevice):
    """Functional card whose simulated time follows wall-clock time, under one lock for the whole simulation.

    Attributes
    ----------
    start : int
        Monotonic clock at simulated time 0: the same for all devices of a loop.
    """

    guard = threading.RLock()

    def __init__(self, loop, *, start=None, **options):
        super().__init__(loop, **options)
        self.start = time.monotonic_ns() if start is None else start

    def _run(self):
        with self.guard:
            self.loop.run(time.monotonic_ns() - self.start)

    def now_ns(self):
        self._run()
        return self.loop.now_ns

    def wait(self, timeout_ns):
        end = time.monotonic_ns() + timeout_ns
        while not self._latched and time.monotonic_ns() < end:
            self._run()
            time.sleep(_NAP_S)
        latched, self._latched = self._latched, False
        return latched


for _name in ("read32", "read64", "write32", "write64", "alloc", "free"):
    def _guarded(self, *args, _name=_name, **kwargs):
        with LiveDevice.guard:
            return getattr(FunctionalDevice, _name)(self, *args, **kwargs)
    setattr(LiveDevice, _name, _guarded)
