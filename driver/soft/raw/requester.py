"""Requester of a QP: packets out, answers in, time-outs.

Document: "Transmission Path", "Timeout and Retransmission", "Batch Processing".
"""

import math

from ...terms.enums import WCStatus
from .packet import SEQ_BITS, Flag, NackReason, Opcode, Packet, seq_distance
from .qp import MAX_INFLIGHT, MAX_NOT_READY, MAX_RETRIES, Completion, Inflight, State, Work

MAX_BATCH_SIZE = 32
_REFUSALS = frozenset({NackReason.INVALID_MR, NackReason.ACCESS, NackReason.BOUNDS})


class Requester:
    """Sends the requests of a QP.

    Each packet has a sequence number and a separate answer: an ACK for a WRITE, a READ_RESP for a READ, or a NACK. A
    READ packet requests no more data than one packet holds. Requests complete in the order in which they were posted.
    When one fails, earlier ones still complete; later ones are flushed, and the QP goes to ERROR.

    Parameters
    ----------
    qp : QueuePair
    regions : RegionTable
    transmit : TransmitQueue
    counts : Counter
    payload_max : int
        Largest payload of a packet in bytes.
    """

    def __init__(self, qp, regions, transmit, counts, payload_max):
        self.qp, self.regions, self.transmit, self.counts = qp, regions, transmit, counts
        self.payload_max = payload_max
        self._failing = False

    def process(self, now):
        """Do everything that is due.

        Returns
        -------
        float
            Latest time of the next call. Call also after a request was posted, an answer arrived, or a frame left the
            transmit queue.
        """
        qp = self.qp
        if now < qp.due:
            return qp.due
        self.check_timeouts(now)
        if self.send_batch(now):
            return now
        if self.transmit.full():
            return math.inf
        qp.due = min((entry.send_time for entry in qp.inflight.values()), default=math.inf) + qp.timeout_ns
        return qp.due

    # ------------------------------------------------------------------------------------ sending

    def send_batch(self, now):
        """Send packets of posted requests, at most a batch; return true if more could be sent."""
        if self.qp.state is State.ERROR:
            self.flush()
            return False
        for _ in range(MAX_BATCH_SIZE):
            work = None if self._failing else self._present()
            if work is None or not self._space():
                return False
            self._send_next(work, now)
        self.counts["full_batches"] += 1
        return True

    def _present(self):
        """Return the request that has the next packet, or None."""
        qp = self.qp
        if qp.works and not qp.works[-1].whole:
            return qp.works[-1]
        if not qp.sq:
            return None
        work = Work(qp.sq.popleft())
        qp.works.append(work)
        work.region = self.regions.get(work.wr.local_mr_id)
        if work.region is None or work.wr.local_offset + work.wr.length > len(work.region.data):
            work.region = None
            self._fail(work, WCStatus.LOC_PROT_ERR)
            return None
        work.region.uses += 1
        return work

    def _space(self):
        """Return true if the window and the transmit queue have space for another packet."""
        inflight = self.qp.inflight
        if inflight and seq_distance(self.qp.tx_seq, next(iter(inflight))) >= MAX_INFLIGHT:
            self.counts["inflight_full"] += 1
            return False
        if why := self.transmit.full():
            self.counts[why] += 1
            return False
        return True

    def _send_next(self, work, now):
        """Assign a sequence number to the next packet of a request, and send it."""
        qp, length = self.qp, min(self.payload_max, work.wr.length - work.built)
        entry = Inflight(qp.tx_seq, now, work, work.built, length)
        qp.tx_seq = (qp.tx_seq + 1) % (1 << SEQ_BITS)
        qp.inflight[entry.seq] = entry
        work.built += length
        work.waiting += 1
        work.started, work.whole = True, work.built == work.wr.length
        qp.confirm()
        self._transmit(entry)

    def _transmit(self, entry):
        """Send a packet (the document's ``rdma_transmit_packet``)."""
        wr, qp = entry.work.wr, self.qp
        at = wr.local_offset + entry.offset
        more = entry.offset + entry.length < wr.length
        payload = bytes(entry.work.region.data[at:at + entry.length]) if wr.opcode is Opcode.WRITE else b""
        self.transmit.send(Packet(
            wr.opcode, qp.remote_mac, flags=Flag.MORE if more else 0, src_qp=qp.id, dst_qp=qp.remote_qp_num,
            seq=entry.seq, local_mr_id=wr.local_mr_id, remote_mr_id=wr.remote_mr_id,
            remote_addr=wr.remote_addr + entry.offset, length=entry.length, remote_key=wr.remote_key,
            payload=payload))

    # --------------------------------------------------------------------------------------- time

    def check_timeouts(self, now):
        """Retransmit packets whose answer is overdue (the document's ``rdma_timeout_handler``)."""
        for entry in list(self.qp.inflight.values()):
            if now - entry.send_time >= self.qp.timeout_ns and entry.seq in self.qp.inflight:
                if why := self.transmit.full():
                    self.counts[why] += 1
                    return
                self.counts["timeouts"] += 1
                if entry.excused:
                    entry.excused, entry.retries = False, entry.retries - 1
                self._again(entry, now)

    def _again(self, entry, now):
        if entry.retries >= MAX_RETRIES:
            self._fail(entry.work, WCStatus.RETRY_EXC_ERR)
            return
        entry.retries += 1
        entry.send_time = now
        self.counts["retransmissions"] += 1
        self._transmit(entry)

    # ---------------------------------------------------------------------------------- receiving

    def on_reply(self, packet, now):
        """Process an ACK, a NACK or a READ_RESP of the peer. An unexpected one is counted and dropped."""
        self.qp.due = 0
        entry = self.qp.inflight.get(packet.seq)
        if entry is None:
            self.counts["unasked_replies"] += 1
        elif packet.opcode is Opcode.NACK:
            self._refused(entry, packet.flags, now)
        else:
            self._answered(entry, packet)

    def _answered(self, entry, packet):
        work, wr = entry.work, entry.work.wr
        wanted, length = (Opcode.READ_RESP, entry.length) if wr.opcode is Opcode.READ else (Opcode.ACK, 0)
        if packet.opcode is not wanted or packet.length != length:
            self.counts["mismatched_replies"] += 1
            return
        if wr.opcode is Opcode.READ:
            at = wr.local_offset + entry.offset
            work.region.data[at:at + length] = packet.payload
        del self.qp.inflight[entry.seq]
        work.waiting -= 1
        self._complete_first()

    def _refused(self, entry, reason, now):
        if reason == NackReason.CHECKSUM:
            if not self.transmit.full():
                self._again(entry, now)
        elif reason == NackReason.NO_MEMORY:
            entry.not_ready += 1
            entry.send_time, entry.excused = now, True
            if entry.not_ready > MAX_NOT_READY:
                self._fail(entry.work, WCStatus.RNR_RETRY_EXC_ERR)
        elif reason in _REFUSALS:
            self._fail(entry.work, WCStatus.REM_ACCESS_ERR)
        else:
            self.counts["mismatched_replies"] += 1

    # --------------------------------------------------------------------------------- completion

    def _fail(self, work, status):
        """Mark a request as failed, and stop sending it and the later ones."""
        works = list(self.qp.works)
        given_up = works[works.index(work):]
        self.qp.inflight = {seq: e for seq, e in self.qp.inflight.items() if e.work not in given_up}
        work.status, self._failing = status, True
        self._complete_first()

    def _complete_first(self):
        """Complete the oldest requests that have ended, in order."""
        works = self.qp.works
        while works:
            work = works[0]
            if work.status is not WCStatus.SUCCESS:
                self._complete(works.popleft(), work.status)
                self.qp.enter(State.ERROR)
                self.flush()
            elif work.whole and not work.waiting:
                self._complete(works.popleft(), WCStatus.SUCCESS)
            else:
                return

    def flush(self):
        """Complete all requests with WR_FLUSH_ERR; the QP is in ERROR."""
        self.qp.inflight.clear()
        while self.qp.works:
            self._complete(self.qp.works.popleft(), WCStatus.WR_FLUSH_ERR)
        while self.qp.sq:
            self._complete(Work(self.qp.sq.popleft()), WCStatus.WR_FLUSH_ERR)

    def _complete(self, work, status):
        if work.region is not None:
            work.region.uses -= 1
        length = work.wr.length if status is WCStatus.SUCCESS else 0
        self.qp.cq.push(Completion(work.wr.wr_id, length, status, work.wr.opcode), reserved=True)
