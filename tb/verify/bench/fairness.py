"""Fairness between QPs of one card: QPs with messages of different sizes, and QPs beside one that loses packets.

All QPs of host A write to host B and always have further messages to send. The share of a QP is the payload of its
frames on the link, retransmissions included, after a start-up time.
"""

import itertools
import random
from collections import Counter

from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.driver.verbs.wr import SendWR
from weft.hdl.contract import wire
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair

QPS = 16
SMALLEST, LARGEST = 512, 1 << 20
BEGIN_NS, MEASURED_NS, STEP_NS = 300_000, 2_000_000, 2_000
LOSS = 0.2
BYTES = 64 << 10
JAIN, JAIN_BESIDE_LOSS = 0.99, 0.95
LOSER_SHARE = 1.05       # of the fair share, for a QP that loses packets


def sizes():
    """Return the message sizes of all QPs, evenly spaced on a logarithmic scale."""
    return [round(SMALLEST * (LARGEST / SMALLEST) ** (n / (QPS - 1))) for n in range(QPS)]


def jain(parts):
    """Return Jain's index: 1 if all parts are equal, 1/n if one QP gets everything."""
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts))


class Contest:
    """QPs that compete for the line: each has a message length in bytes, ``sizes``, and gets ``parts`` payload bytes.

    ``losses`` holds the probability that a data packet is lost, by number of the QP.
    """

    def __init__(self, sizes, losses=None, *, seed=1, measured_ns=MEASURED_NS):
        self._sizes, self._losses, self._rng = sizes, losses or {}, random.Random(f"fairness {seed}")
        self.pair = OperationPair(length=max(sizes), qps=len(sizes), cap={"max_send_wr": 256}, path_mtu=MTU.MTU_4096,
                                  pair=make_pair(seed=seed, preset="basic"))
        a, b = self.pair.hosts
        self._number = {qp.qp_num: n for n, qp in enumerate(b.qps)}
        self._place = {qp.qp_num: n for n, qp in enumerate(a.qps)}
        self._bytes = Counter()
        self.pair.pair.links[0].drop = self._frame
        for qp, size in zip(a.qps, sizes, strict=True):
            for _ in range(max(4, min(256, BYTES // size))):
                self._post(qp, size)
        self._run(BEGIN_NS)
        self._bytes.clear()
        self._run(measured_ns)
        self.parts = [self._bytes[n] for n in range(len(sizes))]

    def close(self):
        """Let all outstanding work complete, and free everything."""
        self.pair.pair.links[0].drop = None
        self.pair.close()

    def _frame(self, frame):
        """Count a frame that A sends; return whether it is lost."""
        if frame[wire.BTH_OFFSET] not in wire.DATA_OPCODES:
            return False
        qp = self._number[int.from_bytes(frame[wire.BTH_OFFSET + 5:wire.BTH_OFFSET + 8], "big")]
        self._bytes[qp] += max(0, len(frame) - wire.DATA_HEADER_BYTES - wire.ICRC_BYTES)
        return self._rng.random() < self._losses.get(qp, 0)

    def _post(self, qp, size):
        a, b = self.pair.hosts
        qp.post_send(SendWR(0, WROpcode.RDMA_WRITE, sg=[a.sge(0, size)], rkey=b.mr.rkey, remote_addr=b.mr.buf))

    def _run(self, ns):
        """Run for ``ns``, and replace each completed message by a new one."""
        a, loop = self.pair.hosts[0], self.pair.pair.loop
        end = loop.now_ns + ns
        for now in itertools.count(loop.now_ns + STEP_NS, STEP_NS):
            for host in self.pair.hosts:
                host.context.progress()
            for wc in a.cq.take(1 << 12)[1]:
                assert wc.status is WCStatus.SUCCESS, wc
                n = self._place[wc.qp_num]
                self._post(a.qps[n], self._sizes[n])
            if now > end:
                return
            loop.run(now)


def rows():
    """Return the rows; each QP posts as many requests as its window allows."""
    apart = Contest(sizes()).parts
    beside = Contest([BYTES] * QPS, {0: LOSS}).parts
    loser, others = beside[0], beside[1:]
    return [
        Row("qp_share_jain", "", jain(apart), at_least=JAIN,
            conditions=f"{QPS} QPs with messages of {SMALLEST} bytes to {LARGEST >> 20} MiB, two functional cards, "
                       f"PMTU 4096, payload on the line in {MEASURED_NS // 1_000_000} ms"),
        Row("qp_share_jain_beside_loss", "", jain(others), at_least=JAIN_BESIDE_LOSS,
            conditions=f"the others of {QPS} QPs with messages of {BYTES >> 10} KiB on two functional cards, when one "
                       f"loses {LOSS:.0%} of its packets"),
        Row("lossy_qp_share", "", loser * QPS / sum(beside), at_most=LOSER_SHARE,
            conditions="the same: payload on the line of the one that loses packets, retransmissions included, of a "
                       "fair share"),
    ]
