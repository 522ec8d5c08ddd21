"""Transmit path of the functional card: one frame at a time at the line rate."""

from weft.driver.device.attached import MemoryFault
from weft.hdl.contract import abi, wire

from .data_frame import addresses, work_frames
from .pacer import PacedDescriptor
from .rings import BadEntry
from .translate import CAN_SEND, NO_QP, Request, check_qp, locate

Reason, ReportKind, Ring = abi.Reason, abi.ReportKind, abi.Ring
RAW = Ring.NIC_TX
ORDER = RAW, Ring.RETRANSMIT, Ring.SEND
_OK = Reason.OK     # each access to a member of an enum takes time
PACED_AT, PACED_BIT = abi.WORK.offset_of("paced") // 8, 1 << abi.WORK.offset_of("paced") % 8


class TransmitPath:
    """Transmit path: raw frames first, then retransmissions, then new work.

    A descriptor for the pacer leaves its ring for the pool at once. Packets that the pacer lets go, retransmissions and
    new data alike, alternate with new work.

    Parameters
    ----------
    card : FunctionalCard
    """

    def __init__(self, card):
        self.card = card
        self._now = {}   # ring -> iterator over the frames of the current descriptor
        self._kept = {}  # ring -> its newest INLINE_DATA or NIC_TX_DATA, unpacked, if that was its newest descriptor
        self._running = False
        self._paced_turn = True     # a paced packet precedes new work
        self._wakes_at = None       # time of the next call of start() for the pacer

    def start(self):
        """Start to process the rings, unless this is in progress."""
        if not self._running:
            self._running = True
            self.card.loop.call_in(0, self._transmit)

    def _transmit(self):
        card, rings, current = self.card, self.card.rings, self._now
        if card.transmit_path is not self:
            return   # the card was reset
        prod, cons = rings.prod, rings.cons
        for ring in ORDER:
            frames = current.get(ring)
            if frames is None:
                if prod[ring] == cons[ring] or (entry := rings.peek(ring)) is None:
                    continue
                if ring is not RAW and entry[PACED_AT] & PACED_BIT and self.pool(entry, ring):
                    rings.finish(ring)
                    card.loop.call_in(0, self._transmit)
                    return
            if ring is not RAW and self._paced_turn and card.pacer is not None and self._send_paced():
                return
            if frames is None:
                frames = current[ring] = self._raw_frames(entry) if ring is RAW else self._work_frames(entry, ring)
            frame = next(frames, None)
            if frame is None:
                del current[ring]
                rings.finish(ring)
                card.loop.call_in(0, self._transmit)
                return
            self._paced_turn = True
            card.send_frame(frame)
            card.loop.call_in(wire.line_bytes(len(frame)) * 8 / card.line_gbps, self._transmit)
            return
        self._running = card.pacer is not None and self._send_paced()

    # ------------------------------------------------------------------------------------------ the pacer

    def pool(self, entry, ring, ready=0.0):
        """Move a descriptor with ``paced`` to the pool of the pacer, or reject it; return false if it is not for it.

        Its packets leave from the time ``ready`` on.

        Raises
        ------
        BadEntry
            If the pool is full and the card checks its driver.
        """
        pacer, work = self.card.pacer, abi.WORK.unpack(entry)
        if pacer is None or work.inline or work.opcode not in abi.WRITES:
            return False
        self._kept.pop(ring, None)
        if work.pmtu not in wire.PMTUS:
            self._tx_error(work, Reason.BAD_DESCRIPTOR)
            return True
        total = wire.packet_count(work.remote_va, work.length, wire.PMTUS[work.pmtu])
        if not pacer.add(PacedDescriptor(work, ring is Ring.RETRANSMIT, total, self._checked(work)),
                         max(ready, self.card.loop.now_ns)):
            if self.card.checks_driver:
                raise BadEntry(Reason.BAD_DESCRIPTOR, f"all {pacer.size} descriptors of the pacer are in use")
            self._tx_error(work, Reason.BAD_DESCRIPTOR)
        return True

    def paced_packet(self):
        """Return (descriptor, frame, segments) of the packet that the pacer lets go now, or None if it is rejected."""
        pacer = self.card.pacer
        descriptor = pacer.take()
        frame, segments = next(descriptor.packets, (None, ()))
        if frame is None or not self.load(frame, segments):
            return None
        pacer.sent(descriptor, frame.length, self.card.loop.now_ns)
        return descriptor, frame, segments

    def paced_report(self, descriptor):
        """Report that the last packet of a descriptor is on its way."""
        work, entry = descriptor.work, self.card.tables.qps.get(descriptor.qpn)
        self.card.report(abi.REPORT_EVENT.pack(
            kind=ReportKind.PACED, qpn=work.sqpn,
            generation=entry.generation % (1 << abi.GENERATION_BITS) if entry else 0, psn=descriptor.psn,
            retransmission=int(descriptor.again), time_ns=int(self.card.loop.now_ns)))

    def _send_paced(self):
        """Send the packet that the pacer lets go now; return false if there is none, and wake up for the next one."""
        card = self.card
        due, now = card.pacer.due if card.enabled else None, card.loop.now_ns
        if due is None or due > now:
            if due is not None and (self._wakes_at is None or self._wakes_at <= now or due < self._wakes_at):
                self._wakes_at = due
                card.loop.call_at(due, self.start)
            return False
        self._paced_turn, taken = False, self.paced_packet()
        if taken is None:
            card.loop.call_in(0, self._transmit)
            return True
        descriptor, frame, _ = taken
        card.send_frame(frame)
        line_ns = wire.line_bytes(len(frame)) * 8 / card.line_gbps
        if descriptor.number == descriptor.total:
            card.loop.call_in(line_ns, self._paced_done, descriptor)
        card.loop.call_in(line_ns, self._transmit)
        return True

    def _paced_done(self, descriptor):
        if self.card.transmit_path is self:
            self.paced_report(descriptor)

    # ----------------------------------------------------------------------------------- descriptors of a ring

    def _raw_frames(self, entry):
        """Return an iterator of the frame of a descriptor; it has none if that is rejected or a NIC_TX_DATA."""
        opcode, kept = abi.NIC_TX.unpack(entry).opcode, self._kept.pop(RAW, None)
        if opcode == abi.NicTxOpcode.DATA and self.card.params.inline_bytes:
            self._kept[RAW] = abi.NIC_TX_DATA.unpack(entry)
            return
        if opcode == abi.NicTxOpcode.INLINE and self.card.params.inline_bytes:
            reason, frame = self._inline_frame(abi.NIC_TX_INLINE.unpack(entry), kept)
        else:
            reason, frame = self._frame_in_memory(abi.NIC_TX.unpack(entry))
        if reason is not _OK:
            self.card.refuse(reason)
            return
        self.card.counters["tx_raw_frames"] += 1
        yield frame.ljust(wire.MIN_FRAME_BYTES, b"\0")

    def _frame_in_memory(self, found):
        """Return (reason, frame) of an unpacked NIC_TX."""
        if found.opcode != abi.NicTxOpcode.FRAME or not wire.ETH.size_bytes <= found.length <= abi.FRAME_MAX:
            return Reason.BAD_DESCRIPTOR, b""
        try:
            return _OK, self.card.memory.read(found.address, found.length)
        except MemoryFault:
            return Reason.DMA_ERROR, b""

    def _inline_frame(self, found, kept):
        """Return (reason, frame) of an unpacked NIC_TX_INLINE and the NIC_TX_DATA that came before it, or None."""
        if not wire.ETH.size_bytes <= found.length <= abi.FRAME_INLINE_MAX:
            return Reason.BAD_DESCRIPTOR, b""
        frame = found.data.to_bytes(abi.FRAME_HEAD_BYTES, "little")
        if found.length > abi.FRAME_HEAD_BYTES:
            if kept is None or kept.number != found.number:
                return Reason.BAD_DESCRIPTOR, b""
            frame += kept.data.to_bytes(abi.FRAME_INLINE_MAX - abi.FRAME_HEAD_BYTES, "little")
        return _OK, frame[:found.length]

    def _work_frames(self, entry, ring):
        for frame, segments in self.packets(entry, ring):
            if not self.load(frame, segments):
                return
            yield frame

    def packets(self, entry, ring):
        """Return an iterator of the frames of a descriptor, not loaded, and their physical pieces, until an error."""
        work, kept, inline_max = abi.WORK.unpack(entry), self._kept.pop(ring, None), self.card.params.inline_bytes
        if work.opcode is abi.WorkOpcode.INLINE_DATA and inline_max:
            self._kept[ring] = abi.INLINE_DATA.unpack(entry)
            return iter(())
        if (work.pmtu not in wire.PMTUS or work.opcode not in abi.WRITES
                or work.inline and work.length > inline_max or work.paced):
            self._tx_error(work, Reason.BAD_DESCRIPTOR)
            return iter(())
        if work.inline:
            work.data = abi.WORK_INLINE.unpack(entry).data.to_bytes(abi.INLINE_HEAD_BYTES, "little")
            if work.length > abi.INLINE_HEAD_BYTES:
                if kept is None or (kept.sqpn, kept.psn) != (work.sqpn, work.psn):
                    return iter(())     # the descriptor with the rest of its payload was lost
                work.data += kept.data.to_bytes(abi.INLINE_MAX - abi.INLINE_HEAD_BYTES, "little")
        return self._checked(work)

    def _checked(self, work):
        """Yield the frames of an unpacked descriptor with the physical pieces of their payload, until an error."""
        work.ahead, work.ahead_at = b"", 0      # payload that was read ahead, and its address
        tables, request = self.card.tables, Request(work.lkey, 0, 0, 0, work.sqpn, CAN_SEND)
        for frame in work_frames(work):
            request.va, request.length = frame.local_va, 0 if work.inline else frame.length
            qp = tables.qps.get(work.sqpn, NO_QP)
            reason, segments = check_qp(qp, request), ()
            if reason is _OK:
                reason, segments = locate(qp, tables.mrs, tables.ptes, request)
            if reason is not _OK:
                self._tx_error(work, reason)
                return
            yield frame, segments

    def _payload(self, frame, segments):
        """Return the payload of a frame: bytes that were read ahead for its descriptor, or from memory."""
        work, parts = frame.work, []
        left = work.local_va + work.length - frame.local_va     # to the end of the descriptor
        for address, n in segments:
            at = address - work.ahead_at
            if not 0 <= at <= len(work.ahead) - n:
                work.ahead, work.ahead_at, at = self.card.memory.read_ahead(address, n, left), address, 0
            parts.append(work.ahead[at:at + n])
            left -= n
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def load(self, frame, segments):
        """Set payload and sender of a frame and count it; return false if the payload cannot be read: that is reported.
        """
        card, work = self.card, frame.work
        if work.inline:
            frame.payload = work.data[:frame.length]
        else:
            try:
                frame.payload = self._payload(frame, segments)
            except MemoryFault:
                self._tx_error(work, Reason.DMA_ERROR)
                return False
        frame.addresses, frame.src_ip = addresses(work.dst_mac, card.mac), card.ip
        counters = card.counters
        counters["tx_packets"] += 1
        counters["tx_retransmissions"] += frame.retransmission
        counters["tx_bytes"] += frame.length
        return True

    def _tx_error(self, work, reason):
        if work.paced and self.card.pacer is not None:
            self.card.pacer.flush(work.sqpn)
        self.card.refuse(reason)
        entry = self.card.tables.qps.get(work.sqpn)
        self.card.report(
            abi.REPORT_EVENT.pack(
                kind=ReportKind.TX_ERROR,
                reason=reason,
                qpn=work.sqpn,
                generation=entry.generation % (1 << abi.GENERATION_BITS) if entry else 0,
                psn=work.psn,
                va=work.local_va,
                key=work.lkey,
                length=work.length,
            )
        )
