"""MAC control frames and their interpretation by the card."""

from weft.hdl.contract import wire


def is_mac_control(frame):
    """Return whether a frame is for the MAC only."""
    return isinstance(frame, bytes) and len(frame) >= wire.ETH.size_bytes and (
        wire.ETH.unpack(frame).ethertype == wire.ETHERTYPE_MAC_CONTROL)


def understood(frame):
    """Return the fields of a valid frame of priority-based flow control, or None."""
    if not wire.MIN_FRAME_BYTES <= len(frame) <= wire.MIN_FRAME_BYTES + 4:
        return None
    pfc = wire.PFC.unpack(frame[wire.ETH.size_bytes:])
    sound = wire.ETH.unpack(frame).dst == wire.MAC_CONTROL_ADDRESS and pfc.opcode == wire.MacControl.PFC
    return pfc if sound else None
