"""Addresses and ports of the two ends of a connection (rdma_addrinfo)."""

import socket

from ..terms.checks import between, member
from ..terms.errors import InvalidValue, NotSupported
from .enums import AddrFlag, PortSpace


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _address(name: str | bytes | None, flags: int) -> int:
    """Return the IPv4 address of a name as a number; 0 (any) for None."""
    if name is None:
        return 0
    numeric = socket.AI_NUMERICHOST if flags & AddrFlag.NUMERICHOST else 0
    try:
        found = socket.getaddrinfo(_text(name), None, type=socket.SOCK_STREAM, flags=numeric)
    except socket.gaierror as error:
        raise InvalidValue(f"Failed to get Address Info of {_text(name)}: {error}") from None
    for family, *_, address in found:
        if family == socket.AF_INET:
            return int.from_bytes(socket.inet_aton(str(address[0])), "big")
    raise NotSupported(f"{_text(name)} has no IPv4 address; the card supports IPv4 only")


def _port(service: str | bytes | None) -> int:
    """Return the port of a service as a number; 0 (any) for None."""
    service = _text(service)
    if service is None:
        return 0
    if not str(service).isdigit():
        try:
            return socket.getservbyname(service, "tcp")
        except OSError:
            raise InvalidValue(f"Failed to get Address Info: there is no service {service}") from None
    return between("the port", int(service), 0, (1 << 16) - 1)


class AddrInfo:
    """Addresses to bind to or to connect to.

    Parameters
    ----------
    src, dst : str or None
        Names or IPv4 addresses. ``src`` is of this host and selects the card; ``dst`` is of the peer.
    src_service, dst_service : str or None
        Names of services, or ports.
    port_space : PortSpace
        TCP, of reliable connections, or 0 with the same meaning; UDP, of datagrams.
    flags : AddrFlag
        With PASSIVE it is an address to listen on.

    Attributes
    ----------
    src, src_port, dst, dst_port : int
        0 is any.
    """

    def __init__(self, src: str | bytes | None = None, dst: str | bytes | None = None,
                 src_service: str | bytes | None = None, dst_service: str | bytes | None = None, port_space: int = 0,
                 flags: int = 0) -> None:
        self.flags = AddrFlag(flags)
        self.port_space = check_port_space(port_space or PortSpace.TCP)
        self.src, self.src_port = _address(src, flags), _port(src_service)
        self.dst, self.dst_port = (0, 0) if self.passive else (_address(dst, flags), _port(dst_service))

    @property
    def passive(self) -> bool:
        return bool(self.flags & AddrFlag.PASSIVE)

    def close(self) -> None:
        """Do nothing: the object holds no resource."""
        return


def check_port_space(port_space: int) -> PortSpace:
    """Return ``port_space`` as a member; raise NotSupported if it is another than TCP and UDP."""
    space = member("port_space", port_space, PortSpace)
    if space not in (PortSpace.TCP, PortSpace.UDP):
        raise NotSupported(f"the port space {space.name} does not exist here, only TCP and UDP")
    return space
