"""Two hosts with connected software queue pairs, shared by the tests of the RoCEv2 endpoint."""

import contextlib
from dataclasses import replace

from weft.driver.soft.rc.context import SoftContext
from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.packet import Addresses, BadPacket, build, parse
from weft.driver.soft.rc.qp import RcAttr, SoftQP
from weft.driver.terms.enums import AccessFlag, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.test.driver.soft.hosts import MACS, Pair

IPS = (0x0A00_000A, 0x0A00_000B)
ALL = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC
ATOMICS = (WROpcode.ATOMIC_CMP_AND_SWP, WROpcode.ATOMIC_FETCH_AND_ADD)
S = WCStatus


class RcPair(Pair):
    """Host 0 and host 1, each with a PD, a CQ, an MR and a connected QP.

    Parameters
    ----------
    size : int
        Bytes of each MR.
    psns : (int, int)
    caps : dict or None
    attributes
        Of :class:`~weft.driver.soft.rc.qp.RcAttr`; a pair of values is for host 0 and host 1.
    """

    def __init__(self, size=1 << 16, *, psns=(None, None), seed=0, link=None, caps=None, connected=True, **attributes):
        super().__init__(lambda i, random: SoftContext(mac=MACS[i], ip=IPS[i], random=random), seed, link)
        self.pd = [PD(end) for end in self.ends]
        self.cq = [CQ(end, 1024) for end in self.ends]
        self.mr = [SoftMR(pd, size, ALL) for pd in self.pd]
        self.qp = [SoftQP(pd, rc_init_attr(cq, **(caps or {})), psn=psn)
                   for pd, cq, psn in zip(self.pd, self.cq, psns, strict=True)]
        if connected:
            for i in range(2):
                own = {name: value[i] if isinstance(value, tuple) else value for name, value in attributes.items()}
                self.qp[i].connect(self.qp[1 - i].connection, RcAttr(**own))

    def post(self, i, opcode, *, length=None, at=0, to=0, wr_id=1, imm=0, flags=SendFlags.SIGNALED, rkey=None,
             remote=None, compare_add=0, swap=0):
        """Post a request of host ``i`` for bytes at offset ``at`` of its MR and offset ``to`` of the other's."""
        length = (8 if opcode in ATOMICS else 64) if length is None else length
        mine, there = self.mr[i], self.mr[1 - i]
        wr = SendWR(wr_id, sg=[SGE(mine.buf + at, length, mine.lkey)], opcode=opcode, send_flags=flags, imm_data=imm)
        wr.set_wr_atomic(there.rkey if rkey is None else rkey, there.buf + to if remote is None else remote,
                         compare_add, swap)
        self.qp[i].post_send(wr)

    def post_recv(self, i, *, length=4096, at=0, wr_id=1):
        mr = self.mr[i]
        self.qp[i].post_recv(RecvWR(wr_id, sg=[SGE(mr.buf + at, length, mr.lkey)]))

    def poll(self, i):
        return self.cq[i].poll(1 << 20)[1]

    def done(self, i, count, limit_ns=10**10):
        """Wait for ``count`` completions, and return all of the CQ."""
        assert self.run(lambda: len(self.cq[i]) >= count, limit_ns), f"{len(self.cq[i])} of {count} completions"
        return self.poll(i)

    def sent(self, i, opcode=None):
        """Return the packets that a host sent, of one opcode or all."""
        packets = [self.packet_of(frame, i) for host, frame in self.frames if host == i]
        return [packet for packet in packets if opcode in (None, packet.opcode)]

    def packet_of(self, frame, i):
        """Return the packet of a frame that host ``i`` sent."""
        return parse(frame, MACS[1 - i], IPS[1 - i])

    def inject(self, i, packet, **changes):
        """Let a packet of the peer arrive at host ``i`` now; ``changes`` replace addresses."""
        to = Addresses(MACS[i], IPS[i], MACS[1 - i], IPS[1 - i], 0xC000)
        self.hosts[i].arrive(build(packet, replace(to, **changes)))

    def lose(self, i, wanted):
        """Lose the packets of host ``i`` for which ``wanted(packet)`` is true, each PSN once."""
        gone = set()

        def drop(frame):
            with contextlib.suppress(BadPacket):
                packet = self.packet_of(frame, i)
                if wanted(packet) and packet.psn not in gone:
                    gone.add(packet.psn)
                    return True
            return False
        self.links[i].drop = drop


def statuses(completions):
    return [completion.status for completion in completions]


def all_good(completions):
    return all(status is WCStatus.SUCCESS for status in statuses(completions))
