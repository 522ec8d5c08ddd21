"""Whether a header has an older one before it in the match queue."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


def group_of(width):
    """How many bits are looked at before groups of them are: as many as a LUT has inputs, if that makes two groups."""
    return min(4, max(width // 2, 1))


def in_groups(bits):
    """Whether each bit or one before it is set, in its group."""
    bits = Cat(bits)
    return Cat(bits[k - k % group_of(len(bits)):k + 1].any() for k in range(len(bits)))


def before_groups(bits):
    """Whether one before each group is set."""
    bits = Cat(bits)
    return Cat(bits[:start].any() for start in range(0, len(bits), group_of(len(bits))))


def moved_up(gone, values, end=0):
    """Values as they lie when those that are ``gone``, all from one place on, gave way to the ones behind them."""
    return [Mux(gone[k], after, value) for k, (value, after) in enumerate(zip(values, [*values[1:], end], strict=True))]


def spread(groups, width):
    """A bit of each group as one of each of its bits."""
    return Cat(bit.replicate(group_of(width)) for bit in groups)


class Elders(wiring.Component):
    """Headers of a queue that are older than one of them. Combinational; a block of its own, as :class:`Older` is.

    Parameters
    ----------
    width : int

    Members
    -------
    mates, passed : In(width)
        The headers of its QP; itself, if it is there, with those behind it in its group.
    queued : In(1)
        Otherwise all are older.
    o : Out(width)
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"mates": In(width), "passed": In(width), "queued": In(1), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        group = group_of(self.width)
        ends = self.passed[group - 1::group]    # of a group in which it is
        so_far = Cat(self.passed[k] | ends[:k // group].any() for k in range(self.width))
        m.d.comb += self.o.eq(self.mates & ~(so_far & self.queued.replicate(self.width)))
        return m


class Older(wiring.Component):
    """Is one of some headers in the queue still, behind what this cycle does? Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: the next header waits for its answer.

    Parameters
    ----------
    width : int

    Members
    -------
    i : In(width)
        The headers that are older, in the order of the queue.
    remove_en, here : In(1), In(width)
        The one that leaves.
    coming : In(1)
        One more comes.
    o : Out(1)
    """

    def __init__(self, width):
        super().__init__({"i": In(width), "remove_en": In(1), "here": In(width), "coming": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(Mux(self.remove_en, (self.i & ~self.here).any(), self.i.any()) | self.coming)
        return m
