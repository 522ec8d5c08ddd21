"""Numbers of the blocks of the knitting buffer: what the card keeps of a pointer once it was checked."""

from amaranth.hdl import Cat, Mux, Value

from ..contract.params import CardParams


def dead(params: CardParams):
    """Stands in the place of a block number: the list was given up, or there is none."""
    return (1 << params.block_bits) - 1


def stray(params: CardParams):
    """Stands in the place of a block number: the pointer led outside the extents."""
    return dead(params) - 1


def extent_member(params: CardParams):
    """Shape of how many blocks an extent has; there are no numbers for more."""
    return params.extent_blocks_log2 + 1


def held(params: CardParams, lines):
    """How many blocks of an extent of so many lines have numbers."""
    most = params.extent_blocks_log2
    return Mux(lines[most:].any(), 1 << most, lines[:most])


def split(params: CardParams, block):
    """(extent, offset in it) of a block number."""
    return block[params.extent_blocks_log2:], block[:params.extent_blocks_log2]


def in_extent(params: CardParams, values, extent):
    """The value of an extent."""
    values = [Value.cast(value) for value in values]
    return Cat(values).word_select(extent, len(values[0])) if params.knit_extents > 1 else values[0]


def line_of(params: CardParams, bases, block):
    """Physical address divided by 64 of a block; ``bases`` are those of the extents."""
    extent, offset = split(params, block)
    return (in_extent(params, bases, extent) + offset)[:58]
