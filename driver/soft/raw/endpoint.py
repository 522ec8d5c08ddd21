"""Host with the document's protocol: calls, frames and time in, frames and the next deadline out."""

import collections
import errno
import math
from random import SystemRandom

from ...device.index_pool import IndexPool
from ...terms.checks import unsigned
from ...terms.enums import AccessFlag
from .buffers import BufferPool, TransmitQueue
from .inquiry import Inquiries
from .packet import BROADCAST, HEADER, REPLIES, REQUESTS, SEQ_BITS, BadPacket, Fault, Opcode, Packet, parse
from .qp import CompletionQueue, Mode, QueuePair, State
from .region import VADDR_STEP, RegionTable, process_local
from .requester import Requester
from .responder import Responder

MTU = 1500           # of Ethernet: bytes after its header
TIMEOUT_NS = 1_000_000
_WR_BITS = {"wr_id": 64, "local_mr_id": 32, "local_offset": 64, "remote_mr_id": 32, "remote_addr": 64,
            "remote_key": 32, "length": 32}


class QpTable:
    """Queue pairs by number.

    Parameters
    ----------
    size : int
    counts : Counter
        ``unknown_qp``, ``not_connected`` and ``foreign_sender`` count packets of no connection, by reason.
    """

    def __init__(self, size, counts):
        self._numbers, self._sides, self.counts = IndexPool(size, "queue pairs"), {}, counts
        self._turn = 0

    def add(self, make, regions, transmit, buffers, payload_max):
        """Add a queue pair, ``make(number)``, with requester and responder; raise MemoryError if the table is full."""
        qp = make(self._numbers.take())
        self._sides[qp.id] = (Requester(qp, regions, transmit, self.counts, payload_max),
                              Responder(qp, regions, transmit, buffers, self.counts, payload_max))
        return qp

    def remove(self, number):
        """Remove a queue pair, free its number, and return its ``(Requester, Responder)``."""
        self._numbers.release(number)
        return self._sides.pop(number)

    def get(self, number):
        """Return the :class:`~weft.driver.soft.raw.qp.QueuePair` of a number, or None."""
        return self._sides[number][0].qp if number in self._sides else None

    def of_packet(self, packet):
        """Return the ``(Requester, Responder)`` of a packet, or count it and return None if it is of no connection."""
        sides = self._sides.get(packet.dst_qp)
        if sides is None:
            self.counts["unknown_qp"] += 1
        elif sides[0].qp.mode is not Mode.NETWORK or not sides[0].qp.connected:
            self.counts["not_connected"] += 1
        elif not sides[0].qp.is_peer(packet):
            self.counts["foreign_sender"] += 1
        else:
            return sides
        return None

    def in_turns(self):
        """Return all requesters; the first one rotates with each call."""
        requesters = [requester for requester, _ in self._sides.values()]
        self._turn = (self._turn + 1) % max(1, len(requesters))
        return requesters[self._turn:] + requesters[:self._turn]


