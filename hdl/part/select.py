"""One-hot encoder and multiplexers, tag compare, and a register with a late input."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .logic import encode_one_hot, one_hot_mux


class OneHotEncoder(wiring.Component):
    """Encoder of one-hot bits. Combinational.

    Kept as a block because ``weft synth`` maps block by block and saves area on every path that is shorter than the
    longest one of its block: see "Size and longest paths" in docs/development.md.

    Parameters
    ----------
    width : int
        A power of two.

    Members
    -------
    i, among : In(width)
        At most one bit is set in both.
    index : Out(range(width))
        Index of that bit; 0 if there is none.
    found : Out(1)
        There is one.
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"i": In(width), "among": In(width), "index": Out(range(width)), "found": Out(1)})

    def elaborate(self, platform):
        m = Module()
        bits = self.i & self.among
        m.d.comb += [self.index.eq(encode_one_hot(bits)), self.found.eq(bits.any())]
        return m


class AnyBit(wiring.Component):
    """Reduction OR. Combinational; kept as a block for the same reason as :class:`OneHotEncoder`.

    Parameters
    ----------
    width : int

    Members
    -------
    i : In(width)
    o : Out(1)
    """

    def __init__(self, width):
        super().__init__({"i": In(width), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.i.any())
        return m


class OneHotBit(wiring.Component):
    """One-hot multiplexer of bits. Combinational; kept as a block for the same reason as :class:`OneHotEncoder`.

    Parameters
    ----------
    width : int

    Members
    -------
    i, among : In(width)
        At most one bit is set in both: the select.
    bits : In(width)
    o : Out(1)
        The selected bit; 0 if there is none.
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"i": In(width), "among": In(width), "bits": In(width), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq((self.i & self.among & self.bits).any())
        return m


class OneHotMux(wiring.Component):
    """One-hot multiplexer. Combinational.

    Parameters
    ----------
    width, places : int
        Bits of a value; number of values.

    Members
    -------
    chosen : In(places)
        Select; at most one bit is set.
    values : In(width).array(places)
    o : Out(width)
        The selected value; 0 if there is none.
    """

    def __init__(self, width, places):
        super().__init__({"chosen": In(places), "values": In(width).array(places), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(one_hot_mux(self.chosen, self.values))
        return m


class TagCompare(wiring.Component):
    """Tag compare: a number with the tags of all entries. Combinational.

    Parameters
    ----------
    width, places : int
        Bits of a tag; number of entries.

    Members
    -------
    i : In(width)
    numbers, present : In(width).array(places), In(places)
        Tags, and which entries are valid.
    bits : Out(places)
        Valid entries with that tag.
    any : Out(1)
        There is one.
    """

    def __init__(self, width, places):
        super().__init__({"i": In(width), "numbers": In(width).array(places), "present": In(places),
                          "bits": Out(places), "any": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.bits.eq(self.present & Cat(number == self.i for number in self.numbers)),
                     self.any.eq(self.bits.any())]
        return m


class LateMux(wiring.Component):
    """Register with a late input: loads ``late``, ``early`` or ``other``, or holds. Latency 1.

    Kept as a block: folded into the wait queue, the estimated path of the matcher becomes 3.78 instead of 2.74 ns.

    Parameters
    ----------
    shape : ShapeLike
    other : bool
        Add a third value.

    Members
    -------
    late_en, late : In(1), In(shape)
    early_en, early : In(1), In(shape)
        Valid while ``late_en`` is low.
    other_en, other : In(1), In(shape)
        If ``other`` is set: loaded instead of ``early`` while ``early_en`` is high.
    o : Out(shape)
    """

    def __init__(self, shape, other=False):
        self.other_too = other
        super().__init__({"late_en": In(1), "late": In(shape), "early_en": In(1), "early": In(shape), "o": Out(shape),
                          **({"other_en": In(1), "other": In(shape)} if other else {})})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.late_en):
            m.d.sync += self.o.eq(self.late)
        with m.Elif(self.early_en):
            m.d.sync += self.o.eq(Mux(self.other_en, self.other, self.early) if self.other_too else self.early)
        return m
