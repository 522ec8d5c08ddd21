"""Control frames of the protocol, sent and received by the Simple NIC."""

from dataclasses import dataclass

from weft.hdl.contract import wire


@dataclass
class ControlFrame:
    """Control frame to the peer.

    Attributes
    ----------
    psn, rsn, msn : int
        24 bit each.
    syndrome : int
        Of an ACKNOWLEDGE: positive, RNR NAK or NAK, by ``wire.Syndrome``.
    payload : bytes
        Node of a LOSS_REPORT.
    limited, serial : bool, int
        Of a RECEIVE_LIMIT.
    sport : int or None
        UDP source port; None: that of the QP.
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
