"""Messages of connection management: management datagrams of class 7 (IBTA 1.7, chapters 12.6 and 13.4).

A datagram consists of a MAD header, the fixed part of the message, and private data, padded with zeros.
"""

import enum
from types import SimpleNamespace
from typing import Any

from weft.hdl.contract import wire
from weft.hdl.contract.layout import Field, Layout

PORT_SPACE_TCP, PORT_SPACE_UDP = 0x0106, 0x0111
CM_VERSION, IP_VERSION = 0, 4
HEADER = Layout("RDMA CM", "Begin of the private data of REQ and SIDR_REQ: addresses of both ends.", [
    Field("major", 4, "0."), Field("minor", 4), Field("ip_version", 4, "4 or 6."), Field("_resv", 4),
    Field("src_port", 16), Field("src_ip", 128, "IPv4: in the last 4 bytes."), Field("dst_ip", 128),
], size_bytes=36, byteorder="big")
_MAPPED = 0xFFFF << 32     # prefix of the GID of an IPv4 address
MAD_VERSION, CM_CLASS, CM_CLASS_VERSION, METHOD_SEND = 1, 7, 2, 3


def service_id(port: int, port_space: int = PORT_SPACE_TCP) -> int:
    """Return the service ID of a port."""
    return port_space << 16 | port


def gid_of(ip: int) -> int:
    """Return the GID of an IPv4 address, as a number."""
    return _MAPPED | ip


def header(src_ip: int, src_port: int, dst_ip: int) -> bytes:
    """Return the packed header."""
    return HEADER.pack(major=CM_VERSION, ip_version=IP_VERSION, src_port=src_port, src_ip=src_ip, dst_ip=dst_ip)


def parse_header(private_data: bytes) -> SimpleNamespace | None:
    """Return the header and the remaining private data of the private data of a REQ or SIDR_REQ.

    The result has the attributes ``src_ip, src_port, dst_ip, private_data``. It is None if the data does not begin with
    a header for IPv4.
    """
    header = HEADER.unpack(private_data)
    if header.major != CM_VERSION or header.ip_version != IP_VERSION or (header.src_ip | header.dst_ip) >> 32:
        return None
    return SimpleNamespace(src_ip=header.src_ip, src_port=header.src_port, dst_ip=header.dst_ip,
                           private_data=private_data[HEADER.size_bytes:])


class Attribute(enum.IntEnum):
    """Kind of a message (IBTA table 97)."""

    REQ = 0x10
    MRA = 0x11
    REJ = 0x12
    REP = 0x13
    RTU = 0x14
    DREQ = 0x15
    DREP = 0x16
    SIDR_REQ = 0x17
    SIDR_REP = 0x18


class ReferredMessage(enum.IntEnum):
    """Message to which a REJ or an MRA refers."""

    REQ = 0
    REP = 1
    OTHER = 2


class RejectReason(enum.IntEnum):
    """Reason of a rejection (IBTA table 103): those that this implementation sends or interprets."""

    NO_QP = 1
    NO_RESOURCES = 3
    TIMEOUT = 4
    UNSUPPORTED = 5
    INVALID_COMM_ID = 6
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT_TYPE = 9
    STALE_CONN = 10
    INVALID_GID = 12
    INVALID_MTU = 26
    CONSUMER_DEFINED = 28


def _layout(name: str, doc: str, size: int, *fields: tuple[Any, ...]) -> Layout:
    return Layout(name, doc, [Field(*field) for field in fields], size_bytes=size, byteorder="big")


MAD = _layout("MAD", "Header of a management datagram.", 24,
              ("base_version", 8, "1."), ("mgmt_class", 8, "7: communication management."), ("class_version", 8, "2."),
              ("method", 8, "3: Send."), ("status", 16), ("_specific", 16), ("tid", 64, "Transaction."),
              ("attribute", 16, "Which message."), ("_resv", 16), ("modifier", 32))
