"""Where the packets of a connection go."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Path:
    """The peer of a QP and the way to it.

    Attributes
    ----------
    mtu : MTU
        Path MTU.
    qpn : int
        The peer's QP.
    mac, ip : int
        Its card; ``mac`` is that of the next hop.
    """

    mtu: int
    qpn: int
    mac: int
    ip: int
