"""An independent RoCEv2 decoder, written after the IBTA specification and not after the project.

It shares no code with :mod:`weft.hdl.contract.wire`, so that a mistake made there is not repeated here.
Standard library only. Byte offsets are those of the standards: Ethernet II, RFC 791, RFC 768, IBTA
1.7 chapter 9 and annex A17.
"""

import struct
from dataclasses import dataclass

MAX_PAYLOAD = 4096
ROCE_PORT = 4791
WRITE_ONLY, WRITE_ONLY_IMMEDIATE, ACKNOWLEDGE, CNP = 0x0A, 0x0B, 0x11, 0x81
# Manufacturer-specific opcodes of Weft: the extension headers of each, in order.
HEADERS = {
    WRITE_ONLY: ("reth",),
    WRITE_ONLY_IMMEDIATE: ("reth", "immdt"),
    ACKNOWLEDGE: ("aeth",),
    CNP: ("reserved",),
    0xC0: ("reth", "rsnh"),
    0xC1: ("reth", "rsnh", "immdt"),
    0xC2: ("rsnh",),
    0xC3: ("rsnh",),
    0xC4: ("rsnh",),
    0xC5: ("limh",),
}


class DecodeError(ValueError):
    """A frame violates the rules; the message names the rule."""


@dataclass
class Packet:
    """Fields of a RoCEv2 frame. Fields of absent headers are None."""

    dst_mac: int
    src_mac: int
    src_ip: int
    dst_ip: int
    sport: int
    tos: int
    ttl: int
    opcode: int
    solicited: int
    migreq: int
    pad_count: int
    pkey: int
    dest_qp: int
    ack_req: int
    psn: int
    payload: bytes
    icrc: bytes
    va: int | None = None
    rkey: int | None = None
    dma_length: int | None = None
    imm: int | None = None
    syndrome: int | None = None
    msn: int | None = None
    rsn: int | None = None
    limited: int | None = None
    serial: int | None = None


def crc32_bits(data):
    """Return the CRC-32 as specified: highest power first, each byte from its least significant bit."""
    register = 0xFFFF_FFFF
    for byte in data:
        for bit in range(8):
            top = register >> 31
            register = register << 1 & 0xFFFF_FFFF
            if top ^ (byte >> bit & 1):
                register ^= 0x04C1_1DB7
    return register ^ 0xFFFF_FFFF


_REVERSED = bytes(int(f"{n:08b}"[::-1], 2) for n in range(256))


def _table():
    """Return the remainder of each value of the register's top byte after eight shifts."""
    table = []
    for byte in range(256):
        register = byte << 24
        for _ in range(8):
            register = (register << 1 ^ (0x04C1_1DB7 if register >> 31 else 0)) & 0xFFFF_FFFF
        table.append(register)
    return table


_TABLE = _table()


def crc32_register(data):
    """Return the same as :func:`crc32_bits`, computed a byte at a time."""
    register = 0xFFFF_FFFF
    for byte in data:
        register = register << 8 & 0xFFFF_FFFF ^ _TABLE[register >> 24 ^ _REVERSED[byte]]
    return register ^ 0xFFFF_FFFF


def invariant_crc(datagram):
    """Return the ICRC bytes of an IPv4 datagram without its last four bytes (annex A17.3.3)."""
    copy = bytearray(datagram)
    transport = 4 * (copy[0] & 0xF)
    copy[1] = 0xFF                                # type of service
    copy[8] = 0xFF                                # time to live
    copy[10:12] = b"\xff\xff"                     # header checksum
    copy[transport + 6:transport + 8] = b"\xff\xff"  # UDP checksum
    copy[transport + 8 + 4] = 0xFF                # BTH: FECN, BECN, reserved
    register = crc32_register(b"\xff" * 8 + bytes(copy))
    # A byte is sent with the coefficient of its highest power in its least significant bit.
    return bytes(_REVERSED[b] for b in register.to_bytes(4, "big"))


def internet_sum(data):
    """Return the one's complement sum of 16-bit words (RFC 1071)."""
    total = 0
    for (word,) in struct.iter_unpack("!H", data):
        total += word
        total = (total & 0xFFFF) + (total >> 16)
    return total


def _need(condition, sentence):
    if not condition:
        raise DecodeError(sentence)


def is_roce(frame):
    """Return True if the frame is IPv4 UDP to the RoCEv2 port."""
    return (len(frame) >= 42 and frame[12:14] == b"\x08\x00" and frame[23] == 17
            and frame[36:38] == ROCE_PORT.to_bytes(2, "big"))


