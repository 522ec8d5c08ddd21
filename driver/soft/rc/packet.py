"""RoCEv2 packets of reliable connections: parsing and construction (IBTA 1.7, chapter 9.2 and annex A17)."""

import bisect
import enum
from dataclasses import dataclass

from weft.hdl.contract import wire

from .opcodes import EXTENSIONS, WITHOUT_PAYLOAD, RcOpcode

PKEY_MASK = 0x7FFF
CREDITS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
           6144, 8192, 12288, 16384, 24576, 32768)
UNLIMITED = int(wire.Syndrome.ACK)   # code 31: the field is not valid


class Fault(enum.Enum):
    """Error of a received frame."""

    FOREIGN = "not RoCEv2"
    OTHER_HOST = "for another address"
    TRUNCATED = "shorter than its length field"
    LENGTH = "lengths that do not agree"
    ICRC = "wrong ICRC"
    HEADER = "wrong IP checksum, version or partition"
    OPCODE = "no opcode of a reliable connection"


class BadPacket(Exception):
    """Frame that is not a valid packet for this host."""

    def __init__(self, fault):
        super().__init__(fault.value)
        self.fault = fault


@dataclass(slots=True)
class RcPacket:
    """Packet; header fields that its opcode does not have are zero."""

    opcode: RcOpcode
    dest_qp: int
    psn: int
    ack_req: int = 0
    payload: bytes = b""
    src_ip: int = 0
    va: int = 0
    rkey: int = 0
    dma_length: int = 0
    imm: int = 0
    syndrome: int = 0
    msn: int = 0
    swap_add: int = 0
    compare: int = 0
    original: int = 0
    ce: bool = False


@dataclass(frozen=True)
class Addresses:
    """Destination and source of the packets of a connection; ``mac`` is that of the next hop."""

    mac: int
    ip: int
    own_mac: int
    own_ip: int
    sport: int


def build(packet, to):
    """Return the frame of an :class:`RcPacket`, without FCS."""
    extensions = b"".join(
        header.pack(**{field.name: getattr(packet, field.name) for field in header.fields
                       if not field.name.startswith("_")})
        for header in EXTENSIONS[packet.opcode])
    return wire.build_frame(
        opcode=packet.opcode, dst_mac=to.mac, src_mac=to.own_mac, src_ip=to.own_ip, dst_ip=to.ip, sport=to.sport,
        dest_qp=packet.dest_qp, psn=packet.psn, ack_req=packet.ack_req, payload=packet.payload, extensions=extensions)


def parse(frame, mac, ip):
    """Return the :class:`RcPacket` of a frame that was received at these addresses.

    Raises
    ------
    BadPacket
    """
    if len(frame) < wire.RETH_OFFSET + wire.ICRC_BYTES:
        raise BadPacket(Fault.FOREIGN)
    eth = wire.ETH.unpack(frame)
    ipv4 = wire.IPV4.unpack(frame[wire.ETH.size_bytes:])
    udp = wire.UDP.unpack(frame[wire.ETH.size_bytes + wire.IPV4.size_bytes:])
    if (eth.ethertype != wire.ETHERTYPE_IPV4 or ipv4.version != 4 or ipv4.ihl != 5 or ipv4.fragment or ipv4.flags & 1
            or ipv4.protocol != wire.IP_PROTO_UDP or udp.dport != wire.ROCE_UDP_PORT):
        raise BadPacket(Fault.FOREIGN)
    if (eth.dst, ipv4.dst) != (mac, ip):
        raise BadPacket(Fault.OTHER_HOST)
    end = wire.ETH.size_bytes + ipv4.total_length
    if end > len(frame):
        raise BadPacket(Fault.TRUNCATED)
    if len(frame) > max(end, wire.MIN_FRAME_BYTES) or udp.length + wire.IPV4.size_bytes != ipv4.total_length:
        raise BadPacket(Fault.LENGTH)
    frame = frame[:end]
    if end < wire.RETH_OFFSET + wire.ICRC_BYTES:
        raise BadPacket(Fault.TRUNCATED)
    if wire.icrc(frame[:-wire.ICRC_BYTES]) != frame[-wire.ICRC_BYTES:]:
        raise BadPacket(Fault.ICRC)
    bth = wire.BTH.unpack(frame[wire.BTH_OFFSET:])
    if (bth.version or bth.pkey & PKEY_MASK != PKEY_MASK
            or wire.ipv4_checksum(frame[wire.ETH.size_bytes:][:wire.IPV4.size_bytes])):
        raise BadPacket(Fault.HEADER)
    packet = _parse_transport(frame, bth, ipv4.src)
    packet.ce = ipv4.tos & wire.ECN_MASK == wire.CE
    return packet


def _parse_transport(frame, bth, src_ip):
    try:
        opcode = RcOpcode(bth.opcode)
    except ValueError:
        raise BadPacket(Fault.OPCODE) from None
    at, end = wire.RETH_OFFSET, len(frame) - wire.ICRC_BYTES - bth.pad_count
    packet = RcPacket(opcode, bth.dest_qp, bth.psn, bth.ack_req, src_ip=src_ip)
    for header in EXTENSIONS[opcode]:
        if at + header.size_bytes > end:
            raise BadPacket(Fault.TRUNCATED)
        for name, value in vars(header.unpack(frame[at:])).items():
            setattr(packet, name, int(value))
        at += header.size_bytes
    if at > end or (end + bth.pad_count - at) % 4 or opcode in WITHOUT_PAYLOAD and (at != end or bth.pad_count):
        raise BadPacket(Fault.LENGTH)
    packet.payload = bytes(frame[at:end])
    return packet


def credit_code(count):
    """Return the syndrome of an ACK for ``count`` receives, or for the next lower number that has a code.

    IBTA 1.7, chapter 9.7.7.2 and table 45.
    """
    return bisect.bisect_right(CREDITS, count) - 1


def credit_count(syndrome):
    """Return the number of receives in the syndrome of an ACK, or None if it has none."""
    return None if syndrome == UNLIMITED else CREDITS[syndrome]
