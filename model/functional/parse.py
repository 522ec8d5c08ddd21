"""Rules of the receive parser, without time and buffers."""

from dataclasses import dataclass
from functools import lru_cache

from weft.hdl.contract import abi, wire
from weft.hdl.contract.abi import Reason

PAYLOAD_MAX = 4096
FRAME_MAX = (1 << 14) - 1
PKEY_MASK = 0x7FFF
KINDS = ("DATA", "PROBE", "RAW", "REFUSED")  # in the order of layouts.RxKind
_SHORTEST = wire.RETH_OFFSET + wire.RSNH.size_bytes + wire.ICRC_BYTES      # of packets that the card processes
_HOST_SHORTEST = wire.RETH_OFFSET + wire.ICRC_BYTES                        # of all packets
is_host_qpn = lru_cache(maxsize=4096)(abi.is_host_qpn)      # the same few QPNs arrive in many packets


@dataclass
class RxHeader:
    """Fields of :class:`weft.hdl.part.layouts.RxHeader`; fields that a frame does not have are zero."""

    kind: str
    reason: Reason = Reason.OK
    roce: int = 0
    host: int = 0
    opcode: int = 0
    dest_qp: int = 0
    psn: int = 0
    ack_req: int = 0
    retransmission: int = 0
    rsn: int = 0
    has_imm: int = 0
    imm: int = 0
    va: int = 0
    rkey: int = 0
    dma_length: int = 0
    length: int = 0
    src_ip: int = 0
    ce: int = 0


def _refused(reason):
    return RxHeader("REFUSED", reason), b""


def is_roce(frame):
    """Return whether a frame is IPv4, without options and fragments, with UDP to the RoCEv2 port."""
    if len(frame) < wire.BTH_OFFSET:
        return False
    eth = wire.ETH.unpack(frame)
    ipv4 = wire.IPV4.unpack(frame[wire.ETH.size_bytes:])
    udp = wire.UDP.unpack(frame[wire.ETH.size_bytes + wire.IPV4.size_bytes:])
    return (eth.ethertype == wire.ETHERTYPE_IPV4 and ipv4.version == 4 and ipv4.ihl == 5 and ipv4.fragment == 0
            and not ipv4.flags & 1 and ipv4.protocol == wire.IP_PROTO_UDP and udp.dport == wire.ROCE_UDP_PORT)


def without_padding(frame):
    """Return the frame without the padding of the shortest RoCE packet (a BTH alone) to the shortest frame."""
    if len(frame) == wire.MIN_FRAME_BYTES and is_roce(frame):
        end = wire.ETH.size_bytes + wire.IPV4.unpack(frame[wire.ETH.size_bytes:]).total_length
        return frame[:end] if end == _HOST_SHORTEST else frame
    return frame


def parse(frame, *, error=False, mac=0, ip=0, host_qpns=0):
    """Return header and payload of a frame.

    Parameters
    ----------
    frame : bytes
        From the Ethernet header, without FCS.
    error : bool
        The MAC marked the frame as bad.
    mac, ip : int
        Addresses of the card; 0: any.
    host_qpns : int
        Value of the register of that name.

    Returns
    -------
    (RxHeader, bytes)
        The payload is the parser's output on the payload stream.
    """
    if error:
        return _refused(Reason.BAD_FRAME)
    if len(frame) > FRAME_MAX:
        return _refused(Reason.FRAME_TOO_LONG)
    if len(frame) < wire.ETH.size_bytes:
        return _refused(Reason.TRUNCATED)
    mac_ours = mac in (0, wire.ETH.unpack(frame).dst)
    if is_roce(frame):
        return _parse_roce(without_padding(frame), mac_ours, ip, host_qpns)
    if not mac_ours and not frame[0] & 1:
        return _refused(Reason.BAD_HEADER)
    return RxHeader("RAW", length=len(frame)), frame


def _parse_roce(frame, mac_ours, ip, host_qpns):
    ipv4 = wire.IPV4.unpack(frame[wire.ETH.size_bytes:])
    udp = wire.UDP.unpack(frame[wire.ETH.size_bytes + wire.IPV4.size_bytes:])
    end = wire.ETH.size_bytes + ipv4.total_length
    if end > len(frame) or end < _HOST_SHORTEST:
        return _refused(Reason.TRUNCATED)
    bth = wire.BTH.unpack(frame[wire.BTH_OFFSET:])
    host = is_host_qpn(host_qpns, bth.dest_qp)
    if end < _SHORTEST and not host:
        return _refused(Reason.TRUNCATED)
    data = bth.opcode in wire.DATA_OPCODES and not host
    if data and end < wire.header_bytes(bth.opcode) + wire.ICRC_BYTES:
        return _refused(Reason.TRUNCATED)
    if end != len(frame) or udp.length + wire.IPV4.size_bytes != ipv4.total_length:
        return _refused(Reason.LENGTH_MISMATCH)
    if wire.icrc(frame[:-wire.ICRC_BYTES]) != frame[-wire.ICRC_BYTES:]:
        return _refused(Reason.BAD_ICRC)
    if not mac_ours or ip not in (0, ipv4.dst) or bth.version or bth.pkey & PKEY_MASK != PKEY_MASK:
        return _refused(Reason.BAD_HEADER)
    if wire.ipv4_checksum(frame[wire.ETH.size_bytes:][:wire.IPV4.size_bytes]):
        return _refused(Reason.BAD_HEADER)  # the ICRC does not cover the checksum, TOS and TTL
    header = RxHeader("RAW", opcode=int(bth.opcode), dest_qp=bth.dest_qp, psn=bth.psn, ack_req=bth.ack_req,
                      src_ip=ipv4.src, ce=int(ipv4.tos & wire.ECN_MASK == wire.CE))
    if host or bth.opcode in wire.DRIVER_OPCODES:
        header.host, header.roce, header.length = int(host), int(not host), len(frame)
        return header, frame
    if bth.opcode == wire.Opcode.PROBE:
        rsnh = wire.RSNH.unpack(frame[wire.RETH_OFFSET:])
        header.kind, header.rsn = "PROBE", rsnh.rsn
        return (header, b"") if len(frame) == _SHORTEST else _refused(Reason.LENGTH_MISMATCH)
    if not data:
        return _refused(Reason.UNKNOWN_OPCODE)
    return _parse_write(frame, bth, header)


def _parse_write(frame, bth, header):
    header.kind = "DATA"
    at = wire.RETH_OFFSET
    for extension in wire.EXTENSIONS[bth.opcode]:
        for name, value in vars(extension.unpack(frame[at:])).items():
            setattr(header, name, value)
        at += extension.size_bytes
    header.retransmission = int(bth.opcode in wire.RETX_OPCODES)
    header.has_imm = int(bth.opcode in (wire.Opcode.WRITE_ONLY_IMM, wire.Opcode.RETX_WRITE_IMM))
    padded = header.dma_length + bth.pad_count
    if header.dma_length > PAYLOAD_MAX or padded % 4 or at + padded + wire.ICRC_BYTES != len(frame):
        header.kind, header.reason = "REFUSED", Reason.LENGTH_MISMATCH
        return header, b""
    header.length = header.dma_length
    return header, frame[at:at + header.dma_length]