def decode(frame):
    """Return the :class:`Packet` in a frame from Ethernet header to ICRC, without FCS.

    Raises
    ------
    DecodeError
        Naming the first rule that the frame violates.
    """
    frame = bytes(frame)
    _need(len(frame) >= 14 + 20 + 8 + 12 + 4, f"{len(frame)} bytes are too short for a RoCEv2 frame")
    dst_mac, src_mac = int.from_bytes(frame[0:6], "big"), int.from_bytes(frame[6:12], "big")
    ethertype = int.from_bytes(frame[12:14], "big")
    _need(ethertype == 0x0800, f"EtherType {ethertype:#06x} is not IPv4")
    ip = frame[14:]
    _need(ip[0] == 0x45, f"first IP byte {ip[0]:#04x}: not version 4 without options")
    tos, total, _ident, fragment, ttl, protocol, _checksum, src_ip, dst_ip = struct.unpack_from("!xBHHHBBHII", ip)
    _need(internet_sum(ip[:20]) == 0xFFFF, "the IP header checksum is wrong")
    _need(fragment == 0x4000, f"IP fragment word {fragment:#06x}: not an unfragmentable whole")
    _need(ttl > 0, "the time to live is zero")
    _need(protocol == 17, f"IP protocol {protocol} is not UDP")
    _need(total == len(ip), f"IP total length {total}, but {len(ip)} bytes follow the Ethernet header")
    sport, dport, udp_length, udp_checksum = struct.unpack_from("!HHHH", ip, 20)
    _need(dport == ROCE_PORT, f"UDP port {dport} is not RoCEv2")
    _need(udp_length == total - 20, f"UDP length {udp_length}, IP has {total - 20}")
    _need(udp_checksum == 0, f"UDP checksum {udp_checksum:#06x}, RoCEv2 uses zero")
    icrc = ip[-4:]
    expected = invariant_crc(ip[:-4])
    _need(icrc == expected, f"ICRC {icrc.hex()}, computed {expected.hex()}")

    opcode, flags, pkey, resv8, dest_qp, ack, psn = struct.unpack_from("!BBHB3sB3s", ip, 28)
    _need(flags & 0xF == 0, f"BTH version {flags & 0xF} is not 0")
    _need(resv8 & 0x3F == 0, "reserved bits of the BTH are set")
    _need(resv8 == 0x40 or opcode != CNP, "a congestion notification without BECN")
    _need(ack & 0x7F == 0, "reserved bits beside the BTH's ack request are set")
    _need(opcode in HEADERS, f"BTH opcode {opcode:#04x} is not one the card sends")
    packet = Packet(
        dst_mac, src_mac, src_ip, dst_ip, sport, tos, ttl, opcode, flags >> 7, flags >> 6 & 1, flags >> 4 & 3, pkey,
        int.from_bytes(dest_qp, "big"), ack >> 7, int.from_bytes(psn, "big"), b"", icrc)
    body = ip[40:-4]
    for name in HEADERS[opcode]:
        body = _extension(packet, name, body)
    _need(len(body) % 4 == 0, f"{len(body)} bytes of payload and padding are not whole words")
    pad = packet.pad_count
    _need(len(body) >= pad, f"{pad} bytes of padding, but {len(body)} bytes after the headers")
    packet.payload = body[:len(body) - pad]
    _need(not any(body[len(body) - pad:]), "the padding is not zero")
    _need(len(packet.payload) <= MAX_PAYLOAD, f"{len(packet.payload)} bytes exceed the largest path MTU")
    if packet.dma_length is not None:
        _need(packet.dma_length == len(packet.payload),
              f"RETH length {packet.dma_length}, but {len(packet.payload)} bytes of payload")
    if opcode in (ACKNOWLEDGE, CNP):
        _need(not body, "acknowledgements and congestion notifications carry no payload")
    return packet


def _extension(packet, name, body):
    """Read one extension header into ``packet``; return the bytes after it."""
    size = 16 if name in ("reth", "reserved") else 4
    _need(len(body) >= size, f"the frame ends inside its {name.upper()}")
    if name == "reth":
        packet.va, packet.rkey, packet.dma_length = struct.unpack_from("!QII", body)
    elif name == "reserved":
        _need(not any(body[:16]), "the reserved bytes of a congestion notification are not zero")
    elif name == "immdt":
        (packet.imm,) = struct.unpack_from("!I", body)
    elif name == "aeth":
        packet.syndrome, packet.msn = body[0], int.from_bytes(body[1:4], "big")
    elif name == "limh":
        _need(not body[0], "the reserved byte of LIMH is not zero")
        packet.limited = body[1] >> 7
        packet.serial = int.from_bytes(body[1:4], "big") & 0x7F_FFFF
    else:
        _need(not body[0], "the reserved byte of RSNH is not zero")
        packet.rsn = int.from_bytes(body[1:4], "big")
    return body[size:]
