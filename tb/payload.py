"""Payloads of streams as integers: how a bench writes and reads a struct that a simulator shows as one port."""

from amaranth.lib import data


def pack(shape, **fields):
    """Integer of a struct payload."""
    return shape.const(fields).as_bits() if hasattr(shape, "const") else data.Const(shape, fields)


def unpack(shape, value):
    """Fields of a struct payload, enums as integers."""
    layout = data.Layout.cast(shape)
    return {name: (value >> f.offset) & ((1 << f.width) - 1) for name, f in layout}
