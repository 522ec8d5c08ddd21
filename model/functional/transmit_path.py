"""The transmit path of the functional card: one frame at a time at the line's rate."""

from weft.hdl import abi, wire

from .translate import CAN_SEND, Request, translate
from .transmit import work_packets

Reason, ReportKind, Ring = abi.Reason, abi.ReportKind, abi.Ring
WIRE_OVERHEAD_BYTES = 24  # FCS, preamble, gap


class TransmitPath:
    """Raw frames first, then retransmissions, then new work.

    Parameters
    ----------
    card : FunctionalCard
    """

    def __init__(self, card):
        self.card = card
        self._now = {}   # ring -> iterator over the frames of the descriptor in work
        self._running = False

    def start(self):
        """Look at the rings, unless that is going on."""
        if not self._running:
            self._running = True
            self.card.loop.call_in(0, self._transmit)

    def _transmit(self):
        if self.card.transmit_path is not self:
            return   # the card was reset
        for ring in (Ring.NIC_TX, Ring.RETRANSMIT, Ring.SEND):
            if ring not in self._now:
                entry = self.card.rings.peek(ring)
                if entry is None:
                    continue
                self._now[ring] = self._raw_frames(entry) if ring is Ring.NIC_TX else self._work_frames(entry)
            frame = next(self._now[ring], None)
            if frame is None:
                del self._now[ring]
                self.card.rings.finish(ring)
                self.card.loop.call_in(0, self._transmit)
                return
            self.card.send_frame(frame)
            self.card.loop.call_in(
                (max(len(frame), wire.MIN_FRAME_BYTES) + WIRE_OVERHEAD_BYTES) * 8 / self.card.line_gbps, self._transmit
            )
            return
        self._running = False

    def _raw_frames(self, entry):
        entry = abi.NIC_TX.unpack(entry)
        if not wire.ETH.size_bytes <= entry.length <= 9216:
            self.card.refuse(Reason.BAD_DESCRIPTOR)
            return
        self.card.counters["tx_raw_frames"] += 1
        yield self.card.memory.read(entry.address, entry.length).ljust(wire.MIN_FRAME_BYTES, b"\0")

    def _work_frames(self, entry):
        for packet, segments in self.packets(entry):
            payload = b"".join(self.card.memory.read(address, n) for address, n in segments)
            self.count(packet)
            yield packet.frame(payload, src_mac=self.card.mac, src_ip=self.card.ip)

    def packets(self, entry):
        """Packets of a WORK descriptor and the physical pieces of their payload, until one must not be sent."""
        work = abi.WORK.unpack(entry)
        if work.pmtu not in wire.PMTUS or not isinstance(work.opcode, abi.WorkOpcode):
            self._tx_error(work, Reason.BAD_DESCRIPTOR)
            return
        yield from self.checked(work, work_packets(work))

    def checked(self, work, packets):
        """Packets of a work and the pieces of their payload, until one must not be sent."""
        for packet in packets:
            result = translate(
                self.card.tables.qps,
                self.card.tables.mrs,
                self.card.tables.ptes,
                Request(work.lkey, packet.local_va, packet.length, 0, work.sqpn, CAN_SEND),
            )
            if result.reason is not Reason.OK:
                self._tx_error(work, result.reason)
                return
            yield packet, result.segments

    def count(self, packet):
        """A packet is sent."""
        counters = self.card.counters
        counters["tx_packets"] += 1
        counters["tx_retransmissions"] += packet.work.retransmit
        counters["tx_bytes"] += packet.length

    def _tx_error(self, work, reason):
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
