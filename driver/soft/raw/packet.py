"""Packet of the document: an Ethernet header, a header of 40 bytes, payload ("Packet Format Design").

The document draws 40 bytes and lists fields of 34. Here the listed fields are in the order of the list, all in network
byte order as in the document's code. Six bytes follow: two zeros, and the checksum that the document's table of errors
mentions. The opcodes above ACK have no number in the document.
"""

import enum
import zlib
from dataclasses import dataclass

from weft.hdl.contract import wire
from weft.hdl.contract.layout import Field, Layout

ETHTYPE_RDMA = 0x8915
BROADCAST = (1 << 48) - 1
SEQ_BITS = 32


class Opcode(enum.IntEnum):
    """Kind of a packet."""

    WRITE = 0x01
    READ = 0x02
    READ_RESP = 0x03
    ACK = 0x04
    NACK = 0x05
    DISCOVER = 0x06
    DISCOVER_REPLY = 0x07
    PING = 0x08
    PONG = 0x09


class Flag(enum.IntFlag):
    """Flags of a WRITE or a READ."""

    MORE = 1    # not the last packet of its request


class NackReason(enum.IntEnum):
    """Reason of a NACK, in its flags."""

    CHECKSUM = 1
    INVALID_MR = 2
    ACCESS = 3
    BOUNDS = 4
    NO_MEMORY = 5


REQUESTS = frozenset({Opcode.WRITE, Opcode.READ})
REPLIES = frozenset({Opcode.READ_RESP, Opcode.ACK, Opcode.NACK})
WITH_PAYLOAD = frozenset({Opcode.WRITE, Opcode.READ_RESP, Opcode.PING, Opcode.PONG})

HEADER = Layout("RDMA", "Header after the Ethernet header of a packet of EtherType 0x8915.", [
    Field("opcode", 8, "", Opcode), Field("flags", 8, "Flag of a request, NackReason of a NACK."),
    Field("src_qp", 16, "QP that sent it."), Field("dst_qp", 16, "QP it is for; of DISCOVER: that is looked for."),
    Field("seq", 32, "Sequence number; of a reply, of what it answers; of DISCOVER and PING, their number."),
    Field("local_mr_id", 32, "MR of the sender."), Field("remote_mr_id", 32, "MR of the receiver."),
    Field("remote_addr", 64, "Address in the remote MR, or offset if it is below its first address."),
    Field("length", 32, "Bytes of payload; of a READ: bytes requested."),
    Field("remote_key", 32, "Key of the remote MR."),
    Field("_pad", 16), Field("checksum", 32, "CRC-32 (zlib) of header and payload with this field zero."),
], size_bytes=40, byteorder="big")

PAYLOAD_OFFSET = wire.ETH.size_bytes + HEADER.size_bytes
_CHECKSUM_AT = PAYLOAD_OFFSET - 4


class Fault(enum.Enum):
    """Error of a received frame."""

    FOREIGN = "other EtherType"
    TRUNCATED = "shorter than its length field"
    LENGTH = "longer than its length field"
    OPCODE = "unknown opcode"
    CHECKSUM = "wrong checksum"


class BadPacket(Exception):
    """Frame that is not a valid packet; with a wrong checksum, ``packet`` holds its fields, which may be corrupted."""

    def __init__(self, fault, packet=None):
        super().__init__(fault.value)
        self.fault, self.packet = fault, packet


@dataclass(slots=True)
class Packet:
    """Packet; the fields are those of :data:`HEADER`."""

    opcode: Opcode
    dst_mac: int = 0
    src_mac: int = 0
    flags: int = 0
    src_qp: int = 0
    dst_qp: int = 0
    seq: int = 0
    local_mr_id: int = 0
    remote_mr_id: int = 0
    remote_addr: int = 0
    length: int = 0
    remote_key: int = 0
    payload: bytes = b""


def build(packet):
    """Return the frame of a packet, without FCS, padded to the smallest length of a frame.

    Raises
    ------
    ValueError
        If a value does not fit its field.
    """
    header = HEADER.pack(opcode=packet.opcode, flags=packet.flags, src_qp=packet.src_qp, dst_qp=packet.dst_qp,
                         seq=packet.seq, local_mr_id=packet.local_mr_id, remote_mr_id=packet.remote_mr_id,
                         remote_addr=packet.remote_addr, length=packet.length, remote_key=packet.remote_key)
    checksum = zlib.crc32(packet.payload, zlib.crc32(header))
    eth = wire.ETH.pack(dst=packet.dst_mac, src=packet.src_mac, ethertype=ETHTYPE_RDMA)
    frame = eth + header[:-4] + checksum.to_bytes(4, "big") + packet.payload
    return frame.ljust(wire.MIN_FRAME_BYTES, b"\0")


def parse(frame):
    """Return the :class:`Packet` of a frame.

    Raises
    ------
    BadPacket
    """
    if len(frame) < wire.ETH.size_bytes:
        raise BadPacket(Fault.FOREIGN)
    eth = wire.ETH.unpack(frame)
    if eth.ethertype != ETHTYPE_RDMA:
        raise BadPacket(Fault.FOREIGN)
    if len(frame) < PAYLOAD_OFFSET:
        raise BadPacket(Fault.TRUNCATED)
    fields = vars(HEADER.unpack(frame[wire.ETH.size_bytes:PAYLOAD_OFFSET]))
    checksum, opcode = fields.pop("checksum"), fields["opcode"]
    if not isinstance(opcode, Opcode):
        raise BadPacket(Fault.OPCODE)
    end = PAYLOAD_OFFSET + (fields["length"] if opcode in WITH_PAYLOAD else 0)
    if end > len(frame):
        raise BadPacket(Fault.TRUNCATED)
    if len(frame) > max(end, wire.MIN_FRAME_BYTES):
        raise BadPacket(Fault.LENGTH)
    packet = Packet(**fields, dst_mac=eth.dst, src_mac=eth.src, payload=bytes(frame[PAYLOAD_OFFSET:end]))
    covered = frame[wire.ETH.size_bytes:_CHECKSUM_AT] + bytes(4)
    if zlib.crc32(packet.payload, zlib.crc32(covered)) != checksum:
        raise BadPacket(Fault.CHECKSUM, packet)
    return packet


def seq_distance(seq, reference):
    """Return the signed distance of two sequence numbers, −2^31 to 2^31 − 1."""
    half = 1 << SEQ_BITS - 1
    return (seq - reference + half) % (1 << SEQ_BITS) - half
