"""Two hosts with UD queue pairs on functional cards."""

from weft.driver.datagram.packet import GRH_BYTES
from weft.driver.terms.enums import AccessFlag, QPState, QPType, SendFlags, WROpcode
from weft.driver.terms.enums import QPAttrMask as Mask
from weft.driver.verbs.addr import AH, GID, AHAttr, GlobalRoute
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.driver.verbs.srq import SRQ, SrqInitAttr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.sim.pair.functional_pair import make_pair

QKEY, SLOT_BYTES = 0x1234_5678, 8192
LIMIT_NS, STEP_NS = 10**7, 200
GROUP = 0xE900_0007      # 233.0.0.7


def ud_init(cq, srq=None, **caps):
    cap = {"max_send_wr": 64, "max_recv_wr": 64, "max_send_sge": 4, "max_recv_sge": 4, "max_inline_data": 256} | caps
    return QPInitAttr(QPType.UD, None, cq, cq, srq, QPCap(**cap), sq_sig_all=0)


def group_gid(ip=GROUP):
    return str(GID.of_ipv4(ip))


class DatagramHost:
    """PD, CQ, memory and UD queue pairs of one host."""

    def __init__(self, context, *, qps=1, srq=False, qkey=QKEY):
        self.context, self.pd, self.cq = context, PD(context), CQ(context, 4096)
        self.mr = MR(self.pd, 1 << 17, AccessFlag.LOCAL_WRITE)
        self.srq = SRQ(self.pd, SrqInitAttr()) if srq else None
        self.qps = [QP(self.pd, ud_init(self.cq, self.srq)) for _ in range(qps)]
        for qp in self.qps:
            qp.to_rts(QPAttr(qkey=qkey, sq_psn=7))
        self.qp = self.qps[0]

    def ah(self, ip):
        return AH(self.pd, attr=AHAttr(is_global=1, gr=GlobalRoute(str(GID.of_ipv4(ip)), hop_limit=64)))

    def recv(self, at=0, length=SLOT_BYTES, *, qp=None, wr_id=1, sges=None):
        sges = [SGE(self.mr.buf + at, length, self.mr.lkey)] if sges is None else sges
        (self.srq or qp or self.qp).post_recv(RecvWR(wr_id, sg=sges))

    def send(self, to, data, *, qp=None, dest=None, qkey=QKEY, at=1 << 16, imm=None, flags=SendFlags.SIGNALED, wr_id=2):
        """Send bytes to a QP, or to an address handle with a QPN as ``dest``."""
        ah, qpn = dest or (self.ah(to.context.ip), to.qp_num)
        if data:
            self.mr.write(data, len(data), at)
        wr = SendWR(wr_id, WROpcode.SEND if imm is None else WROpcode.SEND_WITH_IMM, imm_data=imm or 0,
                    sg=[SGE(self.mr.buf + at, len(data), self.mr.lkey)], send_flags=flags)
        wr.set_wr_ud(ah, qpn, qkey)
        (qp or self.qp).post_send(wr)

    def received(self, wc, at=0):
        """Return header and data of a receive."""
        return self.mr.read(GRH_BYTES, at), self.mr.read(wc.byte_len - GRH_BYTES, at + GRH_BYTES)

    def to_rts(self, qp):
        qp.modify(QPAttr(qp_state=QPState.RTS), Mask.STATE)


class DatagramPair:
    """Two hosts of a :class:`~weft.tb.sim.pair.loop_pair.LoopPair`; ``options`` are those of :class:`DatagramHost`."""

    def __init__(self, *, pair=None, **options):
        self.pair = pair or make_pair()
        self.hosts = [DatagramHost(context, **options) for context in self.pair.contexts]

    def run_until(self, condition, limit_ns=LIMIT_NS):
        end = self.pair.now_ns() + limit_ns
        while True:
            for context in self.pair.contexts:
                context.progress()
            if condition():
                return
            if self.pair.now_ns() > end:
                raise TimeoutError(f"not after {limit_ns} ns")
            self.pair.advance(STEP_NS)

    def completions(self, end, count):
        got = []

        def enough():
            got.extend(self.hosts[end].cq.take(count - len(got))[1])
            return len(got) == count

        self.run_until(enough)
        return got

    def settle(self, ns=200_000):
        end = self.pair.now_ns() + ns
        self.run_until(lambda: self.pair.now_ns() > end)

    def close(self):
        for context in self.pair.contexts:
            pages = context.device.memory._pages
            context.close()
            assert not pages, "memory was not given back"
