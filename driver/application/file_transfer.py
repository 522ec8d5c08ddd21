"""File transfer: moves a block of bytes over several QPs by RDMA writes.

The receiver registers the memory and passes :class:`Offer` to the sender out of band, with the connection data of its
QPs. The last message on every QP has an immediate, which notifies the receiver that all earlier messages on that QP are
in place.
"""

from dataclasses import dataclass

from ..terms.enums import MTU, AccessFlag, SendFlags, WCStatus, WROpcode
from ..verbs.cq import CQ
from ..verbs.mr import MR
from ..verbs.pd import PD
from ..verbs.qp import QP, rc_init_attr
from ..verbs.wr import SGE, RecvWR, SendWR

MESSAGE_BYTES = 64 * 1024
WINDOW = 16  # work requests in flight per QP


class TransferError(Exception):
    """A completion with an error status ended the transfer."""


@dataclass(frozen=True)
class Offer:
    """Memory and QPs of the receiver."""

    va: int
    rkey: int
    length: int
    connections: tuple


class Endpoint:
    """PD, CQ, MR and QPs of one side.

    Parameters
    ----------
    context : Context
    length : int
        Bytes of the memory.
    qps : int
    psns : list of int or None
        First PSN of each QP; random by default.
    window, receives : int
        Work requests of each QP, to send and to receive.
    inline : int
        ``max_inline_data`` of each QP.
    mr_options
        Passed to :class:`MR`.
    """

    def __init__(self, context, length, *, qps=1, psns=None, window=WINDOW, receives=4, inline=0, memory=None,
                 **mr_options):
        self.context, self.length, self.window = context, length, window
        self.pd = PD(context)
        self.cq = CQ(context, qps * (2 * window + receives))
        self.mr = MR(self.pd, 0 if memory else max(length, 1), AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE,
                     buffer=memory, **mr_options)
        init = rc_init_attr(self.cq, max_send_wr=window, max_recv_wr=receives, max_inline_data=inline)
        self.qps = [QP(self.pd, init, psn=psns[i] if psns else None) for i in range(qps)]

    @property
    def connections(self):
        return tuple(qp.connection for qp in self.qps)

    @property
    def offer(self):
        return Offer(self.mr.buf, self.mr.rkey, self.length, self.connections)

    def connect(self, peers, *, path_mtu=MTU.MTU_1024, **attributes):
        """Bring all QPs to RTS with the peer's connection data."""
        for qp, peer in zip(self.qps, peers, strict=True):
            qp.connect(peer, path_mtu=path_mtu, **attributes)

    def close(self):
        """Destroy everything."""
        self.pd.close()
        self.cq.close()


def shares(length, qps):
    """Return (offset, bytes) of the part of each QP, in whole 4 KiB except for the last."""
    share = -(-length // qps // 4096) * 4096 if length else 0
    return [(min(i * share, length), max(0, min(share, length - i * share))) for i in range(qps)]


def _messages(offset, length, message_bytes):
    """Yield (offset, bytes, last) of the messages of one share. An empty share is one empty message."""
    count = max(1, -(-length // message_bytes))
    for i in range(count):
        at = i * message_bytes
        yield offset + at, min(message_bytes, length - at), i == count - 1


def send_file(endpoint, offer, *, message_bytes=MESSAGE_BYTES, timeout_ns=None):
    """Write the endpoint's memory to the offered memory. Return statistics when everything is acknowledged.

    Raises
    ------
    TransferError
        If a work request fails.
    TimeoutError
        If nothing completes for ``timeout_ns``.
    """
    if offer.length < endpoint.length:
        raise ValueError(f"{endpoint.length} bytes do not fit the {offer.length} offered")
    start = endpoint.context.device.now_ns()
    todo = {
        qp: _messages(*share, message_bytes)
        for qp, share in zip(endpoint.qps, shares(endpoint.length, len(endpoint.qps)), strict=True)
    }
    free = dict.fromkeys(endpoint.qps, endpoint.window)
    by_number = {qp.qp_num: qp for qp in endpoint.qps}
    open_requests = messages = 0

    def post(qp):
        nonlocal open_requests, messages
        while free[qp] and (message := next(todo[qp], None)):
            offset, length, last = message
            wr = SendWR(
                wr_id=offset,
                num_sge=1,
                sg=[SGE(endpoint.mr.buf + offset, length, endpoint.mr.lkey)],
                opcode=WROpcode.RDMA_WRITE_WITH_IMM if last else WROpcode.RDMA_WRITE,
                send_flags=SendFlags.SIGNALED,
                imm_data=length,
            )
            wr.set_wr_rdma(offer.rkey, offer.va + offset)
            qp.post_send(wr)
            free[qp] -= 1
            open_requests += 1
            messages += 1

    for qp in endpoint.qps:
        post(qp)
    while open_requests:
        for wc in endpoint.cq.wait(16, timeout_ns):
            if wc.status is not WCStatus.SUCCESS:
                raise TransferError(f"message at {wc.wr_id} on QP {wc.qp_num}: {wc.status.name}")
            open_requests -= 1
            free[by_number[wc.qp_num]] += 1
            post(by_number[wc.qp_num])
    return statistics(endpoint, start) | {"messages": messages}


def receive_file(endpoint, *, timeout_ns=None, sending=lambda: False):
    """Wait until the peer's :func:`send_file` is complete on every QP. Return statistics.

    Parameters
    ----------
    timeout_ns : int or None
        Longest wait for a completion once ``sending`` returns False.
    sending : callable
        Returns True while the peer may still send.

    Raises
    ------
    TransferError
        If a receive fails.
    TimeoutError
        If nothing completes for ``timeout_ns`` and the peer has ended.
    """
    start = endpoint.context.device.now_ns()
    pending = {qp.qp_num for qp in endpoint.qps}
    while pending:
        peer_sends = sending()
        try:
            completions = endpoint.cq.wait(16, timeout_ns)
        except TimeoutError:
            if not peer_sends:
                raise
            continue
        for wc in completions:
            if wc.status is not WCStatus.SUCCESS:
                raise TransferError(f"QP {wc.qp_num}: {wc.status.name}")
            pending.discard(wc.qp_num)
    return statistics(endpoint, start)


def post_receives(endpoint):
    """Post one receive per QP for the final immediate. Must be called before the peer starts."""
    for qp in endpoint.qps:
        qp.post_recv(RecvWR(wr_id=qp.qp_num))


def statistics(endpoint, start_ns):
    """Return the statistics of one side since ``start_ns``."""
    total = {
        "bytes": endpoint.length,
        "nanoseconds": endpoint.context.device.now_ns() - start_ns,
        "qps": len(endpoint.qps),
    }
    for qp in endpoint.qps:
        for part in (qp.sender, qp.receiver):
            for name, value in part.counts.items():
                key = f"{'sender' if part is qp.sender else 'receiver'}_{name}"
                total[key] = total.get(key, 0) + value
    return total
