"""The knitting buffer of benches of the Adamap subsystem."""

from weft.hdl.part.layouts import LINE_WIDTH

PAGE = 64           # lines
SMALL = 62          # lines of the small extent
PIECE = 4           # consecutive lines


class KnittingLines:
    """Two extents anywhere in memory, one of them large; their addresses differ in every bit.

    Neither ends at a page boundary.

    Parameters
    ----------
    params : CardParams
    rng : random.Random

    Attributes
    ----------
    extents : list of (int, int)
        First line and number of lines.
    small : range
        The lines of the small extent.
    lines : list of int
        Lines for nodes: the small extent, pieces of the large one, and its last lines.
    """

    def __init__(self, params, rng):
        self.number_bits = params.extent_blocks_log2
        base = rng.getrandbits(LINE_WIDTH) & -PAGE
        most = 1 << params.extent_blocks_log2
        count = rng.randrange(most // 4, most - PAGE) & -PAGE | rng.randrange(8, SMALL)
        far = base ^ (1 << LINE_WIDTH) - PAGE
        self.small = range(base, base + SMALL)
        self.extents = [(base, SMALL), (far, count)]
        rng.shuffle(self.extents)
        offsets = rng.sample(range(0, count - PAGE, PIECE), SMALL // PIECE)
        self.lines = [*self.small, *(far + first + k for first in offsets for k in range(PIECE)),
                      *range(far + count - PIECE, far + count)]

    def number(self, line):
        """Return the block number of a line, as in a link doorbell."""
        return next(index << self.number_bits | line - first for index, (first, count) in enumerate(self.extents)
                    if first <= line < first + count)

    def inside(self, line):
        """Return True if a line lies in an extent."""
        return any(first <= line < first + count for first, count in self.extents)
