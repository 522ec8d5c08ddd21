"""Layouts as machine words, for fast packing and unpacking; the status block."""

import collections
import struct

from weft.hdl.contract import abi

_CHARS = {8: "B", 16: "H", 32: "I", 64: "Q"}
_ORDER = {"little": "<", "big": ">"}
_NAMES = [field.name for field in abi.STATUS_BLOCK.fields if not field.name.startswith("_")]


def words(layout, *parts):
    """Return a :class:`struct.Struct` of chosen words of a layout, in its order.

    Bytes between the words are packed as 0 and ignored when unpacked. A word is the name of a field, or ``(name,
    bits)``: that number of bits from the beginning of the field. Its width is 8, 16, 32 or 64, and it begins at a whole
    byte.

    Raises
    ------
    ValueError
        If the layout has no such words.
    """
    text, at = _ORDER[layout.byteorder], 0
    for name, bits in ((part, layout.by_name[part].width) if isinstance(part, str) else part for part in parts):
        start = layout.offset_of(name)
        if start % 8 or bits not in _CHARS or start // 8 < at:
            raise ValueError(f"{layout.name}.{name} does not begin a word of {bits} bits after byte {at}")
        text += f"{start // 8 - at}x{_CHARS[bits]}"
        at = (start + bits) // 8
    return struct.Struct(f"{text}{layout.size_bytes - at}x")


def place(layout, first, bits, name):
    """Return (shift, mask) of the field ``name`` in the word of ``bits`` bits that begins at the field ``first``."""
    within, width = layout.offset_of(name) - layout.offset_of(first), layout.by_name[name].width
    return within if layout.byteorder == "little" else bits - within - width, (1 << width) - 1


_WORDS = words(abi.STATUS_BLOCK, *_NAMES)

Status = collections.namedtuple("Status", _NAMES)
Status.__doc__ = """Indices by the names of ``STATUS_BLOCK``."""


def unpack_status(data):
    """Return the :class:`Status` of the block's bytes."""
    return tuple.__new__(Status, _WORDS.unpack(data))
