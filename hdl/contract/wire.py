"""Wire format: headers, opcodes, packet arithmetic. Standard library only.

Frames are RoCEv2: Ethernet, IPv4, UDP, BTH, extension headers, payload padded to 4 bytes, ICRC
(IBTA 1.7, annex A17). Data packets are ``RDMA WRITE ONLY``, each with a RETH, so that
every packet contains its destination address.

===============  ==================================================
frame            headers after BTH
===============  ==================================================
WRITE_ONLY       RETH
WRITE_ONLY_IMM   RETH, ImmDt
RETX_WRITE       RETH, RSNH
RETX_WRITE_IMM   RETH, RSNH, ImmDt
ACKNOWLEDGE      AETH
LOSS_REPORT      RSNH, then the 64 bytes of the Adamap node
PROBE            RSNH (``psn`` and ``rsn`` are the next ones to be sent)
REPORT_REQUEST   RSNH (``rsn`` is the first one missing)
RECEIVE_LIMIT    LIMH (while ``limited``, no new data from ``psn`` on)
CNP              CNPH (annex A17.9.3: data of the destination's QP was marked CE)
===============  ==================================================
"""

import enum
import struct
import zlib

from .layout import Field, Layout, Octets

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_ARP = 0x0806
ETHERTYPE_MAC_CONTROL = 0x8808
MAC_CONTROL_ADDRESS = 0x0180_C200_0001     # no bridge forwards frames to it
PRIORITIES = 8
PAUSE_QUANTUM_BITS = 512                    # bit times of the line
IP_PROTO_UDP = 17
ROCE_UDP_PORT = 4791
PSN_BITS = 24
QPN_BITS = 24
PSN_OUTSTANDING_LOG2 = 23
PSN_OUTSTANDING_MAX = 1 << PSN_OUTSTANDING_LOG2     # a sender never has this many PSNs outstanding
PSN_OUTSTANDING_DEFAULT_LOG2 = 20   # used by both ends, unless their programs agree on another one
RSN_BITS = 24
LIMIT_SERIAL_BITS = 23
GSI_QPN = 1             # general services: management datagrams, those of connection management among them
GSI_QKEY = 0x8001_0000  # the Q_Key of that QP on every port (IBTA 10.2.4)
UD_SEND_ONLY = 0x64     # the BTH opcode of a management datagram; DETH and MAD_BYTES follow
MAD_BYTES = 256
ICRC_BYTES = 4
MIN_FRAME_BYTES = 60  # without FCS
NOT_ECT, ECT0, CE = 0, 2, 3     # of the ECN field, the low bits of `tos` (RFC 3168)
ECN_MASK = 3
CONTROL_DSCP = 48               # of the frames with CONTROL_OPCODES: CS6, network control (RFC 4594); data has 0
DSCP_SHIFT = 2
BECN = 0x40
LINE_OVERHEAD_BYTES = 24  # of a frame: preamble with its delimiter, FCS, gap (IEEE 802.3)
PMTUS = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}  # IBTA enumeration


class Opcode(enum.IntEnum):
    """BTH opcodes in use; 0xC0 to 0xFF are manufacturer specific (IBTA table 38)."""

    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    ACKNOWLEDGE = 0x11
    CNP = 0x81
    RETX_WRITE = 0xC0
    RETX_WRITE_IMM = 0xC1
    LOSS_REPORT = 0xC2
    PROBE = 0xC3
    REPORT_REQUEST = 0xC4
    RECEIVE_LIMIT = 0xC5


class Syndrome(enum.IntEnum):
    """AETH syndromes in use (IBTA tables 45 and 46)."""

    ACK = 0x1F  # acknowledge, credit count invalid
    RNR_NAK = 0x20
    NAK_PSN_SEQUENCE = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATIONAL = 0x63


class MacControl(enum.IntEnum):
    """Opcodes of MAC control frames in use (IEEE 802.3 annex 31A, 802.1Qbb)."""

    PFC = 0x0101


def _wire(name: str, doc: str, fields: list[tuple], size: int) -> Layout:
    return Layout(name, doc, [Field(*f) for f in fields], size_bytes=size, byteorder="big")


ETH = _wire("Ethernet", "Ethernet II header.", [
    ("dst", 48, "Destination MAC address."), ("src", 48, "Source MAC address."),
    ("ethertype", 16, "Protocol that follows.")], 14)
