"""Agents of several hosts, without cards, on a network that loses, repeats and delays datagrams."""

import heapq
import itertools
import random
from collections import Counter
from dataclasses import dataclass

from weft.driver.connection.agent import Agent
from weft.driver.connection.connection import Offer, ResponseTimeout, State

DELAY_NS = 5_000
TIMEOUT = ResponseTimeout(response_timeout=5, retries=15)     # 131 µs, more than twelve delays
OFFER = Offer(qpn=0x1234, psn=0x56789A, mtu=5, responder_resources=4, initiator_depth=2)


@dataclass(frozen=True)
class Faults:
    """Probabilities of the faults of a datagram."""

    loss: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    late_ns: int = 20 * DELAY_NS


class Network:
    """Hosts 1 to ``hosts``, each with an :class:`Agent`; the number of a host is its IP address and its MAC address.

    Attributes
    ----------
    agents : dict of Agent
    sent : list of (int, int, bytes)
        Source, destination and datagram, in order.
    outcomes : Counter
    """

    def __init__(self, seed, faults=None, *, hosts=2, timeout=TIMEOUT):
        self.faults, self._random = faults or Faults(), random.Random(f"network {seed}")
        self.now, self._queue, self._number = 0, [], itertools.count()
        self.sent, self.outcomes = [], Counter()
        self.agents = {
            ip: Agent(ip=ip, guid=ip, random=random.Random(f"agent {ip} {seed}"), timeout=timeout,
                      send=lambda to, mac, data, ip=ip: self.send(ip, to, data))
            for ip in range(1, hosts + 1)}

    def send(self, source, target, data):
        """Send a datagram with ``source`` as its source."""
        self.sent.append((source, target, data))
        chance = self._random.random
        if chance() < self.faults.loss:
            self.outcomes["lost"] += 1
            return
        for _ in range(1 + (chance() < self.faults.repeat)):
            late = chance() < self.faults.late
            self.outcomes["late" if late else "in time"] += 1
            delay = DELAY_NS + (self._random.randrange(self.faults.late_ns) if late else 0)
            heapq.heappush(self._queue, (self.now + delay, next(self._number), source, target, data))

    def run(self, condition=lambda: False, limit_ns=10**12):
        """Run until ``condition()`` holds and return true, or until nothing is due by ``limit_ns`` and return false."""
        while not condition():
            deadlines = [agent.deadline for agent in self.agents.values() if agent.deadline is not None]
            due = min(deadlines + [entry[0] for entry in self._queue[:1]], default=None)
            if due is None or due > limit_ns:
                return False
            self.now = max(self.now, due)
            while self._queue and self._queue[0][0] <= self.now:
                _, _, source, target, data = heapq.heappop(self._queue)
                if target in self.agents:
                    self.agents[target].on_datagram(data, source, source, self.now)
            for agent in self.agents.values():
                agent.progress(self.now)
        return True


class Program:
    """Program of one end, which records the notices of its connection.

    Attributes
    ----------
    notice : list of CmNotice
    """

    def __init__(self, network, ip):
        self.network, self.agent, self.notice = network, network.agents[ip], []
        self.connection = None

    def receive(self, connection, notice):
        assert connection is self.connection
        self.notice.append(notice)
        if connection.state is State.REP_RCVD:
            connection.establish(self.network.now)

    def connect(self, ip, port=7471, offer=OFFER, private_data=b"please"):
        self.connection = self.agent.connect(ip, port, offer, private_data, self.network.now, self.receive)
        return self

    def listen(self, port=7471, backlog=0, on_request=None):
        """Listen, and accept every request unless ``on_request`` is given."""
        return self.agent.listen(port, backlog, on_request or self.accept)

    def accept(self, connection):
        self.connection = connection
        connection.accept(OFFER.within(connection.peers), b"welcome", self.network.now)
        return self.receive

    @property
    def state(self):
        return self.connection.state if self.connection is not None else None
