"""Combinational expressions for the headers of a frame."""

from amaranth.hdl import Cat, Mux
from amaranth.lib import data

from ..contract import wire
from ..contract.abi import HOST_QPNS_QP1
from ..part.layouts import BEAT_BYTES, WIRE, swap_bytes
from .align import Cut

IPV4_OFFSET = wire.ETH.size_bytes
UDP_OFFSET = IPV4_OFFSET + wire.IPV4.size_bytes
BEHIND_RETH = wire.DATA_HEADER_BYTES
IHL_NO_OPTIONS = wire.IPV4.size_bytes // 4
MORE_FRAGMENTS = 1              # in the flags field of IPv4
PKEY_DEFAULT = 0x7FFF           # without the membership bit
ROCE_MIN_BYTES = wire.RETH_OFFSET + wire.RSNH.size_bytes + wire.ICRC_BYTES  # the shortest packet of the card
HOST_MIN_BYTES = wire.RETH_OFFSET + wire.ICRC_BYTES     # the shortest of all: the only one that the MAC pads
_WORDS = wire.IPV4.size_bytes // 4  # 16-bit words of half an IPv4 header
SUM_BITS = 19                   # of the sum of these words


class FrameType(data.Struct):
    """Properties of a frame that its first beat determines."""

    roce: 1              # IPv4 without options and fragments, UDP to port 4791
    has_eth: 1           # at least a whole Ethernet header
    mac_ours: 1
    mac_group: 1         # broadcast or multicast
    ip_ours: 1
    ip_sums: data.ArrayLayout(SUM_BITS, 2)  # of the words of each half of the IPv4 header
    bth_good: 1          # fixed fields of BTH
    lengths_agree: 1     # the UDP length agrees with the IP length
    ip_end: 17           # end of the frame according to IP, from the Ethernet header on
    host: 1              # RoCE for one of the host's QPNs, with any opcode; the following bits are 0 then
    data: 1
    probe: 1
    for_driver: 1        # wire.DRIVER_OPCODES: a control frame that goes to the host unchanged
    retransmission: 1
    has_imm: 1


class Headers(data.Struct):
    """Fields of BTH and the headers after it; those that the opcode does not have are 0."""

    opcode: 8
    pad_count: 2
    dest_qp: 24
    psn: 24
    ack_req: 1
    src_ip: 32
    va: 64
    rkey: 32
    dma_length: 32
    rsn: 24
    imm: 32
    ce: 1


def header_at(frame_bits, layout, offset):
    """Return the view of a wire header at a byte offset."""
    return data.View(WIRE[layout.name], swap_bytes(frame_bits[8 * offset:8 * (offset + layout.size_bytes)]))


def _at_least(beat, count):
    """Return whether a frame that begins with this beat has at least ``count`` bytes, ``count`` at most a beat."""
    return ~beat.last | (beat.empty <= BEAT_BYTES - count)


def _is_roce(beat):
    eth = header_at(beat.data, wire.ETH, 0)
    ipv4 = header_at(beat.data, wire.IPV4, IPV4_OFFSET)
    udp = header_at(beat.data, wire.UDP, UDP_OFFSET)
    return (_at_least(beat, wire.BTH_OFFSET) & (eth.ethertype == wire.ETHERTYPE_IPV4) & (ipv4.version == 4)
            & (ipv4.ihl == IHL_NO_OPTIONS) & (ipv4.fragment == 0) & ((ipv4.flags & MORE_FRAGMENTS) == 0)
            & (ipv4.protocol == wire.IP_PROTO_UDP) & (udp.dport == wire.ROCE_UDP_PORT))


def padded(beat):
    """Return whether a frame, given its first beat, is a packet of HOST_MIN_BYTES padded to the minimum frame size.

    The ICRC of such a frame is not at its end.
    """
    total = header_at(beat.data, wire.IPV4, IPV4_OFFSET).total_length
    return (beat.last & (beat.empty == BEAT_BYTES - wire.MIN_FRAME_BYTES) & _is_roce(beat)
            & (total == HOST_MIN_BYTES - IPV4_OFFSET))


def is_host_qpn(host_qpns, qpn):
    """Return the equivalent of :func:`weft.hdl.contract.abi.is_host_qpn`."""
    outside = (qpn ^ host_qpns.first) >> host_qpns.log2
    return (host_qpns.ranged & (outside == 0)) | (host_qpns.qp1 & (qpn == HOST_QPNS_QP1))


