"""Service IDs of IP addresses and ports, as in RDMA CM (IBTA 1.7, annex A11)."""

from types import SimpleNamespace

from weft.hdl.contract.layout import Field, Layout

PORT_SPACE_TCP, PORT_SPACE_UDP = 0x0106, 0x0111
CM_VERSION, IP_VERSION = 0, 4
HEADER = Layout("RDMA CM", "Begin of the private data of REQ and SIDR_REQ: addresses of both ends.", [
    Field("major", 4, "0."), Field("minor", 4), Field("ip_version", 4, "4 or 6."), Field("_resv", 4),
    Field("src_port", 16), Field("src_ip", 128, "IPv4: in the last 4 bytes."), Field("dst_ip", 128),
], size_bytes=36, byteorder="big")
_MAPPED = 0xFFFF << 32     # prefix of the GID of an IPv4 address


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
