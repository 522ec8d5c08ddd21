"""Messages both ways over connections in memory, with random capacities, thresholds and order of delivery."""

import collections
import random

from weft.driver.channel.capacities import Capacities
from weft.driver.channel.channel import Channel, memory_bytes
from weft.tb.test.driver.channel.connection import connected

CAPACITY = 12
MESSAGE_BYTES = 48
RUN = 500     # average number of messages of one connection


def draw_capacities(rng, data, imm):
    """Return the same capacities for both ends, with separate thresholds where they may differ."""

    def thresholds():
        low = data // imm if imm > 1 else 0
        return {"data_threshold": rng.choice([None, rng.randint(low, data - 1)]),
                "imm_threshold": rng.choice([None, rng.randint(min(1, imm - 1), imm - 1)])}
    first = thresholds()
    return [Capacities(data, imm, **drawn) for drawn in (first, thresholds() if imm > 1 else first)]


class ConnectionRun:
    """One connection, from the first message until nothing is in flight.

    Parameters
    ----------
    rng : random.Random
    imm : int
        Credits for acknowledgements.
    messages : int
    slow : bool
        Both programs poll seldom, and capacities are small: receives run out, and CQs fill up.
    """

    def __init__(self, rng, imm, messages, *, slow=False):
        self.rng, self.left = rng, messages
        self.capacities = draw_capacities(rng, rng.randint(1, 2 if slow else CAPACITY), imm)
        self.qps = self.connect(memory_bytes(self.capacities[0], MESSAGE_BYTES))
        yields = rng.choice([(True, False), (False, True)])
        self.channels = [Channel(qp, qp.cq, qp.mr, c, message_bytes=MESSAGE_BYTES, yields=y)
                         for qp, c, y in zip(self.qps, self.capacities, yields, strict=True)]
        self.expected = [collections.deque(), collections.deque()]    # by receiving end
        # Weights of the actions: each end sends, each end polls, the connection moves.
        self.weights = [1, 1, 0.01, 0.01, 4] if slow else [rng.choice([0.02, 0.2, 1]) for _ in range(5)]

    def connect(self, mr_bytes):
        """Return both ends: QPs with ``cq``, ``mr`` and the counters ``posted`` and ``cq.taken``."""
        return connected(self.capacities[0], mr_bytes)

    def run(self):
        """Run the connection to its end, and return the counts of its events as a ``Counter``."""
        actions = [lambda: self.send(0), lambda: self.send(1), lambda: self.look(0), lambda: self.look(1), self.move]
        while self.left:
            self.rng.choices(actions, self.weights)[0]()
            self.check()
        while self.busy:
            self.rng.choice(actions[2:])()
            self.check()
        return self.result()

    def result(self):
        """Return the counts of both ends; assert that nothing waits."""
        total = collections.Counter(connections=1)
        for channel, capacities in zip(self.channels, self.capacities, strict=True):
            assert not channel.waiting, "messages wait for ever"
            assert channel.credits.receives == capacities.max_recv_wr
            total += channel.credits.counts
        assert not any(self.expected), "messages are lost"
        return total + self.extremes()

    def extremes(self):
        """Return the counts of the limits reached."""
        return collections.Counter(last_receives=sum(not qp.fewest for qp in self.qps),
                                   full_cqs=sum(qp.cq.most == qp.cq.cqe for qp in self.qps))

    def send(self, end):
        if not self.left:
            return
        self.left -= 1
        message = self.rng.randbytes(self.rng.randint(0, MESSAGE_BYTES))
        self.expected[1 - end].append(message)
        self.channels[end].send(message)

    def look(self, end):
        """Let the program of an end take what was delivered."""
        self.channels[end].progress()
        while (message := self.channels[end].recv()) is not None:
            assert message == self.expected[end].popleft()

    @property
    def busy(self):
        """Return true while something is in flight or was not taken."""
        return any(qp.moves or len(qp.cq) for qp in self.qps)

    def move(self):
        """Execute one possible step of the connection."""
        if moves := self.qps[0].moves + self.qps[1].moves:
            self.rng.choice(moves)()

    def check(self):
        """Check that every credit is in one place: unused, in flight, owed, or being returned."""
        for mine, peer in ((0, 1), (1, 0)):
            c, credits, others = self.capacities[mine], self.channels[mine].credits, self.channels[peer].credits
            sent, theirs = self.qps[mine].posted, self.qps[peer].posted
            came, ours = self.qps[peer].cq.taken, self.qps[mine].cq.taken
            data = credits.send_data_remote_remain + sent["messages"] - came["messages"] + others.data.owed
            imm = credits.send_imm_remote_remain + sent["acks"] - came["acks"] + others.imm.owed
            assert data + theirs["ack_data"] - ours["ack_data"] == c.max_send_data_wr, "credits for messages"
            assert imm + theirs["ack_imm"] - ours["ack_imm"] == c.max_send_imm_wr, "credits for acknowledgements"
            assert 0 <= credits.send_data_local_remain <= c.max_send_data_wr
            assert 0 <= credits.send_imm_local_remain <= c.max_send_imm_wr


def run(messages, seed, run_type=ConnectionRun):
    """Send ``messages`` messages over as many connections as necessary; return the counts as a ``Counter``.

    Parameters
    ----------
    run_type : callable
        :class:`ConnectionRun`, or a callable that makes one over other connections.
    """
    rng = random.Random(seed)
    total = collections.Counter()
    while messages:
        count = min(messages, rng.randint(1, 2 * RUN))
        imm = (1, 2, 3, rng.randint(4, CAPACITY))[total["connections"] % 4]
        total += run_type(rng, imm, count, slow=total["connections"] % 3 == 0).run()
        messages -= count
    return total
