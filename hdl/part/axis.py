"""AXI4-Stream edge of the card: signatures with the names vendors use."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


def axis_signature(*, data_width, user_width, keep_lane_width=8):
    """Return the signature of an AXI4-Stream, seen from the source.

    Parameters
    ----------
    data_width : int
        Bits of ``tdata``.
    user_width : int
        Bits of ``tuser``.
    keep_lane_width : int
        Bits of data per bit of ``tkeep``: 8, or 32 at the PCIe hard block.

    Raises
    ------
    ValueError
        If ``keep_lane_width`` does not divide ``data_width``.
    """
    if data_width % keep_lane_width:
        raise ValueError(f"a {data_width}-bit stream has no whole number of {keep_lane_width}-bit lanes")
    return wiring.Signature({
        "tdata": Out(data_width),
        "tkeep": Out(data_width // keep_lane_width),
        "tlast": Out(1),
        "tuser": Out(user_width),
        "tvalid": Out(1),
        "tready": In(1),
    })
