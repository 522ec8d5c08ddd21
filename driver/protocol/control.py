"""Control frames of the protocol, sent and received by the Simple NIC."""

from dataclasses import dataclass

from weft.hdl.contract import wire


@dataclass
class ControlFrame:
    """Control frame to the peer.

    ``payload`` is the node of a LOSS_REPORT. ``limited`` and ``serial`` belong to RECEIVE_LIMIT.
    ``sport`` is the UDP source port, or None for that of the QP.
    """

    opcode: wire.Opcode
    psn: int
    rsn: int = 0
    syndrome: int = 0
    msn: int = 0
    payload: bytes = b""
    limited: bool = False
    serial: int = 0
    sport: int | None = None
