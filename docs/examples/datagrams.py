"""A datagram, and an answer to the address from which it came."""

from two_hosts import TwoHosts

from weft.driver import AH, GID, QP, SGE, AHAttr, GlobalRoute, QPAttr, QPCap, QPInitAttr, QPType, RecvWR, SendWR
from weft.driver.datagram.packet import GRH_BYTES

QKEY = 0x11111111

hosts = TwoHosts()


def queue_pair(end):
    """Return a UD queue pair in RTS, with one receive at the beginning of the MR."""
    qp = QP(end.mr.pd, QPInitAttr(QPType.UD, scq=end.cq, rcq=end.cq, cap=QPCap(4, 4)), QPAttr(qkey=QKEY))
    qp.post_recv(RecvWR(wr_id=100, sg=[SGE(end.mr.buf, 512, end.mr.lkey)]))
    return qp


qps = queue_pair(hosts.a), queue_pair(hosts.b)


def send(end, qp, ah, qpn, text):
    end.mr.write(text, offset=1024)
    wr = SendWR(sg=[SGE(end.mr.buf + 1024, len(text), end.mr.lkey)])
    wr.set_wr_ud(ah, qpn, QKEY)
    qp.post_send(wr)


def receive(end):
    """Wait for the completion of the receive; the send's may come first."""
    while True:
        [wc] = end.cq.wait(1, timeout_ns=10_000_000)
        if wc.wr_id == 100:
            print(f"{wc.byte_len} bytes: {end.mr.read(wc.byte_len - GRH_BYTES, GRH_BYTES)}")
            return wc


def asking():
    a = hosts.a
    route = GlobalRoute(GID.of_ipv4(hosts.b.context.ip))
    send(a, qps[0], AH(a.mr.pd, attr=AHAttr(is_global=1, gr=route)), qps[1].qp_num, b"a question")
    receive(a)


def answering():
    b = hosts.b
    wc = receive(b)
    send(b, qps[1], AH(b.mr.pd, wc=wc, grh=b.mr.buf), wc.src_qp, b"the answer")
    b.cq.wait(1, timeout_ns=10_000_000)


hosts.run(asking, answering)
