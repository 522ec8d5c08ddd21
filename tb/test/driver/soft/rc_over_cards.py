"""Every operation of software RoCEv2 over two cards.

The functions are programs of :mod:`weft.tb.app.stage`: host a is the requester, host b the responder.
"""

import random

from weft.driver.soft.ports import for_host_qpns
from weft.driver.soft.rc.context import SoftContext
from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.qp import RcAttr, SoftConnection, SoftQP
from weft.driver.terms.enums import AccessFlag, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.test.driver.soft.card_end import CardEnd

ALL = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC
FIRST_QPN, QPNS = 0x40_0000, 16
BYTES = 5000
TIMEOUT = 4     # as in the verbs: 66 µs
ATOMIC_AT, COMPARE, SWAP = 3 * 8192, 41, 7
W = WROpcode
# Opcode, source offset, bytes, destination offset.
REQUESTS = ((W.RDMA_WRITE, 0, BYTES, 0), (W.RDMA_WRITE_WITH_IMM, 0, 10, BYTES), (W.SEND, 0, BYTES, 0),
            (W.SEND_WITH_IMM, 0, 0, 0), (W.RDMA_READ, 8192, BYTES, 0),
            (W.ATOMIC_FETCH_AND_ADD, ATOMIC_AT, 8, ATOMIC_AT), (W.ATOMIC_CMP_AND_SWP, ATOMIC_AT + 8, 8, ATOMIC_AT))
RECEIVE_AT = 8192


def data():
    """Return the data in the memory of host a."""
    return random.Random("operations").randbytes(BYTES)


class _Host:
    """Endpoint at a card, with a queue pair that is connected to that of the other host."""

    def __init__(self, host):
        context = host.context
        context.host_qpns.claim(FIRST_QPN, QPNS)
        self.soft = SoftContext(mac=context.mac, ip=context.ip, first_qpn=FIRST_QPN, max_qp=QPNS)
        self.card = CardEnd(host, self.soft, for_host_qpns)
        self.cq, self.mr = CQ(self.soft, 64), SoftMR(PD(self.soft), 4 * 8192, ALL)
        self.qp = SoftQP(self.mr.pd, rc_init_attr(self.cq))
        host.send(vars(self.qp.connection), self.mr.buf, self.mr.rkey)
        peer, self.there, self.rkey = self.card.receive()
        self.qp.connect(SoftConnection(**peer), RcAttr(timeout=TIMEOUT))

    def close(self, host):
        """Release the QPNs; return the counters."""
        host.context.host_qpns.release()
        return dict(self.soft.counts) | {"frames": host.context.statistics()["rx_raw_frames"]}


def asks(host):
    """Run host a; return its completions, the data read, and its counters."""
    requester = _Host(host)
    mr, qp = requester.mr, requester.qp
    mr.write(data())
    requester.card.receive()
    requester.card.port.spoil(2, lambda frame: None)
    for number, (opcode, at, length, to) in enumerate(REQUESTS):
        wr = SendWR(number, sg=[SGE(mr.buf + at, length, mr.lkey)] if length else [], opcode=opcode, imm_data=number)
        first, second = (COMPARE, SWAP) if opcode is W.ATOMIC_CMP_AND_SWP else (1, 0)
        wr.set_wr_atomic(requester.rkey, requester.there + to, first, second)
        qp.post_send(wr)
    requester.card.until(lambda: len(requester.cq) == len(REQUESTS))
    host.send("done")
    return {"done": [[wc.wr_id, wc.status.name] for wc in requester.cq.poll(99)[1]],
            "read": mr.read(BYTES, 8192) == data(),
            "before": [int.from_bytes(mr.read(8, ATOMIC_AT + at), "little") for at in (0, 8)],
            "counts": requester.close(host)}


def answers(host):
    """Run host b; return its completions, its final memory, and its counters."""
    answerer = _Host(host)
    mr = answerer.mr
    mr.write((COMPARE - 1).to_bytes(8, "little"), ATOMIC_AT)
    answerer.qp.post_recv(RecvWR(8))
    for number in range(2):
        answerer.qp.post_recv(RecvWR(number, sg=[SGE(mr.buf + RECEIVE_AT, BYTES, mr.lkey)]))
    host.send("ready")
    answerer.card.receive()
    return {"done": [[wc.wr_id, wc.status.name, wc.byte_len, wc.imm_data] for wc in answerer.cq.poll(99)[1]],
            "written": mr.read(BYTES) == data() and mr.read(10, BYTES) == data()[:10],
            "sent": mr.read(BYTES, RECEIVE_AT) == data(),
            "word": int.from_bytes(mr.read(8, ATOMIC_AT), "little"), "counts": answerer.close(host)}
