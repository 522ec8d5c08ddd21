"""Short run of all operations of a card, after which its counters are not zero."""

from weft.driver.terms.enums import SendFlags, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.linux_counters import driver_counts
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPConnection, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.app.stage.host import Host, ProgramFailed
from weft.tb.sim.pair.settings import ALL_ACCESS

KINDS = (WROpcode.RDMA_WRITE, WROpcode.SEND, WROpcode.RDMA_READ, WROpcode.ATOMIC_FETCH_AND_ADD)
BYTES = 8192


def program(host: Host, messages: int, timeout: int) -> dict[str, int]:
    """Run ``messages`` requests of each kind from side ``a``; return the counters of card and driver.

    Program of both hosts.
    """
    pd, cq = PD(host.context), CQ(host.context, 4 * messages)
    mr = MR(pd, 2 * BYTES, ALL_ACCESS)
    qp = QP(pd, rc_init_attr(cq, max_send_wr=messages, max_recv_wr=messages))
    host.send(vars(qp.connection), mr.buf, mr.rkey)
    peer, address, rkey = host.receive()
    qp.connect(QPConnection(**peer), qp_access_flags=ALL_ACCESS, timeout=timeout, min_rnr_timer=1)
    for n in range(messages):
        qp.post_recv(RecvWR(n, sg=[SGE(mr.buf, BYTES, mr.lkey)]))
    host.send("ready")
    host.receive()
    for kind in KINDS if host.side == "a" else ():
        for n in range(messages):
            length = 8 if kind is WROpcode.ATOMIC_FETCH_AND_ADD else BYTES
            wr = SendWR(n, kind, sg=[SGE(mr.buf, length, mr.lkey)], send_flags=SendFlags.SIGNALED, compare_add=1)
            wr.set_wr_rdma(rkey, address + BYTES)
            qp.post_send(wr)
        done = 0
        while done < messages:
            for wc in cq.wait(messages, host.silence_ns):
                if wc.status is not WCStatus.SUCCESS:
                    raise ProgramFailed(f"a request ended with {wc.status.name}")
                done += 1
    host.send("done")
    host.receive()
    counters = host.context.statistics() | driver_counts(host.context.counts)
    pd.close()
    cq.close()
    return counters
