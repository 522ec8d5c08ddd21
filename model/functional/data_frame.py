"""Data frame between two cards: the fields of its packet, converted to bytes only when needed."""

from functools import lru_cache

from weft.hdl.contract import wire

from .parse import RxHeader, is_host_qpn, parse

_AROUND = {opcode: wire.header_bytes(opcode) + wire.ICRC_BYTES for opcode in wire.DATA_OPCODES}     # bytes, no payload
_PSN_MASK, _RSN_MASK = (1 << wire.PSN_BITS) - 1, (1 << wire.RSN_BITS) - 1


@lru_cache(maxsize=4096)
def _addresses(dst_mac, src_mac):
    """Return the first bytes of a frame; the same few begin many frames."""
    return dst_mac.to_bytes(6, "big") + src_mac.to_bytes(6, "big")


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
        self._length = _AROUND[self.opcode] + packet.length + -packet.length % 4

    def __len__(self):
        return self._length

    @property
    def addresses(self):
        return _addresses(self.packet.work.dst_mac, self._source[0])

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
        header = RxHeader(
            "DATA", opcode=int(self.opcode), dest_qp=work.dqpn, psn=packet.psn & _PSN_MASK, va=packet.remote_va,
            rkey=work.rkey, dma_length=packet.length, length=packet.length, src_ip=self._source[1])
        if packet.last:
            header.ack_req = int(work.ack_req)
            if packet.with_imm:
                header.has_imm, header.imm = 1, work.imm
        if work.retransmit:
            header.retransmission, header.rsn = work.retransmit, packet.rsn & _RSN_MASK
        return header, self.payload