class Endpoint:
    """Host.

    The calls are those of the document and, like those, return a negative errno if they fail.

    Parameters
    ----------
    mac : int
    mtu : int
        Bytes of a frame after its Ethernet header.
    timeout_ns : int
        Retransmission time-out of a packet.
    max_qp, max_mr, tx_queue, buffers : int
        Limits of queue pairs, memory regions, frames that wait for the NIC, and frame buffers.
    random : random.Random
        Source of keys and of the numbers of inquiries; by default the system's, which is unpredictable.

    Attributes
    ----------
    counts : Counter
        Number of packets and calls that were dropped, rejected, repeated or delayed, by name.
    regions : RegionTable
    qps : QpTable
    """

    def __init__(self, mac, *, mtu=MTU, timeout_ns=TIMEOUT_NS, max_qp=64, max_mr=64, tx_queue=64, buffers=256,
                 random=None):
        random = random or SystemRandom()
        self.mac, self.timeout_ns = unsigned("mac", mac, 48), timeout_ns
        self.payload_max = mtu - HEADER.size_bytes
        if self.payload_max < 1:
            raise ValueError(f"mtu is {mtu}; the header alone has {HEADER.size_bytes} bytes")
        self.counts = collections.Counter()
        self.regions = RegionTable(max_mr, random)
        self.buffers = BufferPool(buffers)
        self.transmit = TransmitQueue(mac, tx_queue, self.buffers, self.counts)
        self.inquiries = Inquiries(self.transmit, self.counts, timeout_ns, random.randrange(1 << SEQ_BITS))
        self.qps = QpTable(max_qp, self.counts)

    # ------------------------------------------------------------------------------------- memory

    def rdma_reg_mr(self, memory, access=0):
        """Register a bytearray, or newly allocated memory of that size; return its id, -ENOMEM or -EINVAL.

        A registered bytearray must keep its size.
        """
        data = memoryview(bytearray(memory) if isinstance(memory, int) else memory)
        if data.nbytes >= VADDR_STEP or data.readonly or data.format != "B":
            return -errno.EINVAL
        try:
            return self.regions.add(data, AccessFlag(access)).id
        except MemoryError:
            return -errno.ENOMEM

    def rdma_dereg_mr(self, mr_id):
        """Deregister memory; return 0, -EINVAL if there is none, -EBUSY while a request of this host uses it."""
        region = self.regions.get(mr_id)
        if region is None:
            return -errno.EINVAL
        if region.uses:
            return -errno.EBUSY
        self.regions.remove(region)
        return 0

    # -------------------------------------------------------------------------------- queue pairs

    def rdma_qp_create(self, mode=Mode.NETWORK, *, sq_size=64, cq_size=128):
        """Create a queue pair in INIT or, for software loopback, in RTS; return its number or -ENOMEM."""
        def make(number):
            return QueuePair(number, mode, sq_size, CompletionQueue(cq_size), self.timeout_ns)

        try:
            qp = self.qps.add(make, self.regions, self.transmit, self.buffers, self.payload_max)
        except MemoryError:
            return -errno.ENOMEM
        qp.enter(State.INIT)
        if mode is Mode.SOFTWARE_LOOPBACK:
            qp.enter(State.RTR)
            qp.confirm()
        return qp.id

    def rdma_qp_connect(self, qp_num, remote_mac, remote_qp_num, *, tx_seq=0, rx_seq=0):
        """Go from INIT to RTR; return 0 or -EINVAL. RTS follows with the first packet that is sent or received."""
        qp = self.qps.get(qp_num)
        possible = (remote_mac in range(1 << 48) and remote_qp_num in range(1 << 16)
                    and tx_seq in range(1 << SEQ_BITS) and rx_seq in range(1 << SEQ_BITS))
        if qp is None or qp.state is not State.INIT or not possible:
            return -errno.EINVAL
        qp.remote_mac, qp.remote_qp_num, qp.tx_seq, qp.rx_expected_seq = remote_mac, remote_qp_num, tx_seq, rx_seq
        qp.enter(State.RTR)
        return 0

    def rdma_qp_destroy(self, qp_num):
        """Destroy a queue pair in any state, with its requests and completions; return 0 or -EINVAL."""
        if self.qps.get(qp_num) is None:
            return -errno.EINVAL
        requester, responder = self.qps.remove(qp_num)
        if requester.qp.state is not State.ERROR:
            requester.qp.enter(State.ERROR)
        requester.flush()
        responder.forget()
        return 0

    # --------------------------------------------------------------------------------------- work

    def rdma_post_send(self, qp_num, wr):
        """Post a request; return 0 or an error.

        The errors are -EINVAL for an invalid request, -ENOTCONN if the QP was never connected, and -EAGAIN if send or
        completion queue are full. In ERROR the request is flushed.
        """
        qp = self.qps.get(qp_num)
        if qp is None or wr.opcode not in REQUESTS or not all(
                0 <= getattr(wr, name) < 1 << bits for name, bits in _WR_BITS.items()):
            return -errno.EINVAL
        if wr.remote_addr + wr.length > 1 << 64:
            return -errno.EINVAL
        if qp.state in (State.RESET, State.INIT):
            return -errno.ENOTCONN
        if qp.posted >= qp.sq_size or qp.cq.space <= 0:
            self.counts["post_again"] += 1
            return -errno.EAGAIN
        qp.cq.reserve()
        qp.sq.append(wr)
        qp.due = 0
        return 0

    def rdma_poll_cq(self, qp_num, most=1):
        """Return up to ``most`` completions of a QP, oldest first, or -EINVAL if there is no such QP."""
        qp = self.qps.get(qp_num)
        return -errno.EINVAL if qp is None else qp.cq.poll(most)

    # ---------------------------------------------------------------------------------- inquiries

    def rdma_discover(self, qp_num, now):
        """Ask all hosts for the owner of a QP; return the number of the inquiry, -EBUSY or -EINVAL.

        -EINVAL means that the QP number is out of range.
        """
        return self.inquiries.discover(qp_num, now) if qp_num in range(1 << 16) else -errno.EINVAL

    def rdma_ping(self, mac, now, payload=b"rdma"):
        """Test if a host responds; return the number of the inquiry, -EBUSY, or -EINVAL.

        -EINVAL means that the address is invalid or the payload is too long.
        """
        possible = mac in range(1 << 48) and len(payload) <= self.payload_max
        return self.inquiries.ping(mac, payload, now) if possible else -errno.EINVAL

    def rdma_answer(self, number):
        """Return the result of an inquiry: see :meth:`Inquiries.result`."""
        return self.inquiries.result(number)

    # ---------------------------------------------------------------------------- frames and time

    def rdma_rx(self, frame, now):
        """Process a received frame; errors in it are counted and never raised."""
        try:
            packet = parse(frame)
        except BadPacket as bad:
            self.counts[bad.fault.name.lower()] += 1
            if bad.fault is Fault.CHECKSUM and bad.packet.opcode in REQUESTS and bad.packet.dst_mac == self.mac:
                if sides := self.qps.of_packet(bad.packet):
                    sides[1].refuse_damaged(bad.packet)
            return
        if packet.dst_mac != self.mac and (packet.dst_mac, packet.opcode) != (BROADCAST, Opcode.DISCOVER):
            self.counts["other_host"] += 1
        elif packet.opcode in REQUESTS | REPLIES:
            if sides := self.qps.of_packet(packet):
                if packet.opcode in REQUESTS:
                    sides[1].on_request(packet)
                else:
                    sides[0].on_reply(packet, now)
        elif packet.opcode in (Opcode.DISCOVER, Opcode.PING):
            self._answer(packet)
        else:
            self.inquiries.on_answer(packet, now)

    def _answer(self, packet):
        if packet.opcode is Opcode.DISCOVER:
            if self.qps.get(packet.dst_qp) is None:
                return
            reply = Packet(Opcode.DISCOVER_REPLY, packet.src_mac, src_qp=packet.dst_qp, seq=packet.seq)
        else:
            reply = Packet(Opcode.PONG, packet.src_mac, seq=packet.seq, length=packet.length, payload=packet.payload)
        self.transmit.send(reply, reply=True)

    def rdma_process(self, now):
        """Handle time-outs, and send a batch of packets of each QP; the QP that begins rotates.

        Returns
        -------
        int or None
            Latest time of the next call. Call also after a frame was received, and after frames were taken.
        """
        self.inquiries.check_timeouts(now)
        due = self.inquiries.deadline
        for requester in self.qps.in_turns():
            if requester.qp.mode is Mode.SOFTWARE_LOOPBACK:
                process_local(requester.qp, self.regions)
            else:
                due = min(due, requester.process(now))
        return None if due == math.inf else due

    def take_frames(self, most=1 << 30):
        """Return up to ``most`` frames for the NIC."""
        return self.transmit.take(most)

    # interface for ports
    receive, process = rdma_rx, rdma_process
