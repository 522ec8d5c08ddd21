"""Hosts with a software endpoint each, joined by the links of :mod:`weft.model.link`, in simulated time."""

import random

from weft.driver.soft.ports.memory import MemoryPort
from weft.driver.soft.ports.pump import Pump
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop

MACS = (0x02_0000_0000_0A, 0x02_0000_0000_0B)
BAD_LINK = LinkConfig(loss=0.05, reorder=0.05, duplicate=0.02, reorder_distance=4)


class Host:
    """An endpoint that runs whenever a frame or its deadline comes."""

    def __init__(self, loop, endpoint, carry):
        self.loop, self.endpoint = loop, endpoint
        self.port = MemoryPort(carry)
        self._pump = Pump(endpoint, self.port)
        self._wake_at = None

    def arrive(self, frame):
        """A frame came from the link."""
        self.port.arrive(frame)
        self.run()

    def run(self):
        """Do all there is to do now."""
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
    """Two hosts, and a link each way; ``frames`` are those that the links took, with the number of the sender.

    Parameters
    ----------
    make : callable(number, random.Random)
        The endpoint of a host.
    seed : hashable
    link : LinkConfig
        Both ways.
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
        """Let time go on until a condition holds; whether it does, or nothing happens any more, or it is late."""
        for host in self.hosts:
            host.run()
        return self.loop.run(self.loop.now_ns + limit_ns, condition)

    def soon(self):
        """Let go on what is under way, but no time-out."""
        self.run(limit_ns=100_000)
