"""Blocks of the knitting buffer that say something else than what the driver wrote."""

from weft.hdl.contract import abi
from weft.model.functional.node import sealed


def resealed(block, **fields):
    """The block with other fields, and checks that hold."""
    word = int.from_bytes(block, "little")
    for name, value in fields.items():
        mask = (1 << abi.NODE.by_name[name].width) - 1
        word = word & ~(mask << abi.NODE.shift_of(name)) | value << abi.NODE.shift_of(name)
    return sealed(word.to_bytes(abi.BLOCK_BYTES, "little"))


def flipped(block, name, bit):
    """The block with another bit in a field, and checks that hold."""
    return resealed(block, **{name: getattr(abi.NODE.unpack(block), name) ^ 1 << bit})
