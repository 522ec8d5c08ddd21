"""Send work requests of UD queue pairs."""

from dataclasses import dataclass
from typing import ClassVar

from ..terms.enums import WCStatus, WROpcode


@dataclass(slots=True)
class DatagramRequest:
    """Send work request for a datagram.

    Attributes
    ----------
    sges : list of (va, length, card's key)
        Local memory, unless the data is ``inline``.
    ip : int
        Of the destination: a host, or a multicast group.
    flow_label : int
        Determines the UDP source port; 0: the QP does.
    remote_qpn, remote_qkey : int
    status : WCStatus or None
        Status with which it fails in its turn.
    asked : bool
        The destination's MAC address was requested.
    """

    plain: ClassVar[bool] = True       # it needs no preparation: see Operation
    single: ClassVar[bool] = True
    wr_id: int
    opcode: WROpcode
    sges: list[tuple[int, int, int]]
    length: int
    ip: int
    remote_qpn: int
    remote_qkey: int
    flow_label: int = 0
    imm: int | None = None
    signaled: bool = True
    solicited: bool = False
    inline: bytes | None = None
    status: WCStatus | None = None
    asked: bool = False
