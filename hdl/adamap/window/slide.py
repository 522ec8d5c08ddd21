"""Slide of a bitmap window: how far it moves in one cycle."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...part.logic import shift_by_thermometer, thermometer, thermometer_count

RUN_ON = 8     # largest number of received PSNs to slide over in the cycle that finishes a packet
STEP = 16      # largest number of PSNs to slide over in one cycle otherwise


class SlideLookahead(wiring.Component):
    """Lookahead over the lowest bits of a window, registered: the slide is decided from registers.

    Parameters
    ----------
    bits : int
        Of the bitmap, more than ``STEP``.

    Members
    -------
    bitmap, limited, runs : In(bits), In(STEP), In(1)
        The window; ``limited`` of :class:`SlideStep` in the next cycle; a packet is received at the base in the next
        cycle.
    ahead : Out(STEP)
        Bit k: the k PSNs after the first one were received.
    run : Out(range(RUN_ON + 1))
        Number of consecutive received PSNs from the base on, at most ``RUN_ON``; 0 if ``runs`` was low.
    steps, end : Out(STEP), Out(range(STEP + 1))
        The part of ``limited`` to slide over at once: up to the first received PSN after a missing one. As a
        thermometer code, and as a number.
    gap : Out(1)
        Some of the ``limited`` PSNs are missing.
    none, rest : Out(1)
        No PSN was received; some were received that the run from the base does not cover.
    """

    def __init__(self, bits):
        super().__init__({
            "bitmap": In(bits), "limited": In(STEP), "runs": In(1), "ahead": Out(STEP), "run": Out(range(RUN_ON + 1)),
            "steps": Out(STEP), "end": Out(range(STEP + 1)), "gap": Out(1), "none": Out(1), "rest": Out(1)})

    def elaborate(self, platform):
        m = Module()
        low = self.bitmap[:STEP]
        again, ahead = low[1:] & ~low[:-1], Cat(Const(1, 1), *(low[1:k + 1].all() for k in range(1, STEP)))
        over = Signal(STEP)
        m.d.comb += over.eq(self.limited & Cat(~again[:k].any() for k in range(STEP)))
        m.d.sync += [
            self.ahead.eq(ahead), self.run.eq(thermometer_count(ahead[:RUN_ON] & self.runs.replicate(RUN_ON))),
            self.steps.eq(over), self.end.eq(thermometer_count(over)), self.none.eq(self.bitmap == 0),
            self.gap.eq((self.limited & ~low).any()),
            self.rest.eq(Cat(self.bitmap[RUN_ON:], again[1:RUN_ON - 1]).any()),
        ]
        return m


class MarkAndSlide(wiring.Component):
    """Marks a packet and slides the window over the run of received PSNs at its base. Combinational.

    Kept as a block because per-module mapping trades depth for area: see "Size and longest paths" in
    docs/development.md.

    Parameters
    ----------
    bits : int
        Of the bitmap, more than ``RUN_ON``.

    Members
    -------
    bitmap, mark : In(bits), In(bits)
        The window, and the bit of the packet, if any: at the base, or where nothing follows the base.
    run : In(range(RUN_ON + 1))
        Of :class:`SlideLookahead`.
    advanced : Out(bits)
        The window afterwards.
    """

    def __init__(self, bits):
        super().__init__({"bitmap": In(bits), "mark": In(bits), "run": In(range(RUN_ON + 1)), "advanced": Out(bits)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.advanced.eq((self.bitmap | self.mark) >> self.run)
        return m


class SlideStep(wiring.Component):
    """One step of a sliding window: skips received PSNs, then counts missing ones. Combinational.

    Kept as a block, like :class:`MarkAndSlide`. The sums are inside because the length of the step is late.

    Parameters
    ----------
    bits : int
        Of the bitmap.

    Members
    -------
    base, bitmap : In(32), In(bits)
        The window.
    ahead, steps, end, none : In(STEP), In(STEP), In(range(STEP + 1)), In(1)
        Of :class:`SlideLookahead`.
    slide, limited, position : In(24), In(STEP), In(range(bits))
        Number of PSNs left to slide over; its thermometer code, at most ``STEP``; the position at which the packet is
        marked afterwards.
    skip, holes : Out(range(STEP + 1)), Out(24)
        Number of received PSNs, then of missing ones.
    moved, shifted : Out(32), Out(bits)
        Base and bitmap after both.
    left, limiting, place : Out(24), Out(STEP), Out(range(bits))
        Next values of ``slide``, ``limited`` and ``position``.
    """

    def __init__(self, bits):
        self.bits = bits
        super().__init__({
            "base": In(32), "bitmap": In(bits),
            "ahead": In(STEP), "steps": In(STEP), "end": In(range(STEP + 1)), "none": In(1),
            "slide": In(24), "limited": In(STEP), "position": In(range(bits)),
            "skip": Out(range(STEP + 1)), "holes": Out(24),
            "moved": Out(32), "shifted": Out(bits),
            "left": Out(24), "limiting": Out(STEP), "place": Out(range(bits)),
        })

    def elaborate(self, platform):
        m = Module()
        received, advance = Signal(STEP), Signal(24)        # `received` is a thermometer code
        m.d.comb += [
            received.eq(self.limited & self.ahead & self.bitmap[0].replicate(STEP)),
            self.skip.eq(thermometer_count(received)),
            self.shifted.eq(shift_by_thermometer(self.bitmap, self.steps)),
            self.moved.eq(self.base + advance), self.place.eq(self.position - advance),
        ]
        further = thermometer(m, self.slide, 2 * STEP, "further")
        with m.If(self.none):
            m.d.comb += [self.holes.eq(self.slide), advance.eq(self.slide)]
        with m.Else():
            m.d.comb += [self.holes.eq(self.end - self.skip), advance.eq(self.end),
                         self.left.eq(self.slide - self.end),
                         self.limiting.eq(shift_by_thermometer(further, self.steps))]
        return m