PFC = _wire("PFC", "Priority-based flow control: a MAC control frame, padded to the minimum frame size with zeros.", [
    ("opcode", 16, "", MacControl), ("_resv8", 8), ("classes", 8, "Bit *n*: `time`*n* counts."),
    *[(f"time{n}", 16, f"Duration of the pause of priority {n} from now on, in 512 bit times; 0: end of the pause.")
      for n in range(PRIORITIES)]], 20)
IPV4 = _wire("IPv4", "IPv4 header without options.", [
    ("version", 4, "4."), ("ihl", 4, "Header length in 32-bit words, 5."), ("tos", 8, "DSCP and ECN."),
    ("total_length", 16, "Header and payload, bytes."), ("identification", 16, ""),
    ("flags", 3, "2: do not fragment."), ("fragment", 13, ""), ("ttl", 8, ""),
    ("protocol", 8, "17: UDP."), ("checksum", 16, "Header checksum."),
    ("src", 32, "Source address."), ("dst", 32, "Destination address.")], 20)
UDP = _wire("UDP", "UDP header; the checksum is zero, as RoCEv2 allows.", [
    ("sport", 16, "Flow entropy."), ("dport", 16, "4791."), ("length", 16, "Header and payload, bytes."),
    ("checksum", 16, "0.")], 8)
BTH = _wire("BTH", "Base transport header.", [
    ("opcode", 8, "", Opcode), ("solicited", 1, "Solicited event."), ("migreq", 1, "Migration state, 1; 0 in a CNP."),
    ("pad_count", 2, "Bytes of padding after the payload."), ("version", 4, "0."), ("pkey", 16, "0xFFFF."),
    ("ecn", 8, "FECN in bit 7, BECN in bit 6, which is set in a CNP."),
    ("dest_qp", 24, "Destination QPN."), ("ack_req", 1, "Last packet of a message: report it."),
    ("_resv7", 7), ("psn", 24, "Packet sequence number.")], 12)
RETH = _wire("RETH", "RDMA extended header: destination of the payload.", [
    ("va", 64, "Virtual address of the first byte."), ("rkey", 32, "Remote key."),
    ("dma_length", 32, "Bytes of payload.")], 16)
AETH = _wire("AETH", "Acknowledge extended header.", [
    ("syndrome", 8, "", Syndrome), ("msn", 24, "Messages completed, modulo 2^24.")], 4)
DETH = _wire("DETH", "Datagram extended header; datagrams are handled by the host.", [
    ("qkey", 32, "Of the destination."), ("_resv8", 8), ("src_qp", 24, "QPN of the sender.")], 8)
IMMDT = _wire("ImmDt", "Immediate data.", [("imm", 32, "")], 4)
RSNH = _wire("RSNH", "Retransmission header (Weft).", [
    ("_resv8", 8),
    ("rsn", 24, "Retransmission sequence number, modulo 2^24.")], 4)
CNPH = _wire("CNPH", "Rest of a congestion notification packet.", [("_resv128", 128)], 16)
LIMH = _wire("LIMH", "Receive-limit header (Weft).", [
    ("_resv8", 8),
    ("limited", 1, "There is a limit."),
    ("serial", LIMIT_SERIAL_BITS,
     "Counts the changes of the limit, modulo 2^23: an older frame that comes late is ignored.")], 4)

BTH_OFFSET = ETH.size_bytes + IPV4.size_bytes + UDP.size_bytes  # 42
RETH_OFFSET = BTH_OFFSET + BTH.size_bytes  # 54
DATA_HEADER_BYTES = RETH_OFFSET + RETH.size_bytes  # 70, before RSNH and ImmDt

EXTENSIONS: dict[int, tuple[Layout, ...]] = {
    Opcode.WRITE_ONLY: (RETH,),
    Opcode.WRITE_ONLY_IMM: (RETH, IMMDT),
    Opcode.RETX_WRITE: (RETH, RSNH),
    Opcode.RETX_WRITE_IMM: (RETH, RSNH, IMMDT),
    Opcode.ACKNOWLEDGE: (AETH,),
    Opcode.CNP: (CNPH,),
    Opcode.LOSS_REPORT: (RSNH,),
    Opcode.PROBE: (RSNH,),
    Opcode.REPORT_REQUEST: (RSNH,),
    Opcode.RECEIVE_LIMIT: (LIMH,),
}
DATA_OPCODES = frozenset({Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM, Opcode.RETX_WRITE, Opcode.RETX_WRITE_IMM})
RETX_OPCODES = frozenset({Opcode.RETX_WRITE, Opcode.RETX_WRITE_IMM})
DRIVER_OPCODES = frozenset({Opcode.ACKNOWLEDGE, Opcode.LOSS_REPORT, Opcode.REPORT_REQUEST, Opcode.RECEIVE_LIMIT,
                            Opcode.CNP})
