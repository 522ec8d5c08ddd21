"""CPU time of the driver per chunk, and doorbells per posted list, on functional cards."""

import itertools
import time

from weft.driver.terms.enums import MTU, SendFlags, WROpcode
from weft.driver.verbs.wr import SendWR
from weft.hdl.contract import abi
from weft.tb.sim.pair.operation_pair import OperationPair

CHUNK_BYTES = 64 << 10
CHAIN, CHAINS, WARM = 16, 60, 4
STEP_NS = 20_000     # time between two rounds of the drivers


class DriverCost:
    """Cost of lists of writes of one chunk each, from A to B, on one QP.

    The cost is the CPU time of this thread in all calls of the two drivers: ``post_send`` of the list; a round of
    progress of each driver every ``STEP_NS``, busy or not, until all completions have been polled; and the polling.
    It therefore covers all Python code from the work request to its completion on both sides: checks, turns,
    descriptors, doorbells, reports, acknowledgements, timers, completions, and accesses to host memory.

    The cost excludes the functional cards and the link, which run between the calls. Where a call writes a register,
    the time of the card's model is subtracted, and so is the time to read the clock, a system call. However, the cards
    evict the driver's code and data from the processor's caches, and the driver has to fetch them again:
    ``us_per_chunk``, the minimum over all lists, includes this effect; ``warm_us_per_chunk``, for which each call
    directly follows the same call of two other drivers, does not. ``doorbells_per_list`` counts writes of the send
    doorbell while a list is posted and handed over.
    """

    def __init__(self):
        (self.us_per_chunk,), alone = _run_lists(1)
        (_, self.warm_us_per_chunk), together = _run_lists(2)
        self.doorbells_per_list = (alone + together) / 3 / CHAINS


def _run_lists(count):
    """Run lists on ``count`` pairs in turns; return the minimum microseconds per chunk of each, and all doorbells."""
    pairs, costs = [_MeasuredPair() for _ in range(count)], []
    for _ in range(CHAINS):
        _run_list(pairs)
        costs.append([pair.take_us() / CHAIN for pair in pairs])
    for pair in pairs:
        pair.close()
    return [min(of_pair) for of_pair in zip(*costs[WARM:], strict=True)], sum(pair.rung for pair in pairs)


def _reading_ns():
    """Return the time that a reading of the clock takes."""
    times = [time.thread_time_ns() for _ in range(1000)]
    return min(after - before for before, after in itertools.pairwise(times))


def _run_list(pairs):
    """Run a list on each pair, call by call in turns."""
    for pair in pairs:
        pair.post()
    while any(pair.left for pair in pairs):
        for end in range(2):
            for pair in pairs:
                pair.progress(end)
        for pair in pairs:
            pair.poll()
        for pair in pairs:
            pair.let_cards_work()


class _MeasuredPair(OperationPair):
    """Two hosts with timed calls of the drivers."""

    def __init__(self):
        super().__init__(length=CHAIN * CHUNK_BYTES, cap={"max_send_wr": 2 * CHAIN}, path_mtu=MTU.MTU_4096)
        self.left = self.rung = self._ns = 0
        self._reading_ns = _reading_ns()
        for device in self.pair.devices:
            device.card.write = self._apart(device.card.write)

    def _apart(self, write):
        """Wrap a card's ``write`` to exclude its time."""
        def apart(offset, value):
            start = time.thread_time_ns()
            write(offset, value)
            self._ns -= time.thread_time_ns() - start + self._reading_ns
            self.rung += offset == abi.REGISTER["send_prod"].offset

        return apart

    def _timed(self, function, *args):
        time.thread_time_ns()      # warms the kernel's clock path, which is not part of the driver
        start = time.thread_time_ns()
        result = function(*args)
        self._ns += time.thread_time_ns() - start - self._reading_ns
        return result

    def post(self):
        """Post a list."""
        a, b = self.hosts
        chain = None
        for n in reversed(range(CHAIN)):
            chain = SendWR(n, WROpcode.RDMA_WRITE, sg=[a.sge(n * CHUNK_BYTES, CHUNK_BYTES)],
                           send_flags=SendFlags.SIGNALED, next_wr=chain, rkey=b.mr.rkey,
                           remote_addr=b.mr.buf + n * CHUNK_BYTES)
        self._timed(a.qp.post_send, chain)
        self.left = CHAIN

    def progress(self, end):
        """Run a round of progress of one driver."""
        self._timed(self.hosts[end].context.progress)

    def poll(self):
        """Poll completions."""
        self.left -= self._timed(self.hosts[0].cq.take, CHAIN)[0]

    def let_cards_work(self):
        """Run cards and link until the next round."""
        self.pair.loop.run(self.pair.loop.now_ns + STEP_NS)

    def take_us(self):
        """Return the microseconds since the last call."""
        ns, self._ns = self._ns, 0
        return ns / 1_000
