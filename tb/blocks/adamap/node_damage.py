"""Blocks of the knitting buffer that say something else than what the driver wrote."""

from weft.hdl import abi
from weft.model.functional.node import damage


def resealed(block, **fields):
    """The block with other fields, and a check word that holds."""
    word = int.from_bytes(block, "little")
    for name, value in (*fields.items(), ("check", 0)):
        mask = (1 << abi.NODE.by_name[name].width) - 1
        word = word & ~(mask << abi.NODE.shift_of(name)) | value << abi.NODE.shift_of(name)
    sum_ = damage(word.to_bytes(abi.BLOCK_BYTES, "little"))
    return (word | sum_ << abi.NODE.shift_of("check")).to_bytes(abi.BLOCK_BYTES, "little")


def flipped(block, name, bit):
    """The block with another bit in a field, and a check word that holds."""
    return resealed(block, **{name: getattr(abi.NODE.unpack(block), name) ^ 1 << bit})