def frame_type(beat, network_mac, network_ip, host_qpns):
    """Return the fields of :class:`FrameType`, by name, for the first beat of a frame."""
    eth = header_at(beat.data, wire.ETH, 0)
    ipv4 = header_at(beat.data, wire.IPV4, IPV4_OFFSET)
    udp = header_at(beat.data, wire.UDP, UDP_OFFSET)
    bth = header_at(beat.data, wire.BTH, wire.BTH_OFFSET)
    host = is_host_qpn(host_qpns, bth.dest_qp)

    def among(opcodes):
        return Cat(*[bth.opcode == opcode for opcode in sorted(opcodes)]).any()

    return {
        "roce": _is_roce(beat),
        "has_eth": _at_least(beat, wire.ETH.size_bytes),
        "mac_ours": (network_mac == 0) | (eth.dst == network_mac),
        "mac_group": beat.data[0],
        "ip_ours": (network_ip == 0) | (ipv4.dst == network_ip),
        "ip_sums": Cat(sum(swap_bytes(beat.data[8 * at:8 * at + 16])
                           for at in range(begin, begin + 2 * _WORDS, 2))[:SUM_BITS]
                       for begin in (IPV4_OFFSET, IPV4_OFFSET + 2 * _WORDS)),
        "bth_good": (bth.version == 0) & ((bth.pkey & PKEY_DEFAULT) == PKEY_DEFAULT),
        "lengths_agree": udp.length + wire.IPV4.size_bytes == ipv4.total_length,
        "ip_end": ipv4.total_length + wire.ETH.size_bytes,
        "host": host,
        "data": ~host & among(wire.DATA_OPCODES),
        "probe": ~host & (bth.opcode == wire.Opcode.PROBE),
        "for_driver": ~host & among(wire.DRIVER_OPCODES),
        "retransmission": among(wire.RETX_OPCODES),
        "has_imm": among({wire.Opcode.WRITE_ONLY_IMM, wire.Opcode.RETX_WRITE_IMM}),
    }


def checksum_good(total):
    """Return whether the checksum of an IPv4 header is right; ``total`` is the sum of its 16-bit words."""
    return total[:16] + total[16:] == 0xFFFF


def cut_of(kind):
    """Return the :class:`Cut` of a frame of this :class:`FrameType`."""
    write = Mux(kind.retransmission & kind.has_imm, Cut.WRITE_TWO,
                Mux(kind.retransmission | kind.has_imm, Cut.WRITE_ONE, Cut.WRITE))
    return Mux(~kind.roce | kind.host | kind.for_driver, Cut.FRAME, Mux(kind.data, write, Cut.NOTHING))


def headers(kind, frame_bits):
    """Return the fields of :class:`Headers`, by name, from the first two beats of a frame."""
    ipv4 = header_at(frame_bits, wire.IPV4, IPV4_OFFSET)
    bth = header_at(frame_bits, wire.BTH, wire.BTH_OFFSET)
    reth = header_at(frame_bits, wire.RETH, wire.RETH_OFFSET)
    probe_rsnh = header_at(frame_bits, wire.RSNH, wire.RETH_OFFSET)
    rsnh = header_at(frame_bits, wire.RSNH, BEHIND_RETH)
    imm_first = header_at(frame_bits, wire.IMMDT, BEHIND_RETH).imm
    imm_second = header_at(frame_bits, wire.IMMDT, BEHIND_RETH + wire.RSNH.size_bytes).imm
    return {
        "opcode": bth.opcode,
        "pad_count": bth.pad_count,
        "dest_qp": bth.dest_qp,
        "psn": bth.psn,
        "ack_req": bth.ack_req,
        "src_ip": ipv4.src,
        "va": Mux(kind.data, reth.va, 0),
        "rkey": Mux(kind.data, reth.rkey, 0),
        "dma_length": Mux(kind.data, reth.dma_length, 0),
        "rsn": Mux(kind.probe, probe_rsnh.rsn, Mux(kind.retransmission, rsnh.rsn, 0)),
        "ce": kind.data & (ipv4.tos[:2] == wire.CE),
        "imm": Mux(kind.has_imm, Mux(kind.retransmission, imm_second, imm_first), 0),
    }
