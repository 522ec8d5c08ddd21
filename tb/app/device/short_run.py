"""Short run of all operations of a card, after which its counters are not zero."""

from weft.driver.terms.enums import SendFlags, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.linux_counters import driver_counts
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPConnection, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import wire
from weft.tb.app.stage.host import SERVE_NS, Host, ProgramFailed
from weft.tb.sim.pair.settings import ALL_ACCESS

KINDS = (WROpcode.RDMA_WRITE, WROpcode.SEND, WROpcode.RDMA_READ, WROpcode.ATOMIC_FETCH_AND_ADD)
BYTES = 8192
EXPERIMENTAL = 0x88B5       # EtherType for local experiments (IEEE 802): no host answers
RETURN_NS = 1_000_000       # time in which frames return that a loop sends back


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
    counters = _counted(host)
    pd.close()
    cq.close()
    return counters


def alone(host: Host, frames: int) -> dict[str, int]:
    """Send frames to the card's own address; return the counters of card and driver.

    The frames return if the MAC or the cable is a loop; a switch drops them. Raises ProgramFailed or TimedOut if the
    card does not send them.
    """
    mac, context = host.context.mac, host.context
    frame = wire.ETH.pack(dst=mac, src=mac, ethertype=EXPERIMENTAL).ljust(wire.MIN_FRAME_BYTES, b"\0")
    deadline = host.now_ns + host.silence_ns
    for _ in range(frames):
        context.send_raw(frame)
        context.run_until(lambda: not context.engine.nic.queue, host.silence_ns)
    while (sent := context.statistics()["tx_raw_frames"]) < frames:
        if host.now_ns > deadline:
            raise ProgramFailed(f"the card sent {sent} of {frames} frames")
        context.serve(SERVE_NS)
    context.serve(RETURN_NS)
    return _counted(host)


def _counted(host: Host) -> dict[str, int]:
    return host.context.statistics() | driver_counts(host.context.counts)
