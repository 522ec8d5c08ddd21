"""Identification and capabilities of a card."""

from dataclasses import dataclass
from typing import Self

from weft.hdl.contract import abi

from .device import Device


class IncompatibleCard(Exception):
    """The device is not a Weft card, or has an incompatible interface."""


def read_register(device: Device, name: str) -> int:
    """Read a register by its name in ``abi.REGISTERS``."""
    register = abi.REGISTER[name]
    return (device.read64 if register.width == 64 else device.read32)(register.offset)


def write_register(device: Device, name: str, value: int) -> None:
    """Write a register by its name in ``abi.REGISTERS``."""
    register = abi.REGISTER[name]
    (device.write64 if register.width == 64 else device.write32)(register.offset, value)


@dataclass(frozen=True)
class Capabilities:
    """Sizes of a card, from the registers ``version`` and ``cap_*``.

    Attributes
    ----------
    version : tuple of int
        Three numbers of the interface.
    max_qp, max_mr, max_pte : int
        Entries of the tables of QPs, memory regions and pages. Programs get QPs from index 2 on.
    window_bits : int
        Bits of the bitmap window of each QP.
    cache_entries : int
        Nodes in the head cache.
    max_extents : int
        Extents of the knitting buffer.
    msix_vectors : int
    max_prefetch_depth : int
        Largest number of nodes of a list in the head cache.
    block_number_bits : int
        Bits of a block's number in its extent.
    inline_bytes : int
        Largest payload in a descriptor; 0 if the card does not support any.
    pace_descriptors : int
        Descriptors that the pacer holds; 0 if the card has none.
    """

    version: tuple[int, int, int]
    max_qp: int
    max_mr: int
    max_pte: int
    window_bits: int
    cache_entries: int
    max_extents: int
    msix_vectors: int
    max_prefetch_depth: int
    block_number_bits: int
    inline_bytes: int
    pace_descriptors: int

    @classmethod
    def of(cls, device: Device) -> Self:
        """Read the capabilities of a device.

        Raises
        ------
        IncompatibleCard
            If magic number, or major or minor version, differ.
        """
        magic, version = read_register(device, "magic"), read_register(device, "version")
        if magic != abi.MAGIC:
            raise IncompatibleCard(f"no Weft card: the magic register reads {magic:#010x}, not {abi.MAGIC:#010x}")
        found = (version >> 24, version >> 16 & 0xFF, version & 0xFFFF)
        if found[:2] != abi.VERSION[:2]:
            text = ".".join(map(str, found))
            raise IncompatibleCard(
                f"the card has interface version {text} and this driver {'.'.join(map(str, abi.VERSION))}; install the "
                "driver that belongs to the card")
        tables, adamap, misc, transmit = (
            read_register(device, f"cap_{n}") for n in ("tables", "adamap", "misc", "transmit"))
        max_qp, max_mr, max_pte = (1 << (tables >> shift & 0xFF) for shift in (0, 8, 16))
        max_extents, msix_vectors, prefetch_depth, block_bits = (misc >> shift & 0xFF for shift in (0, 8, 16, 24))
        return cls(found, max_qp, max_mr, max_pte, adamap & 0xFFFF, adamap >> 16, max_extents, msix_vectors,
                   prefetch_depth, block_bits, min(transmit & 0xFF, abi.INLINE_MAX), transmit >> 16)

    @property
    def max_extent_bytes(self) -> int:
        """Largest knitting extent: two block numbers are reserved."""
        return ((1 << self.block_number_bits) - 2) * abi.BLOCK_BYTES
