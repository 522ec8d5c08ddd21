"""Hosts with one software endpoint each, connected by links of :mod:`weft.model.link`, in simulated time."""

import random

from weft.driver.soft.ports import MemoryPort, Pump
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop

MACS = (0x02_0000_0000_0A, 0x02_0000_0000_0B)
BAD_LINK = LinkConfig(loss=0.05, reorder=0.05, duplicate=0.02, reorder_distance=4)


class Host:
    """Host whose endpoint runs when a frame arrives or its deadline expires."""

    def __init__(self, loop, endpoint, carry):
        self.loop, self.endpoint = loop, endpoint
        self.port = MemoryPort(carry)
        self._pump = Pump(endpoint, self.port)
        self._wake_at = None

    def arrive(self, frame):
        """Take a frame from the link."""
        self.port.arrive(frame)
        self.run()

    def run(self):
        """Run the endpoint now, and schedule its next run."""
        deadline = self._pump.round(self.loop.now_ns)
        if deadline is not None:
            at = max(deadline, self.loop.now_ns + 1)
            if self._wake_at is None or at < self._wake_at:
                self._wake_at = at
                self.loop.call_at(at, self._wake, at)

    def _wake(self, at):
        if at == self._wake_at:
            self._wake_at = None
            self.run()


class Pair:
    """Two hosts, with a link in each direction.

    ``frames`` holds (number of the sender, frame) for every frame handed to the links.

    Parameters
    ----------
    make : callable(number, random.Random)
        Returns the endpoint of a host.
    seed : hashable
    link : LinkConfig
        Of both directions.
    """

    def __init__(self, make, seed=0, link=None):
        self.loop, self.frames = EventLoop(), []
        self.links = [Link(self.loop, lambda frame, to=1 - i: self.hosts[to].arrive(frame), link, f"{seed}/{i}")
                      for i in range(2)]
        self.hosts = [Host(self.loop, make(i, random.Random(f"host {seed}/{i}")), self._carry(i)) for i in range(2)]
        self.ends = [host.endpoint for host in self.hosts]

    def _carry(self, i):
        def carry(frame):
            self.frames.append((i, frame))
            self.links[i].send(frame)
        return carry

    def run(self, condition=lambda: False, limit_ns=10**9):
        """Let time pass until ``condition()`` holds; return false if nothing more is due within ``limit_ns``."""
        for host in self.hosts:
            host.run()
        return self.loop.run(self.loop.now_ns + limit_ns, condition)

    def soon(self):
        """Let frames in flight arrive, without a time-out."""
        self.run(limit_ns=100_000)
