"""Comparison of RDMA in software with the card's WRITE: same cards, same link, same run.

Two functional cards are connected with 100 Gb/s and 1 µs. Time is simulated; the work of a host (posting, progress,
protocol, polling) takes as much simulated time as it takes processor time on this machine. Each host has one processor.
All three variants use frames of 4096 bytes. Ratios are for messages of 1 MiB.
"""

import os
import time
from statistics import median

from weft.driver.soft.ports import Pump, SimpleNicPort, for_host_qpns
from weft.driver.soft.raw.endpoint import Endpoint
from weft.driver.soft.raw.packet import ETHTYPE_RDMA, Opcode
from weft.driver.soft.raw.qp import WorkRequest
from weft.driver.soft.rc.context import SoftContext
from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.qp import RcAttr, SoftQP
from weft.driver.terms.enums import MTU, AccessFlag, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi
from weft.model.link import LinkConfig
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.settings import IP, MAC, SIDES

ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE
MACS, IPS = (tuple(table[side] for side in SIDES) for table in (MAC, IP))
RINGS = {abi.Ring.NIC_RX: 11, abi.Ring.NIC_TX: 9, abi.Ring.SEND: 9, abi.Ring.META_REPORT: 9}
FIRST_QPN, QPNS = 0x40_0000, 256
LINK_NS, SLEEP_NS = 1_000, 100_000
SIZES, LATENCIES = (64, 4096, 65_536), 5
THROUGHPUT = ((4096, 64), (65_536, 16), (1 << 20, 2))     # (bytes of a message, number of messages)
QPS, QP_BYTES = (1, 4, 16, 64), 65_536
MEMORY = 64 * QP_BYTES
RATIO_BYTES = 1 << 20
RAW_TIMEOUT_NS = 50_000_000
DATA = os.urandom(RATIO_BYTES)


class Host:
    """Card, and the objects of a program on it."""

    def __init__(self, context):
        self.context, self.device, self.pump = context, context.device, None
        context.host_qpns.claim(FIRST_QPN, QPNS)

    def work(self, then):
        """Do all pending work, then ``then()``; advance time by its processor time, and sleep until there is more work.

        Returns (result of ``then``, processor ns).
        """
        start, deadline = time.thread_time_ns(), None
        busy, now = self.context.progress(), self.device.now_ns()
        if self.pump is not None:
            deadline = self.pump.round(now)
        result = then()
        taken = time.thread_time_ns() - start
        self.pass_time(taken)
        if not busy:
            rest = SLEEP_NS if deadline is None else deadline - self.device.now_ns()
            self.context.wait(max(1, min(SLEEP_NS, rest)))
        return result, taken

    def pass_time(self, nanoseconds):
        """Advance time; interrupts do not shorten it."""
        until = self.device.now_ns() + nanoseconds
        while (left := until - self.device.now_ns()) > 0:
            self.device.wait(left)


class Rival:
    """Variant under test: ``qps`` connections between two hosts; host 0 writes to the memory of host 1."""

    def __init__(self, qps):
        self.pair = make_pair(ContextConfig(ring_log2=RINGS, nic_slot_log2=13), forward=LinkConfig(delay_ns=LINK_NS),
                              preset="basic")
        self.hosts = [Host(context) for context in self.pair.contexts]
        self.qps = range(qps)
        self.start()

    def measure(self, size, count):
        """Transfer ``count`` messages on each QP; return (ns, processor ns of both hosts)."""
        left, begin, end = count * len(self.qps), self.pair.loop.now_ns, 0

        def asks():
            nonlocal left, end
            start = time.thread_time_ns()
            for number in range(count):
                for qp in self.qps:
                    self.post(qp, number * size % (MEMORY - size + 1), size)
            used = time.thread_time_ns() - start
            self.hosts[0].pass_time(used)
            while left:
                done, taken = self.hosts[0].work(self.done)
                left, used, end = left - done, used + taken, self.pair.loop.now_ns
            return used

        def answers():
            used = 0
            while left:
                used += self.hosts[1].work(self.tidy)[1]
            return used

        used = self.pair.run(asks, answers)
        return end - begin, sum(used)

    def check(self, length):
        """Assert that the first bytes of both hosts' memories are equal."""
        mine, theirs = (mr.read(length, 0) for mr in self.mrs)
        assert mine == theirs, "other bytes came"

    def tidy(self):
        """Perform additional work of host 1."""

    def close(self):
        for host in self.hosts:
            host.context.close()


def count_good(completions):
    """Assert that all completions were successful; return their number."""
    assert all(wc.status is WCStatus.SUCCESS for wc in completions), completions
    return len(completions)


