"""Frames of priority-based flow control as a peer sends them."""

from weft.hdl.contract import wire


def pause_frame(times, *, src, dst=wire.MAC_CONTROL_ADDRESS, opcode=wire.MacControl.PFC, length=wire.MIN_FRAME_BYTES):
    """Return a frame that requests a pause of each priority in ``times``, for its number of quanta."""
    frame = wire.ETH.pack(dst=dst, src=src, ethertype=wire.ETHERTYPE_MAC_CONTROL) + wire.PFC.pack(
        opcode=opcode, classes=sum(1 << k for k in times), **{f"time{k}": quanta for k, quanta in times.items()})
    return frame.ljust(length, b"\0")[:length]
