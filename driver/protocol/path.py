"""Address of the peer of a connection."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Path:
    """Address of a QP's peer.

    Attributes
    ----------
    mtu : MTU
        Path MTU.
    qpn : int
        The peer's QP.
    mac : int or None
        Of the next hop; None until it is resolved.
    ip : int
        Of the peer's card.
    flow_label : int
        Determines the UDP source port; 0: the QP chooses it.
    """

    mtu: int
    qpn: int
    mac: int | None
    ip: int
    flow_label: int = 0
