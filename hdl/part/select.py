"""Selection by one-hot bits, comparison with several numbers, and a register whose choice comes late."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .logic import choose, encoded


class IndexOf(wiring.Component):
    """Which of some bits is set, and whether one is. Combinational.

    Stays a block for the mapper of ``weft synth``, which maps block by block and saves cells on every path that is
    shorter than the longest one of its block: see "Size and longest paths" in docs/development.md.

    Parameters
    ----------
    width : int
        A power of two.

    Members
    -------
    i, among : In(width)
        At most one bit is set in both.
    index : Out(range(width))
        0 if none is.
    found : Out(1)
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"i": In(width), "among": In(width), "index": Out(range(width)), "found": Out(1)})

    def elaborate(self, platform):
        m = Module()
        bits = self.i & self.among
        m.d.comb += [self.index.eq(encoded(bits)), self.found.eq(bits.any())]
        return m


class AnyOf(wiring.Component):
    """Whether any of some bits is set. Combinational; a block of its own for the same reason.

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


class BitOf(wiring.Component):
    """One of some bits, chosen by which is set of others. Combinational; a block of its own for the same reason.

    Parameters
    ----------
    width : int

    Members
    -------
    i, among : In(width)
        At most one bit is set in both.
    bits : In(width)
    o : Out(1)
        0 if none is.
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"i": In(width), "among": In(width), "bits": In(width), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq((self.i & self.among & self.bits).any())
        return m


class OneOf(wiring.Component):
    """Combinational.

    Parameters
    ----------
    width, places : int

    Members
    -------
    chosen : In(places)
        At most one bit is set.
    values : In(width).array(places)
    o : Out(width)
        0 if none is.
    """

    def __init__(self, width, places):
        super().__init__({"chosen": In(places), "values": In(width).array(places), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(choose(self.chosen, self.values))
        return m


class Among(wiring.Component):
    """Compares a number with those of some places. Combinational.

    Parameters
    ----------
    width, places : int

    Members
    -------
    i : In(width)
    numbers, present : In(width).array(places), In(places)
        What is compared, and where there is something.
    bits : Out(places)
        It is there.
    any : Out(1)
        It is anywhere.
    """

    def __init__(self, width, places):
        super().__init__({"i": In(width), "numbers": In(width).array(places), "present": In(places),
                          "bits": Out(places), "any": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.bits.eq(self.present & Cat(number == self.i for number in self.numbers)),
                     self.any.eq(self.bits.any())]
        return m


class LateChoice(wiring.Component):
    """Takes ``late``, ``early`` or what is ``other``, or keeps what it has. Latency 1.

    Stays a block: with those of the wait queue folded into it, the estimated path of the matcher takes 3.78 ns, not
    2.74.

    Parameters
    ----------
    shape
    other : bool
        Whether there is a third value.

    Members
    -------
    late_en, late : In(1), In(shape)
    early_en, early : In(1), In(shape)
        Counts while ``late_en`` is low.
    other_en, other : In(1), In(shape)
        If it has ``other``: what it takes in place of ``early``, while ``early_en`` is high too.
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
