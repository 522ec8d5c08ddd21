"""What the driver itself takes per chunk, and how often it rings per posted list, over functional cards."""

import time

from weft.driver.terms.enums import MTU, SendFlags, WROpcode
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl import abi
from weft.tb.software.operation_pair import OperationPair

CHUNK_BYTES = 64 << 10
CHAIN, CHAINS, WARM = 16, 60, 4
STEP_NS = 20_000     # between two rounds of the drivers


class DriverCost:
    """Lists of writes of a chunk each, A to B, on one QP; what runs between them is not counted.

    Attributes
    ----------
    us_per_chunk : float
        CPU time of both drivers: posting, progress, polling.
    doorbells_per_list : float
        Writes of the doorbell of new work while a list is posted and handed over.
    """

    def __init__(self):
        self._pair = OperationPair(length=CHAIN * CHUNK_BYTES, cap={"max_send_wr": 2 * CHAIN}, path_mtu=MTU.MTU_4096)
        self._ns = self._rung = 0
        device = self._pair.hosts[0].context.device
        write32, doorbell = device.write32, abi.REGISTER["send_prod"].offset

        def counted(offset, value):
            self._rung += offset == doorbell
            write32(offset, value)

        device.write32 = counted
        costs, rung = [], 0
        for _ in range(CHAINS):
            self._ns = self._rung = 0
            self._list()
            costs.append(self._ns / 1_000 / CHAIN)
            rung += self._rung
        self.us_per_chunk = min(costs[WARM:])
        self.doorbells_per_list = rung / CHAINS
        self._pair.close()

    def _timed(self, function, *args):
        start = time.thread_time_ns()
        result = function(*args)
        self._ns += time.thread_time_ns() - start
        return result

    def _list(self):
        a, b = self._pair.hosts
        chain = None
        for n in reversed(range(CHAIN)):
            chain = SendWR(n, WROpcode.RDMA_WRITE, sg=[SGE(a.mr.buf + n * CHUNK_BYTES, CHUNK_BYTES, a.mr.lkey)],
                           send_flags=SendFlags.SIGNALED, next_wr=chain, rkey=b.mr.rkey,
                           remote_addr=b.mr.buf + n * CHUNK_BYTES)
        self._timed(a.qp.post_send, chain)
        left, loop = CHAIN, self._pair.pair.loop
        while left:
            for host in (a, b):
                self._timed(host.context.progress)
            left -= self._timed(a.cq.take, CHAIN)[0]
            loop.run(loop.now_ns + STEP_NS)