_IDS = (("local_id", 32, "The sender's number of the connection."), ("remote_id", 32, "The receiver's."))
# Fields called `timeout` are in units of 4.096 µs · 2^n; fields that are reserved or not used on Ethernet are zero.
REQ = _layout("REQ", "Request for a connection.", 140,
              _IDS[0], ("_resv0", 32), ("service_id", 64), ("ca_guid", 64), ("_resv1", 32), ("qkey", 32),
              ("qpn", 24), ("responder_resources", 8), ("_eecn", 24), ("initiator_depth", 8),
              ("_remote_eecn", 24), ("remote_timeout", 5, "The answer comes within."), ("transport", 2, "0: RC."),
              ("flow_control", 1), ("psn", 24), ("local_timeout", 5, "The sender answers within."),
              ("retry_count", 3), ("pkey", 16), ("mtu", 4), ("rdc_exists", 1), ("rnr_retry_count", 3),
              ("max_cm_retries", 4), ("srq", 1), ("extended_transport", 3), ("_local_lid", 16), ("_remote_lid", 16),
              ("local_gid", 128), ("remote_gid", 128), ("flow_label", 20), ("_resv2", 6), ("packet_rate", 6),
              ("traffic_class", 8), ("hop_limit", 8), ("sl", 4), ("subnet_local", 1), ("_resv3", 3),
              ("ack_timeout", 5, "Of the connection's QPs."), ("_resv4", 3), ("_alternate", 44 * 8))
REP = _layout("REP", "It is accepted.", 36, *_IDS, ("qkey", 32), ("qpn", 24), ("_resv0", 8), ("_eecn", 24),
              ("_resv1", 8), ("psn", 24), ("_resv2", 8), ("responder_resources", 8), ("initiator_depth", 8),
              ("ack_delay", 5), ("failover", 2), ("flow_control", 1), ("rnr_retry_count", 3), ("srq", 1),
              ("_resv3", 4), ("ca_guid", 64))
RTU = _layout("RTU", "The requester is ready to use it.", 8, *_IDS)
REJ = _layout("REJ", "It is refused, or given up.", 84, *_IDS, ("answered", 2, "", ReferredMessage), ("_resv0", 6),
              ("info_length", 7), ("_resv1", 1), ("reason", 16), ("_info", 72 * 8))
MRA = _layout("MRA", "The message has come, its answer takes longer.", 10, *_IDS, ("answered", 2, "", ReferredMessage),
              ("_resv0", 6), ("timeout", 5, "It comes within."), ("_resv1", 3))
DREQ = _layout("DREQ", "Request to end a connection.", 12, *_IDS, ("remote_qpn", 24, "Of the receiver."), ("_resv", 8))
DREP = _layout("DREP", "It is ended.", 8, *_IDS)
SIDR_REQ = _layout("SIDR_REQ", "Request for the queue pair of a service.", 16, ("request_id", 32), ("pkey", 16),
                   ("_resv", 16), ("service_id", 64))
SIDR_REP = _layout("SIDR_REP", "Queue pair of a service.", 96, ("request_id", 32), ("status", 8), ("info_length", 8),
                   ("_resv0", 16), ("qpn", 24), ("_resv1", 8), ("service_id", 64), ("qkey", 32), ("_info", 72 * 8))
LAYOUTS = {Attribute[layout.name]: layout for layout in (REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP)}


def private_bytes(kind: Attribute) -> int:
    """Return the size of the private data of a message in bytes."""
    return wire.MAD_BYTES - MAD.size_bytes - LAYOUTS[kind].size_bytes


def build(kind: Attribute, tid: int, private_data: bytes = b"", **fields: int) -> bytes:
    """Return the datagram of a message.

    Raises
    ------
    ValueError
        If a field, or the private data, does not fit.
    """
    if len(private_data) > private_bytes(kind):
        raise ValueError(f"{len(private_data)} bytes of private data; {kind.name} has {private_bytes(kind)}")
    header = MAD.pack(base_version=MAD_VERSION, mgmt_class=CM_CLASS, class_version=CM_CLASS_VERSION,
                      method=METHOD_SEND, tid=tid, attribute=kind)
    return (header + LAYOUTS[kind].pack(**fields) + private_data).ljust(wire.MAD_BYTES, b"\0")


def parse(data: bytes) -> SimpleNamespace | None:
    """Return a datagram as a namespace: ``kind, tid, private_data`` and the fields of its message.

    The result is None if the datagram is not a message of connection management.
    """
    if len(data) != wire.MAD_BYTES:
        return None
    header = MAD.unpack(data)
    if (header.base_version, header.mgmt_class, header.class_version, header.method) != (
            MAD_VERSION, CM_CLASS, CM_CLASS_VERSION, METHOD_SEND):
        return None
    try:
        kind = Attribute(header.attribute)
    except ValueError:
        return None
    layout, at = LAYOUTS[kind], MAD.size_bytes
    return SimpleNamespace(kind=kind, tid=header.tid, private_data=bytes(data[at + layout.size_bytes:]),
                           **vars(layout.unpack(data[at:])))