# They have a separate traffic class. A probe has that of data: data that it overtakes counts as lost.
CONTROL_OPCODES = DRIVER_OPCODES


def line_bytes(frame_bytes: int) -> int:
    """Return the bytes on the line of a frame of this length without FCS: with padding, FCS, preamble and gap."""
    return max(frame_bytes, MIN_FRAME_BYTES) + LINE_OVERHEAD_BYTES


def tos_of(opcode: int, ecn: int = NOT_ECT) -> int:
    """Return the `tos` of a frame: its traffic class, which the BTH opcode determines, and the ECN field."""
    return (CONTROL_DSCP << DSCP_SHIFT if opcode in CONTROL_OPCODES else 0) | ecn


def header_bytes(opcode: int) -> int:
    """Return the bytes from the start of the Ethernet header to the payload for a BTH opcode."""
    return RETH_OFFSET + sum(h.size_bytes for h in EXTENSIONS[opcode])


def packet_count(addr: int, length: int, pmtu: int) -> int:
    """Return the number of packets of a request cut at remote PMTU boundaries; a zero-length request is one packet."""
    if length == 0:
        return 1
    return (addr + length - 1) // pmtu - addr // pmtu + 1


def psn_distance(psn: int, reference: int) -> int:
    """Return the signed distance of two 24-bit PSNs, −2^23 to 2^23 − 1."""
    return ((psn - reference + (1 << 23)) & 0xFF_FFFF) - (1 << 23)


def extend_psn(psn: int, reference: int) -> int:
    """Return the 32-bit PSN nearest to the 32-bit ``reference`` whose low 24 bits are ``psn``."""
    return (reference + psn_distance(psn & 0xFF_FFFF, reference & 0xFF_FFFF)) & 0xFFFF_FFFF


def ipv4_checksum(header: Octets) -> int:
    """Return the checksum of an IPv4 header whose checksum field is zero; zero if the field is set and right."""
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def icrc(frame: Octets) -> bytes:
    """Return the four ICRC bytes of an IPv4 RoCEv2 frame, from its Ethernet header, without ICRC (annex A17.3.3)."""
    masked = bytearray(frame[ETH.size_bytes:])
    masked[1] = masked[8] = 0xFF            # TOS, TTL
    masked[10:12] = masked[26:28] = b"\xff\xff"  # IP and UDP checksums
    masked[BTH_OFFSET - ETH.size_bytes + 4] = 0xFF  # BTH: FECN, BECN, reserved
    return zlib.crc32(b"\xff" * 8 + bytes(masked)).to_bytes(4, "little")


def build_frame(*, dst_mac: int, src_mac: int, src_ip: int, dst_ip: int, sport: int, payload: bytes = b"",
                extensions: bytes = b"", **fields: int) -> bytes:
    """Return a whole RoCEv2 frame (Ethernet to ICRC, no FCS).

    Parameters
    ----------
    extensions
        The packed headers after BTH.
    fields
        Of BTH: ``opcode``, ``dest_qp``, ``psn`` (taken modulo its width), ``ack_req``; of IPv4: ``ttl`` and ``tos``.
        The default of the latter is the class of the opcode.
    """
    of_ip = {"ttl": 64, "tos": tos_of(fields["opcode"])}
    of_ip |= {name: fields.pop(name) for name in of_ip if name in fields}
    pad, cnp = -len(payload) % 4, fields["opcode"] == Opcode.CNP
    body = extensions + payload + bytes(pad)
    udp_length = UDP.size_bytes + BTH.size_bytes + len(body) + ICRC_BYTES
    header = IPV4.pack(version=4, ihl=5, total_length=IPV4.size_bytes + udp_length, flags=2, protocol=IP_PROTO_UDP,
                       src=src_ip, dst=dst_ip, **of_ip)
    header = header[:10] + ipv4_checksum(header).to_bytes(2, "big") + header[12:]
    frame = (ETH.pack(dst=dst_mac, src=src_mac, ethertype=ETHERTYPE_IPV4) + header
             + UDP.pack(sport=sport, dport=ROCE_UDP_PORT, length=udp_length)
             + BTH.pack(migreq=not cnp, ecn=BECN * cnp, pad_count=pad, pkey=0xFFFF,
                        **fields | {"psn": fields["psn"] & 0xFF_FFFF}) + body)
    return frame + icrc(frame)
