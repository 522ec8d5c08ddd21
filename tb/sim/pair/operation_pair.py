"""Two hosts with connected QPs for tests of operations."""

from dataclasses import dataclass, field, fields

from weft.driver.terms.enums import AccessFlag, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ, CompChannel
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.srq import SRQ, SrqInitAttr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.sim.pair.functional_pair import close_and_check, make_pair
from weft.tb.sim.pair.settings import ALL_ACCESS

LIMIT_NS = 10**8
CAP = {"max_send_wr": 64, "max_recv_wr": 64, "max_inline_data": 256}


@dataclass(frozen=True)
class Objects:
    """Objects of each host."""

    length: int = 1 << 16                  # bytes of the memory region
    qps: int = 1
    cap: dict = field(default_factory=lambda: CAP)
    cqe: int = 4096
    access: AccessFlag = ALL_ACCESS        # of the QPs
    memory_access: AccessFlag = ALL_ACCESS
    srq: SrqInitAttr | None = None         # of an SRQ that the QPs of a host share


class Host:
    """PD, CQ, memory and QPs of one host."""

    def __init__(self, context, objects):
        self.context, self.access = context, objects.access
        self.pd, self.channel = PD(context), CompChannel(context)
        self.cq = CQ(context, objects.cqe, None, self.channel)
        self.srq = SRQ(self.pd, objects.srq) if objects.srq is not None else None
        self.mr = MR(self.pd, objects.length, objects.memory_access)
        self.qps = [QP(self.pd, rc_init_attr(self.cq, srq=self.srq, **objects.cap)) for _ in range(objects.qps)]

    @property
    def qp(self):
        return self.qps[0]

    def sge(self, at, length):
        """Return the SGE of a part of the memory."""
        return SGE(self.mr.buf + at, length, self.mr.lkey)

    def recv(self, at=0, length=1024, *, wr_id=1, qp=None, sges=None):
        """Post a receive, to the SRQ if there is one."""
        (self.srq or qp or self.qp).post_recv(RecvWR(wr_id, sg=[self.sge(at, length)] if sges is None else sges))

    def close(self):
        self.pd.close()
        self.cq.close()


class OperationPair:
    """Two hosts of a started :class:`~weft.tb.sim.pair.pair.Pair`; ``hosts[0]`` is the requester.

    ``length`` is that of each memory region in bytes. With ``connect``, the QPs are brought to RTS, with those of
    ``options`` that are not attributes of :class:`Objects`.
    """

    def __init__(self, length=1 << 16, *, pair=None, connect=True, **options):
        self.pair = pair or make_pair()
        names = [each.name for each in fields(Objects)]
        objects = Objects(length, **{name: options.pop(name) for name in names if name in options})
        self.hosts = [Host(context, objects) for context in self.pair.contexts]
        if connect:
            self.connect(**options)

    def connect(self, **attributes):
        """Bring all QPs to RTS."""
        for host, peer in (self.hosts, self.hosts[::-1]):
            for qp, other in zip(host.qps, peer.qps, strict=True):
                qp.connect(other.connection, qp_access_flags=host.access, **attributes)

    def send(self, opcode, *sges, end=0, qp=0, at=0, flags=SendFlags.SIGNALED, imm=0, rkey=None, **fields):
        """Post a send request from host ``end``.

        ``sges`` are (offset, length) pairs or SGEs, ``at`` is the offset in the other host's memory, and ``fields`` are
        further fields of :class:`SendWR`.
        """
        host, peer = self.hosts[end], self.hosts[1 - end]
        wr = SendWR(sg=[s if isinstance(s, SGE) else host.sge(*s) for s in sges], opcode=WROpcode(opcode),
                    send_flags=flags, imm_data=imm, **{"wr_id": 7} | fields)
        wr.set_wr_rdma(peer.mr.rkey if rkey is None else rkey, peer.mr.buf + at)
        host.qps[qp].post_send(wr)

    def run_until(self, condition, limit_ns=LIMIT_NS):
        """Run both drivers and the link until ``condition()`` holds; raise ``TimeoutError`` after ``limit_ns``."""
        end = self.pair.now_ns() + limit_ns
        while True:
            busy = [context.progress() for context in self.pair.contexts]
            if condition():
                return
            if self.pair.now_ns() > end:
                raise TimeoutError(f"not after {limit_ns} ns")
            self.pair.advance(200 if any(busy) else 2_000)

    def completions(self, end, count):
        """Wait for the next ``count`` completions of a host and return them."""
        got = []

        def enough():
            got.extend(self.hosts[end].cq.take(count - len(got))[1])
            return len(got) == count

        self.run_until(enough)
        return got

    def statuses(self, end, count):
        """Return the statuses of the next ``count`` completions."""
        return [WCStatus(wc.status) for wc in self.completions(end, count)]

    def settle(self, ns=200_000):
        """Run for some simulated time."""
        end = self.pair.now_ns() + ns
        self.run_until(lambda: self.pair.now_ns() > end)

    def close(self):
        """Close everything and assert that all resources were freed."""
        close_and_check(self.pair, self.hosts)
