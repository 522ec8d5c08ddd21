"""Frames as switches see them: traffic class, 5-tuple, and the ECN field of IPv4."""

import struct
import zlib

from weft.hdl.contract import wire

from ...impairments import FrameKind
from ..forwarding import TRIM_BYTES, tuple_hash

RESERVED = bytes.fromhex("0180c20000")      # group addresses of a link, which no bridge forwards (IEEE 802.1D)
KINDS = tuple(FrameKind)
_ETHERTYPE, _TAG = wire.ETHERTYPE_IPV4.to_bytes(2, "big"), b"\x81\x00"
_HEADER_BYTES, _WITH_PORTS = 20, frozenset({6, wire.IP_PROTO_UDP})


def is_group(to: bytes) -> bool:
    """Return whether frames with this destination are for all ports: group addresses that bridges forward."""
    return bool(to) and bool(to[0] & 1) and not to.startswith(RESERVED)


def _ipv4(frame: bytes) -> int:
    """Return the offset of the IPv4 header of a frame with at most one VLAN tag; 0 if it has none."""
    at = 18 if frame[12:14] == _TAG else 14
    return at if frame[at - 2:at] == _ETHERTYPE and len(frame) >= at + _HEADER_BYTES else 0


def is_control(frame: bytes) -> bool:
    """Return whether a frame has the traffic class of control frames, by its DSCP."""
    at = _ipv4(frame)
    return bool(at) and frame[at + 1] >> wire.DSCP_SHIFT == wire.CONTROL_DSCP


def hash_of(frame: bytes) -> int:
    """Return the hash by which one of several equal paths is chosen: that of the 5-tuple, or of other headers."""
    at = _ipv4(frame)
    if not at:
        return zlib.crc32(frame[:14])
    source, destination = struct.unpack_from(">II", frame, at + 12)
    protocol, ports = frame[at + 9], at + 4 * (frame[at] & 15)
    fragment = int.from_bytes(frame[at + 6:at + 8], "big") & 0x3FFF
    if protocol not in _WITH_PORTS or fragment or len(frame) < ports + 4:
        return tuple_hash(source, destination, 0, 0, protocol)
    port, to_port = struct.unpack_from(">HH", frame, ports)
    return tuple_hash(source, destination, port, to_port, protocol)


def can_be_marked(frame: bytes) -> bool:
    """Return whether the sender of a packet understands marks: it is IPv4, and its ECN field is not Not-ECT."""
    at = _ipv4(frame)
    return bool(at) and frame[at + 1] & wire.ECN_MASK != wire.NOT_ECT


def marked(frame: bytes) -> bytes:
    """Return an IPv4 packet with congestion experienced. The ICRC of RoCEv2 does not cover the field."""
    at = _ipv4(frame)
    return _with_tos(frame, at, frame[at + 1] | wire.CE)


def can_be_trimmed(frame: bytes) -> bool:
    """Return whether a packet has more than the headers that trimming leaves."""
    return bool(_ipv4(frame)) and len(frame) > TRIM_BYTES


def trimmed(frame: bytes) -> bytes:
    """Return the headers of an IPv4 packet, in the class of control frames.

    Like those of switches that trim, they keep the length of the whole packet in the IPv4 header.
    """
    return _with_tos(frame[:TRIM_BYTES], _ipv4(frame), wire.CONTROL_DSCP << wire.DSCP_SHIFT)


def _with_tos(frame: bytes, at: int, tos: int) -> bytes:
    """Change the second byte of an IPv4 header, and adapt the checksum of the header (RFC 1624)."""
    old, = struct.unpack_from(">H", frame, at)
    checksum, = struct.unpack_from(">H", frame, at + 10)
    changed = old & 0xFF00 | tos
    total = (checksum ^ 0xFFFF) + (old ^ 0xFFFF) + changed
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    new = bytearray(frame)
    struct.pack_into(">H", new, at, changed)
    struct.pack_into(">H", new, at + 10, total ^ 0xFFFF)
    return bytes(new)
