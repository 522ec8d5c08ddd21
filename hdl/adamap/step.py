"""What a bitmap of received PSNs says: how far a window slides in one cycle, and of one PSN."""

from operator import or_

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..logic import below, leading, up_to

STEP = 16      # PSNs the window slides over in one cycle while it holds received ones


class Step(wiring.Component):
    """One step of a window that slides: it skips received PSNs, then counts missing ones. Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is.

    Parameters
    ----------
    bits : int
        Of the bitmap.

    Members
    -------
    bitmap, slide, limited : In(bits), In(24), In(STEP)
        The window, and over how many PSNs it has yet to slide; that again, a bit for each, as far as ``STEP`` goes.
    skip, holes : Out(range(STEP + 1)), Out(24)
        Received ones first, then missing ones; ``some``: there are missing ones.
    advance, shift : Out(24), Out(range(STEP + 1))
        Both together: the base moves by ``advance``, the bitmap, unless it is empty, by as much.
    limiting : Out(STEP)
        What becomes of ``limited``.
    """

    def __init__(self, bits):
        self.bits = bits
        super().__init__({
            "bitmap": In(bits), "slide": In(24), "limited": In(STEP),
            "skip": Out(range(STEP + 1)), "some": Out(1), "holes": Out(24), "advance": Out(24),
            "shift": Out(range(STEP + 1)), "limiting": Out(STEP),
        })

    def elaborate(self, platform):
        m = Module()
        low, limited = self.bitmap[:STEP], self.limited
        missing_before = up_to(m, limited & ~low, or_, "missing")
        skip, end = (Signal(range(STEP + 1), name=name) for name in ("received", "end"))
        here, ends = Signal(STEP), Signal(STEP)
        m.d.comb += [
            self.some.eq(missing_before[-1]), here.eq(low & limited), ends.eq(~limited | (low & Cat(missing_before))),
            skip.eq(leading(here, 1)), end.eq(leading(ends, 0)), self.shift.eq(end),
        ]
        further = below(m, self.slide, 2 * STEP, "further")
        with m.If(self.bitmap == 0):
            m.d.comb += [self.holes.eq(self.slide), self.advance.eq(self.slide)]
        with m.Else():
            m.d.comb += [self.skip.eq(skip), self.holes.eq(end - skip), self.advance.eq(end),
                         self.limiting.eq(further >> end)]
        return m


class Received(wiring.Component):
    """Whether a PSN of the window was received, and whether it or a newer one was. Combinational.

    A block of its own, too.

    Parameters
    ----------
    bits : int
        Of the bitmap.

    Members
    -------
    bitmap, place : In(bits), In(range(bits))
    it, newer : Out(1)
    """

    def __init__(self, bits):
        self.bits = bits
        super().__init__({"bitmap": In(bits), "place": In(range(bits)), "it": Out(1), "newer": Out(1)})

    def elaborate(self, platform):
        m = Module()
        older = below(m, self.place, self.bits, "older")
        m.d.comb += [self.it.eq((self.bitmap >> self.place)[0]), self.newer.eq((self.bitmap & ~older).any())]
        return m
