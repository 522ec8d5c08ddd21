"""Packets of unreliable datagrams: encoding, and validation of received frames.

A packet to one host is an ordinary RoCEv2 frame. The card accepts such frames only for its address, so a packet to a
multicast group has a priority tag (IEEE 802.1Q, VLAN 0). The card does not parse frames with a tag, and delivers those
to group addresses unchanged. The driver checks all headers of such a frame.
"""

from dataclasses import dataclass

from weft.hdl.contract import wire

OPCODES = {wire.UD_SEND_ONLY: False, wire.UD_SEND_ONLY + 1: True}      # BTH opcode -> with immediate data
GRH_BYTES = 40               # in front of the data of each receive
HEADER_KIND = 8 | 2          # of RoCEv2 over IPv4, as mlx5 reports it in the field for a service level
MULTICAST_QPN = 0xFF_FFFF
HEADER_BYTES = wire.RETH_OFFSET + wire.DETH.size_bytes + wire.IMMDT.size_bytes     # the longest
TAG = bytes.fromhex("81000000")     # EtherType of 802.1Q; priority 0, VLAN 0
_GROUP_MAC = 0x0100_5E00_0000       # RFC 1112: the low 23 bits are those of the group
_GROUP_BITS = (1 << 23) - 1
_TAG_AT = wire.ETH.offset_of("ethertype") // 8
_IP = slice(wire.ETH.size_bytes, wire.ETH.size_bytes + wire.IPV4.size_bytes)
_FIXED = {"version": 4, "ihl": 5, "fragment": 0, "protocol": wire.IP_PROTO_UDP}
_MORE_FRAGMENTS = 1


@dataclass(frozen=True, slots=True)
class Packet:
    """Datagram.

    Attributes
    ----------
    grh : bytes
        Of a received datagram: ``GRH_BYTES`` of header for the receive, 20 undefined ones, then the IPv4 header.
    """

    src_ip: int
    src_qp: int
    dest_ip: int
    dest_qp: int
    qkey: int
    data: bytes
    solicited: bool = False
    imm: int | None = None
    grh: bytes = b""


def is_group(ip: int) -> bool:
    """Return true if an IPv4 address is that of a multicast group."""
    return ip >> 28 == 0xE


def group_mac(ip: int) -> int:
    """Return the MAC address of a multicast group."""
    return _GROUP_MAC | ip & _GROUP_BITS


def payload_limit(slot_bytes: int) -> int:
    """Return the largest PMTU whose packets fit in a slot of the Simple NIC; 0 if none does."""
    space = slot_bytes - HEADER_BYTES - len(TAG) - wire.ICRC_BYTES
    return max((pmtu for pmtu in wire.PMTUS.values() if pmtu <= space), default=0)


def build(packet: Packet, *, src_mac: int, dst_mac: int, sport: int, psn: int) -> bytes:
    """Return the frame of a datagram, with the tag if it goes to a group."""
    extensions = wire.DETH.pack(qkey=packet.qkey, src_qp=packet.src_qp)
    if packet.imm is not None:
        extensions += wire.IMMDT.pack(imm=packet.imm)
    frame = wire.build_frame(
        opcode=wire.UD_SEND_ONLY + (packet.imm is not None), dst_mac=dst_mac, src_mac=src_mac, src_ip=packet.src_ip,
        dst_ip=packet.dest_ip, sport=sport, dest_qp=packet.dest_qp, psn=psn, solicited=int(packet.solicited),
        extensions=extensions, payload=packet.data)
    return frame[:_TAG_AT] + TAG + frame[_TAG_AT:] if is_group(packet.dest_ip) else frame


def parse(frame: bytes) -> Packet | None:
    """Return the datagram of a RoCEv2 frame whose addresses, lengths and ICRC are right; None if it has no datagram."""
    bth = wire.BTH.unpack(frame[wire.BTH_OFFSET:])
    at = wire.RETH_OFFSET + wire.DETH.size_bytes
    with_imm = OPCODES.get(int(bth.opcode))
    end = len(frame) - wire.ICRC_BYTES - bth.pad_count
    if with_imm is None or end < at + (wire.IMMDT.size_bytes if with_imm else 0):
        return None
    ipv4, deth = wire.IPV4.unpack(frame[_IP]), wire.DETH.unpack(frame[wire.RETH_OFFSET:])
    imm = None
    if with_imm:
        imm = wire.IMMDT.unpack(frame[at:]).imm
        at += wire.IMMDT.size_bytes
    return Packet(ipv4.src, deth.src_qp, ipv4.dst, bth.dest_qp, deth.qkey, bytes(frame[at:end]), bool(bth.solicited),
                  imm, bytes(GRH_BYTES - wire.IPV4.size_bytes) + bytes(frame[_IP]))


def parse_group(frame: bytes) -> Packet | None:
    """Return the datagram of a tagged frame to a multicast group; None if the frame is another or a damaged one."""
    if frame[_TAG_AT : _TAG_AT + len(TAG)] != TAG:
        return None
    frame = frame[:_TAG_AT] + frame[_TAG_AT + len(TAG):]
    if len(frame) < wire.RETH_OFFSET + wire.ICRC_BYTES:
        return None
    eth, ipv4 = wire.ETH.unpack(frame), wire.IPV4.unpack(frame[_IP])
    udp, bth = wire.UDP.unpack(frame[_IP.stop:]), wire.BTH.unpack(frame[wire.BTH_OFFSET:])
    end = _IP.start + ipv4.total_length
    if (eth.ethertype != wire.ETHERTYPE_IPV4 or any(getattr(ipv4, name) != value for name, value in _FIXED.items())
            or ipv4.flags & _MORE_FRAGMENTS or not is_group(ipv4.dst) or eth.dst != group_mac(ipv4.dst)
            or is_group(ipv4.src) or wire.ipv4_checksum(frame[_IP]) or udp.dport != wire.ROCE_UDP_PORT
            or udp.length + wire.IPV4.size_bytes != ipv4.total_length or end > len(frame)
            or end < wire.RETH_OFFSET + wire.ICRC_BYTES or bth.version or bth.dest_qp != MULTICAST_QPN):
        return None
    frame = frame[:end]      # without padding to the shortest frame
    if wire.icrc(frame[: -wire.ICRC_BYTES]) != frame[-wire.ICRC_BYTES:]:
        return None
    return parse(frame)
