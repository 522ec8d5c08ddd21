"""Corrupted blocks of the knitting buffer."""

from weft.hdl.contract import abi
from weft.model.functional.node import sealed


def resealed(block, **fields):
    """Return the block with changed fields and valid checks."""
    word = int.from_bytes(block, "little")
    for name, value in fields.items():
        mask = (1 << abi.NODE.by_name[name].width) - 1
        word = word & ~(mask << abi.NODE.shift_of(name)) | value << abi.NODE.shift_of(name)
    return sealed(word.to_bytes(abi.BLOCK_BYTES, "little"))


def flipped(block, name, bit):
    """Return the block with one bit of a field flipped and valid checks."""
    return resealed(block, **{name: getattr(abi.NODE.unpack(block), name) ^ 1 << bit})
