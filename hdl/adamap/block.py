"""Numbers of the blocks of the knitting buffer: what the card keeps of a pointer once it was checked."""

from amaranth.hdl import Cat, Const, Mux, Signal, Value

from ..logic import choose, lowest
from ..params import CardParams


def dead(params: CardParams):
    """Stands in the place of a block number: the list was given up, or there is none."""
    return (1 << params.block_bits) - 1


def stray(params: CardParams):
    """Stands in the place of a block number: the pointer led outside the extents."""
    return dead(params) - 1


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


def find(m, params: CardParams, bases, sizes, line, *, name):
    """The number of the block at a physical line, combinational; :func:`stray` if it lies in no extent."""
    size_log2 = params.extent_blocks_log2
    found, inside = Signal(params.block_bits, name=name), Signal(len(bases), name=f"{name}_inside")
    blocks = []
    for k, (base, size) in enumerate(zip(bases, sizes, strict=True)):
        offset, block = Signal(58, name=f"{name}_offset{k}"), Signal(params.block_bits, name=f"{name}_block{k}")
        m.d.comb += [
            offset.eq(line - base),
            block.eq(Cat(offset[:size_log2], Const(k, params.extent_index_bits))),
            inside[k].eq((line >= base) & ~offset[size_log2:].any() & (offset[:size_log2] < size)),
        ]
        blocks.append(Mux(block >= stray(params), stray(params), block))
    last = lowest(m, reversed(inside), f"{name}_last")
    m.d.comb += found.eq(Mux(inside.any(), choose(last, reversed(blocks)), stray(params)))
    return found
