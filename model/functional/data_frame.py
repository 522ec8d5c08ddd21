"""Data frame between two cards: the fields of its packet, converted to bytes only when needed."""

from weft.hdl.contract import wire

from .parse import RxHeader, is_host_qpn, parse


class DataFrame:
    """Packet of a WORK descriptor as a frame.

    ``len()`` returns the length of the frame; ``bytes()`` and subscripts build it. A card that receives the object uses
    :meth:`parsed` instead of :func:`~weft.model.functional.parse.parse`, with the same result.

    Parameters
    ----------
    packet : TxPacket
    payload : bytes
    card : FunctionalCard
        Sender.

    Attributes
    ----------
    opcode : wire.Opcode
    addresses : bytes
        Destination and source, as the frame begins.
    """

    __slots__ = ("_length", "_source", "opcode", "packet", "payload")

    def __init__(self, packet, payload, card):
        self.packet, self.payload, self._source = packet, payload, (card.mac, card.ip)
        self.opcode = packet.opcode
        self._length = wire.header_bytes(self.opcode) + packet.length + -packet.length % 4 + wire.ICRC_BYTES

    def __len__(self):
        return self._length

    @property
    def addresses(self):
        return self.packet.work.dst_mac.to_bytes(6, "big") + self._source[0].to_bytes(6, "big")

    def __getitem__(self, part):
        return bytes(self)[part]

    def __bytes__(self):
        mac, ip = self._source
        return self.packet.frame(self.payload, src_mac=mac, src_ip=ip)

    def parsed(self, mac, ip, host_qpns):
        """Return ``(RxHeader, payload)`` as a card with these addresses and host QPNs parses the frame."""
        packet = self.packet
        work = packet.work
        if is_host_qpn(host_qpns, work.dqpn) or mac not in (0, work.dst_mac) or ip not in (0, work.dst_ip):
            return parse(bytes(self), mac=mac, ip=ip, host_qpns=host_qpns)
        with_imm, retransmit = packet.with_imm, work.retransmit
        return RxHeader(
            "DATA", roce=0, opcode=int(self.opcode), dest_qp=work.dqpn, psn=packet.psn % (1 << wire.PSN_BITS),
            ack_req=int(packet.last and work.ack_req), retransmission=retransmit,
            rsn=packet.rsn % (1 << wire.RSN_BITS) if retransmit else 0, has_imm=int(with_imm),
            imm=work.imm if with_imm else 0, va=packet.remote_va, rkey=work.rkey, dma_length=packet.length,
            length=packet.length, src_ip=self._source[1]), self.payload
