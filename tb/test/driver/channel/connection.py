"""Reliable connection in memory, which asserts every rule of the verbs.

Sends arrive in order; the caller decides when. Each of these is an AssertionError: a send that finds no receive, or
that is longer than its receive; a completion for which the CQ has no space; a work request for which a queue has no
space; an access outside a region; and memory that changes before its request completes.
"""

import collections
from dataclasses import dataclass, field

from weft.driver.terms.enums import WCFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.terms.wc import WC

OPCODES = {WROpcode.SEND: WCOpcode.SEND, WROpcode.SEND_WITH_IMM: WCOpcode.SEND,
           WROpcode.RDMA_WRITE: WCOpcode.RDMA_WRITE, WROpcode.RDMA_READ: WCOpcode.RDMA_READ}


class MemoryMR:
    """Bytes at an address, with one key."""

    def __init__(self, buf, length, key):
        self.buf, self.length, self.lkey, self.rkey = buf, length, key, key
        self._bytes = bytearray(length)

    def read(self, length, offset):
        """Return bytes of the region."""
        assert 0 <= offset <= offset + length <= self.length, (offset, length)
        return bytes(self._bytes[offset : offset + length])

    def write(self, data, length=None, offset=0):
        """Store bytes in the region."""
        data = data if length is None else data[:length]
        assert 0 <= offset <= offset + len(data) <= self.length, (offset, len(data))
        self._bytes[offset : offset + len(data)] = data


class MemoryCQ:
    """Completion queue that fails when it overflows.

    Attributes
    ----------
    most : int
        Largest number of completions held at a time.
    taken : collections.Counter
        Counts of polled receives: ``messages``, ``acks``, and the counts in the acknowledgements, ``ack_data`` and
        ``ack_imm``.
    """

    def __init__(self, cqe):
        self.cqe, self.most = cqe, 0
        self.taken = collections.Counter()
        self._queue = collections.deque()

    def push(self, wc):
        self._queue.append(wc)
        self.most = max(self.most, len(self._queue))
        assert self.most <= self.cqe, f"CQ overflow: {self.most} completions, {self.cqe} places"

    def __len__(self):
        return len(self._queue)

    def poll(self, num_entries=1):
        """Return ``(count, completions)``."""
        wcs = [self._queue.popleft() for _ in range(min(num_entries, len(self._queue)))]
        for wc in wcs:
            if wc.opcode is WCOpcode.RECV and wc.status is WCStatus.SUCCESS:
                count_send(self.taken, wc.imm_data if wc.wc_flags & WCFlags.WITH_IMM else None)
        return len(wcs), wcs


def count_send(counter, imm):
    """Count a message, or the acknowledgement with this immediate."""
    if imm is None:
        counter["messages"] += 1
    else:
        counter["acks"] += 1
        counter["ack_data"] += imm >> 16
        counter["ack_imm"] += imm & 0xFFFF


@dataclass
class _Send:
    """Send work request as the card fetched it."""

    wr_id: int
    opcode: WROpcode
    imm: int
    sges: list
    remote: tuple
    payload: bytes = field(default=b"")


