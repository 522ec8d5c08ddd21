"""Vendor-neutral transaction layer packets for the DMA engines."""

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib import data

from ..part.layouts import BEAT_BITS

DWORD_BITS = 32
LANES = BEAT_BITS // DWORD_BITS     # double words of a beat
TAG_BITS = 8
TAGS = 1 << TAG_BITS
PAGE_BYTES = 4096                   # no request crosses a multiple of this
SIZE_CODE_WIDTH = 3                 # MPS and MRRS are coded: 128 bytes << code
SIZE_CODE_MAX = 5
SIZE_MIN_LOG2 = 7


class ReadTlp(data.Struct):
    """A memory read request: the double words that contain the bytes, with byte enables at both ends."""

    address: 62     # byte address divided by 4
    dwords: 11      # 1 to 1024
    first_be: 4
    last_be: 4      # 0 when there is one double word
    tag: TAG_BITS


class WriteTlp(data.Struct):
    """One beat of a memory write. Lane 0 of the first beat is the double word at ``address``.

    The header fields hold throughout the packet.
    """

    data: BEAT_BITS
    first: 1
    last: 1
    address: 62
    dwords: 11
    first_be: 4
    last_be: 4


class CompletionBeat(data.Struct):
    """One beat of a read completion, as the link delivers it.

    Lane i holds the double word whose address, modulo 4 KiB, is ``dword + i``, if bit i of ``lanes``
    is set. With ``error`` no lane is valid. ``last`` ends the completion; ``done``: nothing more will come
    for this tag.
    """

    data: BEAT_BITS
    lanes: LANES
    dword: 10
    tag: TAG_BITS
    last: 1
    done: 1
    error: 1

    def end_badly(self, tag):
        """Return assignments for the failure of the read with this tag, without data."""
        return [self.tag.eq(tag), self.last.eq(1), self.done.eq(1), self.error.eq(1)]


class Piece(data.Struct):
    """Part of a DMA request that fits one TLP. ``last`` ends the group."""

    address: 64
    length: 13
    last: 1


def byte_enables(m, address, length):
    """Return double-word count and byte enables of ``length`` bytes at byte ``address``.

    Returns
    -------
    dwords, first_be, last_be : Signal(11), Signal(4), Signal(4)
        Combinational. ``last_be`` is 0 when there is a single double word.
    """
    dwords, first_be, last_be = Signal(11), Signal(4), Signal(4)
    head, low, rest = address[:2], length[:2], length[2:]
    some, over, single, end = Signal(), Signal(), Signal(), Signal(2)
    first_mask, last_mask = Signal(4), Signal(4)
    # One carry chain: `length + head + 3` needs two, and `dwords == 1` a comparison after them.
    m.d.comb += [
        some.eq((head | low).any()), over.eq(head[1] & low[1] & (head[0] | low[0])),
        dwords.eq(rest + Cat(some & ~over, over)),
        single.eq(Mux(some, (rest == 0) & ~over, rest == 1)),
        end.eq(length + head),
        first_mask.eq(Const(0xF, 4) << head),
        last_mask.eq(Const(0xF, 4) >> (-end)[:2]),
        first_be.eq(Mux(single, first_mask & last_mask, first_mask)),
        last_be.eq(Mux(single, 0, last_mask)),
    ]
    return dwords, first_be, last_be


def rotate_right(value, lane_bits, amount):
    """Return ``value`` with lane j taken from lane ``j + amount`` (modulo the number of lanes)."""
    for bit in range(len(amount)):
        step = lane_bits << bit
        value = Mux(amount[bit], Cat(value[step:], value[:step]), value)
    return value