class Offload(Rival):
    """WRITEs of the card."""

    def start(self):
        self.cqs = [CQ(host.context, 1024) for host in self.hosts]
        self.mrs = [MR(PD(host.context), MEMORY, ACCESS) for host in self.hosts]
        pairs = [[QP(mr.pd, rc_init_attr(cq)) for mr, cq in zip(self.mrs, self.cqs, strict=True)] for _ in self.qps]
        for mine, theirs in pairs:
            mine.connect(theirs.connection, path_mtu=MTU.MTU_4096)
            theirs.connect(mine.connection, path_mtu=MTU.MTU_4096)
        self.own = [mine for mine, _ in pairs]
        self.mrs[0].write(DATA)

    def post(self, qp, at, size):
        mine, theirs = self.mrs
        self.own[qp].post_send(SendWR(0, WROpcode.RDMA_WRITE, sg=[SGE(mine.buf + at, size, mine.lkey)],
                                      rkey=theirs.rkey, remote_addr=theirs.buf + at))

    def done(self):
        return count_good(self.cqs[0].poll(1024)[1])


class Rc(Offload):
    """RoCEv2 in software on the Simple NIC."""

    def start(self):
        self.cqs, self.mrs, ends = [], [], []
        for i, host in enumerate(self.hosts):
            soft = SoftContext(mac=MACS[i], ip=IPS[i], first_qpn=FIRST_QPN, max_qp=QPNS)
            host.pump = Pump(soft, SimpleNicPort(host.context, for_host_qpns, depth=1 << 14))
            self.cqs.append(CQ(soft, 1024))
            self.mrs.append(SoftMR(PD(soft), MEMORY, ACCESS))
            ends.append([SoftQP(self.mrs[i].pd, rc_init_attr(self.cqs[i])) for _ in self.qps])
        for mine, theirs in zip(*ends, strict=True):
            for one, other in ((mine, theirs), (theirs, mine)):
                one.connect(other.connection, RcAttr(path_mtu=MTU.MTU_4096, timeout=14))
        self.own = ends[0]
        self.mrs[0].write(DATA)


class Raw(Rival):
    """Protocol of [C] on the Simple NIC."""

    def start(self):
        self.ends = [Endpoint(mac, mtu=4096, timeout_ns=RAW_TIMEOUT_NS) for mac in MACS]
        self.regions = [end.regions.get(end.rdma_reg_mr(MEMORY, ACCESS)) for end in self.ends]
        numbers = [[end.rdma_qp_create() for _ in self.qps] for end in self.ends]
        for i, host in enumerate(self.hosts):
            for mine, theirs in zip(numbers[i], numbers[1 - i], strict=True):
                assert self.ends[i].rdma_qp_connect(mine, MACS[1 - i], theirs) == 0
            host.pump = Pump(self.ends[i], SimpleNicPort(
                host.context, lambda frame, _: frame[12:14] == ETHTYPE_RDMA.to_bytes(2, "big"), depth=1 << 14))
        self.own, self.theirs = numbers
        self.regions[0].data[:len(DATA)] = DATA

    def post(self, qp, at, size):
        mine, there = self.regions
        wanted = WorkRequest(1, Opcode.WRITE, mine.id, at, there.id, there.vaddr + at, there.key, size)
        assert self.ends[0].rdma_post_send(self.own[qp], wanted) == 0

    def check(self, length):
        assert self.regions[1].data[:length] == DATA[:length], "other bytes came"

    def tidy(self):
        for number in self.theirs:
            self.ends[1].rdma_poll_cq(number, 1024)

    def done(self):
        return sum(count_good(self.ends[0].rdma_poll_cq(number, 1024)) for number in self.own)


RIVALS = {"offload": Offload, "soft": Rc, "soft_raw": Raw}


def measure(_progress):
    """Return the rows of all three variants."""
    rows, ratio = [], {}
    for name, kind in RIVALS.items():
        rival = kind(1)
        rival.measure(4096, 16)         # warms the caches
        for size in SIZES:
            latency = median(rival.measure(size, 1)[0] for _ in range(LATENCIES)) / 1e3
            rows.append(Row(f"{name}_latency_us_{size}", "µs", latency))
        for size, count in THROUGHPUT:
            taken, used = rival.measure(size, count)
            rows.append(Row(f"{name}_goodput_gbps_{size}", "Gb/s", 8 * size * count / taken))
            ratio[name, size] = rows[-1].value, used
        rival.check(RATIO_BYTES)
        rival.close()
        for qps in QPS:
            rival = kind(qps)
            taken, _ = rival.measure(QP_BYTES, 1)
            rows.append(Row(f"{name}_goodput_gbps_qps_{qps}", "Gb/s", 8 * QP_BYTES * qps / taken))
            rival.close()
    (offload, offload_cpu), (soft, soft_cpu) = (ratio[name, RATIO_BYTES] for name in ("offload", "soft"))
    # Both do the same work: the offload must justify its hardware.
    return [*rows, Row("soft_vs_offload_goodput_ratio", "1", soft / offload, at_most=0.5),
            Row("soft_vs_offload_cpu_ratio", "1", soft_cpu / offload_cpu, at_least=4)]
