"""Responder of a QP: executes requests of the peer in order and once, with an answer to each packet.

Document: "Reception Path", "Out-of-Order Handling".
"""

from ...terms.enums import AccessFlag, WCStatus
from .packet import SEQ_BITS, Flag, NackReason, Opcode, Packet, seq_distance
from .qp import MAX_INFLIGHT, MAX_OOO, Completion

_NEEDED = {Opcode.WRITE: AccessFlag.REMOTE_WRITE, Opcode.READ: AccessFlag.REMOTE_READ}


class Responder:
    """Executes the requests of the peer.

    A packet with the expected sequence number is executed. An early packet waits in the out-of-order queue. A packet
    that was executed before is answered again: a WRITE with its ACK alone, a READ with the current contents of memory.
    The expected sequence number does not advance over a rejected packet, so no later packet is executed.

    Parameters
    ----------
    qp : QueuePair
    regions : RegionTable
    transmit : TransmitQueue
    buffers : BufferPool
        Each packet of the out-of-order queue occupies one buffer.
    counts : Counter
    payload_max : int
        Largest number of bytes of a READ.
    """

    def __init__(self, qp, regions, transmit, buffers, counts, payload_max):
        self.qp, self.regions, self.transmit, self.buffers, self.counts = qp, regions, transmit, buffers, counts
        self.payload_max = payload_max

    def on_request(self, packet):
        """Process a WRITE or a READ of the peer."""
        ahead = seq_distance(packet.seq, self.qp.rx_expected_seq)
        if ahead == 0:
            self._take_in_order(packet)
        elif 0 < ahead < MAX_OOO:
            self._keep(packet)
        elif -MAX_INFLIGHT <= ahead < 0:
            self.counts["duplicates"] += 1
            if packet.opcode is Opcode.WRITE:
                self._answer(packet, Opcode.ACK)
            else:
                self._read(packet)
        else:
            self.counts["far_sequence_numbers"] += 1

    def _keep(self, packet):
        queue = self.qp.ooo_queue
        if packet.seq in queue:
            self.counts["duplicates"] += 1
        elif self.buffers.take(early=True):
            queue[packet.seq] = packet
            self.counts["out_of_order"] += 1
        else:
            self.counts["out_of_memory"] += 1
            self._refuse(packet, NackReason.NO_MEMORY)

    def _take_in_order(self, packet):
        qp = self.qp
        while packet is not None and self._carry_out(packet):
            qp.confirm()
            qp.rx_expected_seq = (qp.rx_expected_seq + 1) % (1 << SEQ_BITS)
            packet = qp.ooo_queue.pop(qp.rx_expected_seq, None)
            if packet is not None:
                self.buffers.release()

    def _carry_out(self, packet):
        return self._write(packet) if packet.opcode is Opcode.WRITE else self._read(packet)

    def _place(self, packet):
        """Return the ``(region, offset)`` of a packet, or None if it was rejected."""
        region = self.regions.get(packet.remote_mr_id)
        if region is None:
            return self._refuse(packet, NackReason.INVALID_MR)
        if packet.remote_key != region.key or not region.access & _NEEDED[packet.opcode]:
            return self._refuse(packet, NackReason.ACCESS)
        offset = region.offset_of(packet.remote_addr, packet.length)
        if offset is None:
            return self._refuse(packet, NackReason.BOUNDS)
        return region, offset

    def _write(self, packet):
        place, qp = self._place(packet), self.qp
        if place is None:
            return False
        last = not packet.flags & Flag.MORE
        if last and qp.cq.space <= 0:
            self.counts["cq_full"] += 1
            self._refuse(packet, NackReason.NO_MEMORY)
            return False
        region, offset = place
        region.data[offset:offset + packet.length] = packet.payload
        qp.message_bytes += packet.length
        if last:
            qp.cq.push(Completion(0, qp.message_bytes, WCStatus.SUCCESS, Opcode.WRITE))
            qp.message_bytes = 0
        self._answer(packet, Opcode.ACK)
        return True

    def _read(self, packet):
        place = self._place(packet)
        if place is None:
            return False
        if packet.length > self.payload_max:
            return bool(self._refuse(packet, NackReason.BOUNDS))
        region, offset = place
        self._answer(packet, Opcode.READ_RESP, payload=bytes(region.data[offset:offset + packet.length]))
        return True

    def _refuse(self, packet, reason):
        self.counts[f"nack_{reason.name.lower()}"] += 1
        self._answer(packet, Opcode.NACK, flags=reason)

    def refuse_damaged(self, packet):
        """Drop a request with a wrong checksum, and ask for a retransmission."""
        self._refuse(packet, NackReason.CHECKSUM)

    def _answer(self, packet, opcode, *, flags=0, payload=b""):
        """Reply to a packet. A reply without space in the queue is dropped: the peer will repeat its request."""
        qp = self.qp
        self.transmit.send(Packet(
            opcode, qp.remote_mac, flags=flags, src_qp=qp.id, dst_qp=qp.remote_qp_num, seq=packet.seq,
            local_mr_id=packet.remote_mr_id, remote_mr_id=packet.local_mr_id, length=len(payload), payload=payload),
            reply=True)

    def forget(self):
        """Free the buffers of the out-of-order queue of a destroyed QP."""
        for _ in self.qp.ooo_queue:
            self.buffers.release()
        self.qp.ooo_queue.clear()
