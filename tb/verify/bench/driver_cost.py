"""What the driver itself takes per chunk, and how often it rings per posted list, over functional cards."""

import itertools
import time

from weft.driver.terms.enums import MTU, SendFlags, WROpcode
from weft.driver.verbs.wr import SendWR
from weft.hdl.contract import abi
from weft.tb.sim.pair.operation_pair import OperationPair

CHUNK_BYTES = 64 << 10
CHAIN, CHAINS, WARM = 16, 60, 4
STEP_NS = 20_000     # between two rounds of the drivers


class DriverCost:
    """Lists of writes of a chunk each, A to B, on one QP.

    Counted is the CPU time of this thread in every call of the two drivers: ``post_send`` of the list, a round of
    progress of each every ``STEP_NS``, whether it has something to do or not, until all completions were taken, and
    the taking. So it is all Python from the work request to its completion on both sides: checks, turns, descriptors,
    doorbells, reports, acknowledgements, timers, completions. Reads and writes of host memory are counted as well.

    Not counted are functional cards and link. They run between the calls; where a call writes a register, the time
    that its card takes is taken off, and so is what it takes to read the clock, a system call. But the cards drive the
    driver's code and data out of the caches of the processor, and it has to fetch them again: :attr:`us_per_chunk` has
    that in it, :attr:`warm_us_per_chunk` has not.

    Attributes
    ----------
    us_per_chunk : float
        CPU time of both drivers, the least of all lists.
    warm_us_per_chunk : float
        The same of drivers each of whose calls comes right behind the same call of two others.
    doorbells_per_list : float
        Writes of the doorbell of new work while a list is posted and handed over.
    """

    def __init__(self):
        (self.us_per_chunk,), alone = _run_lists(1)
        (_, self.warm_us_per_chunk), together = _run_lists(2)
        self.doorbells_per_list = (alone + together) / 3 / CHAINS


def _run_lists(count):
    """The least microseconds per chunk of so many pairs that take turns, and how often their doorbells rang."""
    pairs, costs = [_MeasuredPair() for _ in range(count)], []
    for _ in range(CHAINS):
        _run_list(pairs)
        costs.append([pair.take_us() / CHAIN for pair in pairs])
    for pair in pairs:
        pair.close()
    return [min(of_pair) for of_pair in zip(*costs[WARM:], strict=True)], sum(pair.rung for pair in pairs)


def _reading_ns():
    """What it takes to read the clock."""
    times = [time.thread_time_ns() for _ in range(1000)]
    return min(after - before for before, after in itertools.pairwise(times))


def _run_list(pairs):
    """A list on each of them, call by call in turns."""
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
    """Two hosts whose drivers' calls are timed."""

    def __init__(self):
        super().__init__(length=CHAIN * CHUNK_BYTES, cap={"max_send_wr": 2 * CHAIN}, path_mtu=MTU.MTU_4096)
        self.left = self.rung = self._ns = 0
        self._reading_ns = _reading_ns()
        for device in self.pair.devices:
            device.card.write = self._apart(device.card.write)

    def _apart(self, write):
        """A card's ``write``, whose time does not count."""
        def apart(offset, value):
            start = time.thread_time_ns()
            write(offset, value)
            self._ns -= time.thread_time_ns() - start + self._reading_ns
            self.rung += offset == abi.REGISTER["send_prod"].offset

        return apart

    def _timed(self, function, *args):
        time.thread_time_ns()      # the kernel's part is not the driver's, and as cold as it is
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
        """A round of one driver."""
        self._timed(self.hosts[end].context.progress)

    def poll(self):
        """Take completions."""
        self.left -= self._timed(self.hosts[0].cq.take, CHAIN)[0]

    def let_cards_work(self):
        """Until the next round."""
        self.pair.loop.run(self.pair.loop.now_ns + STEP_NS)

    def take_us(self):
        """Microseconds since the last time."""
        ns, self._ns = self._ns, 0
        return ns / 1_000
