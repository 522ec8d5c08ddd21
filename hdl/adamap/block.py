"""Block numbers of the knitting buffer, and the lookup of a line in the extents."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part.logic import encoded, lowest
from .select import OneOf


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


class Pointed(wiring.Component):
    """Looks a line up in the extents. One per cycle, latency 3.

    Where extents overlap, the last one counts. A line in none is that of a stray block.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    extent_base, extent_lines : arrays of In
        Where blocks may lie; ``lines`` 0: nowhere. A change counts a cycle later.
    line : In(58)
    o : Out(params.block_bits)
        Three cycles later.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "extent_base": In(58).array(params.knit_extents),
            "extent_lines": In(extent_member(params)).array(params.knit_extents),
            "line": In(58), "o": Out(params.block_bits),
        })

    def elaborate(self, platform):
        m = Module()
        p, n = self.params, self.params.knit_extents
        size_log2, strayed = p.extent_blocks_log2, stray(p)
        inside, last, beyond = Signal(n), Signal(n), Signal(2)      # `beyond`: the last two numbers are no blocks
        line, later = Signal(size_log2), Signal(size_log2)
        for k, (base, lines) in enumerate(zip(self.extent_base, self.extent_lines, strict=True)):
            end = Signal(59, name=f"end{k}")        # two comparisons beside each other, none of what is subtracted
            m.d.sync += [end.eq(base + lines), inside[k].eq((self.line >= base) & (self.line < end))]
        offset = (self.line - base)[:size_log2]     # in the last one
        m.d.sync += [line.eq(self.line), later.eq(line), last.eq(Cat(reversed(lowest(m, reversed(inside), "last")))),
                     beyond.eq(Cat(offset[1:].all(), beyond[0] & inside[n - 1]))]

        m.submodules.base = base = OneOf(size_log2, n)
        number = Signal(p.block_bits)
        m.d.comb += [base.chosen.eq(last), number.eq(Cat((later - base.o)[:size_log2], encoded(last))),
                     *[value.eq(each) for value, each in zip(base.values, self.extent_base, strict=True)]]
        m.d.sync += self.o.eq(Mux(last.any() & ~beyond[1], number, strayed))
        return m
