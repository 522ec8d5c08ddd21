"""The peer's requests at a QP: in order, once, answered each by itself (document: "Reception Path", "Out-of-Order
Handling")."""

from ...terms.enums import AccessFlag, WCStatus
from .completion import Completion
from .packet import SEQ_BITS, Flag, NackReason, Opcode, Packet, seq_distance
from .qp import MAX_INFLIGHT, MAX_OOO

_NEEDED = {Opcode.WRITE: AccessFlag.REMOTE_WRITE, Opcode.READ: AccessFlag.REMOTE_READ}


class Responder:
    """Carries out the peer's requests.

    A packet with the expected sequence number is carried out; one that came too early waits in the out-of-order
    queue; one that was carried out before is answered again: a WRITE by its ACK alone, a READ by what is in memory
    now. A refused packet is not passed: nothing behind it is ever carried out.

    Parameters
    ----------
    qp : QueuePair
    regions : RegionTable
    transmit : TransmitQueue
    buffers : BufferPool
        Each packet of the out-of-order queue has one.
    counts : Counter
    payload_max : int
        Most that a READ gets.
    """

    def __init__(self, qp, regions, transmit, buffers, counts, payload_max):
        self.qp, self.regions, self.transmit, self.buffers, self.counts = qp, regions, transmit, buffers, counts
        self.payload_max = payload_max

    def on_request(self, packet):
        """A WRITE or a READ of the peer."""
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
                self.buffers.give()

    def _carry_out(self, packet):
        return self._write(packet) if packet.opcode is Opcode.WRITE else self._read(packet)

    def _place(self, packet):
        """(region, offset) of what a packet is about; None if it was refused."""
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
        if last and qp.cq.room <= 0:
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
        """A request of the peer had a wrong checksum: it is dropped, and asked for again."""
        self._refuse(packet, NackReason.CHECKSUM)

    def _answer(self, packet, opcode, *, flags=0, payload=b""):
        """Reply to a packet. A reply that finds no place is lost: the peer will ask again."""
        qp = self.qp
        self.transmit.send(Packet(
            opcode, qp.remote_mac, flags=flags, src_qp=qp.id, dst_qp=qp.remote_qp_num, seq=packet.seq,
            local_mr_id=packet.remote_mr_id, remote_mr_id=packet.local_mr_id, length=len(payload), payload=payload),
            reply=True)

    def forget(self):
        """The QP is gone: give back what waits out of order."""
        for _ in self.qp.ooo_queue:
            self.buffers.give()
        self.qp.ooo_queue.clear()
