"""Two hosts with functional cards, each with a PD, CQ, MR and connected QP; the other examples import it."""

from dataclasses import dataclass

from weft.driver import CQ, MR, PD, QP, SGE, AccessFlag, CompChannel, Context, SendWR, WROpcode, rc_init_attr
from weft.model.functional.host import LinkConfig, connected_pair, run_apps


@dataclass
class Host:
    """One side."""

    context: Context
    channel: CompChannel
    cq: CQ
    mr: MR
    qp: QP

    def write(self, peer, length, *, wr_id=0, imm=None, rkey=None):
        """Post a write of the first bytes of the MR into the peer's."""
        opcode = WROpcode.RDMA_WRITE if imm is None else WROpcode.RDMA_WRITE_WITH_IMM
        work = SendWR(wr_id, sg=[SGE(self.mr.buf, length, self.mr.lkey)], opcode=opcode, imm_data=imm or 0)
        work.set_wr_rdma(peer.mr.rkey if rkey is None else rkey, peer.mr.buf)
        self.qp.post_send(work)


class TwoHosts:
    """Hosts ``a`` and ``b``.

    Parameters
    ----------
    size : int
        Bytes of each MR.
    config : ContextConfig or None
    link : LinkConfig or None
        Both directions.
    attributes
        Passed to ``QP.connect``.
    """

    def __init__(self, size=1 << 16, *, config=None, link=None, **attributes):
        self.loop, self.devices, self.links = connected_pair(seed=1, forward=link or LinkConfig())
        hosts = []
        for i, device in enumerate(self.devices):
            context = Context(device, mac=0x020000000001 + i, ip=0x0A000001 + i, config=config)
            pd, channel = PD(context), CompChannel(context)
            cq = CQ(context, 64, channel=channel)
            mr = MR(pd, size, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE)
            hosts.append(Host(context, channel, cq, mr, QP(pd, rc_init_attr(cq))))
        self.a, self.b = hosts
        self.a.qp.connect(self.b.qp.connection, **attributes)
        self.b.qp.connect(self.a.qp.connection, **attributes)

    def run(self, program_a, program_b):
        """Run a program on each host, in simulated time, until both have ended."""
        return run_apps(self.loop, list(zip(self.devices, (program_a, program_b), strict=True)), 10**10)
