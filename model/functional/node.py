"""Codec of Adamap nodes in the functional model.

It shares only the layout and its limits (:mod:`weft.hdl.contract.abi`) with the driver, so that the two codecs do not
share mistakes; tests compare them byte for byte, and the RTL with this one.

A node consists of 32 words of 16 bits, little-endian. The first 4 point to the next node. The last 20 are the body:
offsets from the first hole (LIST), pairs of offset and length (RUNS), or a bit for each PSN from the first hole on
(BITMAP).
"""

import struct
from dataclasses import dataclass
from itertools import pairwise

from weft.hdl.contract import abi

_BLOCK = struct.Struct("<32H")
_CHECK, _POINTER_WORDS = abi.NODE.shift_of("check") // 16, abi.NODE.shift_of("qpn") // 16
_NEXT_CHECK = abi.NODE.shift_of("next_check")
_BODY_BYTES = abi.NODE_BODY_BITS // 8
_OFFSETS = 1 << abi.OFFSET_BITS
_LIST, _BITMAP = abi.Encoding.LIST, abi.Encoding.BITMAP


def damage(block):
    """Return 0 if the checks of a block and of its pointer hold."""
    words = _BLOCK.unpack(block)
    return _odd(words[_POINTER_WORDS:]) or _astray(words)


def sealed(block):
    """Return a block with valid checks."""
    words = list(_BLOCK.unpack(block))
    words[_CHECK] = 0
    words[_CHECK] = _odd(words[_POINTER_WORDS:])
    words[0] &= ~(15 << _NEXT_CHECK)
    astray = _astray(words)
    for bit in range(_NEXT_CHECK, _NEXT_CHECK + 4):     # one for each bit position of a 4-bit part
        words[0] |= (astray >> bit % 4 & 1) << bit
    return _BLOCK.pack(*words)


def _odd(words):
    odd = 0
    for word in words:
        odd ^= word
    return odd


def _astray(words):
    """Return the XOR of the 4-bit parts of the pointer."""
    odd = _odd(words[:_POINTER_WORDS])
    return (odd ^ odd >> 4 ^ odd >> 8 ^ odd >> 12) % 16


def runs_of(holes):
    """Convert ascending numbers to runs ``[(first, length), ...]``."""
    holes = list(holes)
    starts = [k for k, hole in enumerate(holes) if not k or hole != holes[k - 1] + 1]
    return [(holes[k], end - k) for k, end in pairwise([*starts, len(holes)])]


def fits(encoding, holes):
    """Return whether an encoding can hold these holes: ascending distances, the first 0."""
    if not 0 < len(holes) <= abi.HOLES_MAX[encoding]:
        return False
    if encoding == _BITMAP:
        return holes[-1] < abi.NODE_BODY_BITS
    if encoding == _LIST:
        return holes[-1] < _OFFSETS
    starts = [b for a, b in pairwise([-2, *holes]) if b != a + 1]
    return len(starts) <= abi.RUNS_MAX and starts[-1] < _OFFSETS


def choose_encoding(holes):
    """Return the encoding with the smallest number that can hold these holes, or None."""
    return min((encoding for encoding in abi.Encoding if fits(encoding, holes)), default=None)


def encode_body(encoding, holes):
    """Return the body as an integer.

    Raises
    ------
    ValueError
        If the holes do not fit the encoding.
    """
    if not fits(encoding, holes):
        raise ValueError(f"{encoding.name} cannot hold these {len(holes)} holes")
    body = bytearray(_BODY_BYTES)
    if encoding == _BITMAP:
        for hole in holes:
            body[hole // 8] |= 1 << hole % 8
    else:
        words = holes if encoding == _LIST else [word for run in runs_of(holes) for word in run]
        struct.pack_into(f"<{len(words)}H", body, 0, *words)
    return int.from_bytes(body, "little")


def decode_body(encoding, count, body):
    """Return the holes of a body in ascending order.

    Raises
    ------
    ValueError
        If encoding, count and body do not agree.
    """
    if encoding not in abi.HOLES_MAX or not 0 < count <= abi.HOLES_MAX[encoding]:
        raise ValueError(f"encoding {encoding} with {count} holes")
    data = body.to_bytes(_BODY_BYTES, "little")
    if encoding == _BITMAP:
        holes = [8 * at + bit for at, byte in enumerate(data) for bit in range(8) if byte & 1 << bit]
    else:
        words = struct.unpack(f"<{_BODY_BYTES // 2}H", data)
        pairs = zip(words[::2], words[1::2], strict=True)
        if encoding == _LIST:
            holes = list(words[:count])
        elif sum(words[1::2]) != count:
            raise ValueError(f"{count} holes, and runs of {sum(words[1::2])}")
        else:
            holes = [hole for first, length in pairs for hole in range(first, first + length)]
    if len(holes) != count or sorted(set(holes)) != holes:
        raise ValueError(f"{count} holes, and a body that holds {len(holes)} or not in order")
    return tuple(holes)


def open_holes(encoding, holes, bits):
    """Return the holes that ``open`` of a RETIRE report leaves: bits by slot, or by distance for a BITMAP."""
    places = holes if encoding == _BITMAP else range(len(holes))
    return [hole for hole, place in zip(holes, places, strict=True) if bits & 1 << place]


@dataclass(frozen=True)
class Node:
    """Adamap node.

    Attributes
    ----------
    qpn, generation : int
        The receiving QP.
    base_psn, rsn : int
        32-bit PSN and RSN of the first hole.
    encoding : abi.Encoding
    holes : tuple of int
        Lost PSNs as distances from ``base_psn``, ascending, the first 0. Hole i has RSN ``rsn + i``.
    """

    qpn: int
    generation: int
    base_psn: int
    rsn: int
    encoding: abi.Encoding
    holes: tuple

    @classmethod
    def unpack(cls, block):
        """Read the 64 bytes of a block, or of a NODE report.

        Raises
        ------
        ValueError
            If encoding, count and body do not agree.
        """
        found = abi.NODE.unpack(block)
        holes = decode_body(found.encoding, found.count, found.body)
        return cls(found.qpn, found.generation, found.base_psn, found.rsn, found.encoding, holes)

    def pack(self, *, next_line=0, next_phase=0, next_adjacent=0):
        """Return the 64 bytes of a block of the knitting buffer."""
        return sealed(abi.NODE.pack(
            next_line=next_line, next_phase=next_phase, next_adjacent=next_adjacent, qpn=self.qpn,
            generation=self.generation, count=len(self.holes), encoding=self.encoding, base_psn=self.base_psn,
            rsn=self.rsn, body=encode_body(self.encoding, self.holes)))

    @property
    def psns(self):
        """Lost PSNs, 32 bit."""
        return [(self.base_psn + hole) % (1 << 32) for hole in self.holes]