class MemoryQP:
    """One end of the connection.

    Attributes
    ----------
    posted : collections.Counter
        Counts of posted sends, as in :attr:`MemoryCQ.taken`.
    receives : collections.deque
        Posted receives.
    fewest : int
        Smallest number of posted receives after a send has consumed one.
    """

    def __init__(self, cq, mr, max_send_wr, max_recv_wr):
        self.cq, self.mr = cq, mr
        self.max_send_wr, self.max_recv_wr = max_send_wr, max_recv_wr
        self.peer = None
        self.failed = False
        self.posted = collections.Counter()
        self.receives, self.fewest = collections.deque(), max_recv_wr
        self._outstanding, self._delivered = collections.deque(), collections.deque()

    def post_send(self, wr):
        if self.failed:
            raise OSError("the QP is in error")
        assert len(self._outstanding) + len(self._delivered) < self.max_send_wr, "the send queue is full"
        if wr.opcode in (WROpcode.SEND, WROpcode.SEND_WITH_IMM):
            count_send(self.posted, wr.imm_data if wr.opcode is WROpcode.SEND_WITH_IMM else None)
        self._outstanding.append(_Send(wr.wr_id, wr.opcode, wr.imm_data, list(wr.sg), (wr.remote_addr, wr.rkey)))

    def post_recv(self, wr):
        assert len(self.receives) < self.max_recv_wr, "the receive queue is full"
        self.receives.append((wr.wr_id, wr.sg[0]))

    @property
    def moves(self):
        """Return the steps that are possible now."""
        return [move for move, queue in ((self.deliver, self._outstanding), (self.complete, self._delivered)) if queue]

    def deliver(self):
        """Deliver the oldest send, and read its memory only now."""
        send = self._outstanding.popleft()
        send.payload = b"".join(self._region(sge, self.mr).read(sge.length, sge.addr - self.mr.buf)
                                for sge in send.sges)
        mr, (address, key) = self.peer.mr, send.remote
        if send.opcode is WROpcode.RDMA_WRITE:
            assert key == mr.rkey
            mr.write(send.payload, offset=address - mr.buf)
        elif send.opcode is WROpcode.RDMA_READ:
            assert key == mr.rkey
            self.mr.write(mr.read(len(send.payload), address - mr.buf), offset=send.sges[0].addr - self.mr.buf)
        else:
            self._receive(send)
        self._delivered.append(send)

    def _receive(self, send):
        peer = self.peer
        assert peer.receives, "receiver not ready"
        wr_id, sge = peer.receives.popleft()
        peer.fewest = min(peer.fewest, len(peer.receives))
        assert len(send.payload) <= sge.length, "the message is longer than the receive"
        self._region(sge, peer.mr).write(send.payload, offset=sge.addr - peer.mr.buf)
        with_imm = send.opcode is WROpcode.SEND_WITH_IMM
        peer.cq.push(WC(wr_id, WCStatus.SUCCESS, WCOpcode.RECV, byte_len=len(send.payload), qp_num=1,
                        imm_data=send.imm if with_imm else 0, wc_flags=WCFlags.WITH_IMM if with_imm else WCFlags(0)))

    def complete(self):
        """Complete the oldest delivered send; until now the card might have had to retransmit it."""
        send = self._delivered.popleft()
        if send.opcode is not WROpcode.RDMA_READ:
            again = b"".join(self.mr.read(sge.length, sge.addr - self.mr.buf) for sge in send.sges)
            assert again == send.payload, "the memory of a send was changed before it completed"
        self.cq.push(WC(send.wr_id, WCStatus.SUCCESS, OPCODES[send.opcode], qp_num=1))

    def fail(self):
        """Fail the connection: flush everything that is outstanding."""
        self.failed = True
        for send in (*self._delivered, *self._outstanding):
            self.cq.push(WC(send.wr_id, WCStatus.WR_FLUSH_ERR, OPCODES[send.opcode], qp_num=1))
        for wr_id, _ in self.receives:
            self.cq.push(WC(wr_id, WCStatus.WR_FLUSH_ERR, WCOpcode.RECV, qp_num=1))
        for queue in (self._delivered, self._outstanding, self.receives):
            queue.clear()

    @staticmethod
    def _region(sge, mr):
        assert sge.lkey == mr.lkey, "a key of another region"
        return mr


def connected(capacities, mr_bytes):
    """Return two connected QPs, each with a CQ and an MR as large as ``capacities`` of a channel require."""
    qps = [MemoryQP(MemoryCQ(capacities.max_cqe), MemoryMR(0x1000 << 8 * end, mr_bytes, 0x100 + end),
                    capacities.max_send_wr, capacities.max_recv_wr) for end in range(2)]
    for qp, peer in (qps, qps[::-1]):
        qp.peer = peer
    return qps
