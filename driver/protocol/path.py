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
    mac : int or None
        Of the next hop; None as long as nobody knows it.
    ip : int
        Its card.
    flow_label : int
        Says the UDP source port; 0 leaves it to the QP.
    """

    mtu: int
    qpn: int
    mac: int | None
    ip: int
    flow_label: int = 0
