"""What a bitmap of received PSNs says: how far a window slides in one cycle."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...part.logic import below, height, passed_over

RUN_ON = 8     # received PSNs it slides over in the cycle that finishes a packet
STEP = 16      # PSNs the window slides over in one cycle while it holds received ones


class LowBits(wiring.Component):
    """What the lowest bits of a window say, a cycle behind it: how far a window slides is decided from registers.

    Parameters
    ----------
    bits : int
        Of the bitmap, more than ``STEP``.

    Members
    -------
    bitmap, limited, runs : In(bits), In(STEP), In(1)
        The second as :class:`Step` has it, of the next cycle; the third: in that, a packet is received at the base.
    ahead : Out(STEP)
        Bit k: the k PSNs behind the first one were received.
    run : Out(range(RUN_ON + 1))
        Of how many PSNs a run of received ones is that begins at the base, as far as ``RUN_ON`` goes; 0 if that is not.
    steps, end : Out(STEP), Out(range(STEP + 1))
        Over which of the ``limited`` ones it slides at once: until one was received and the one before it was not. As
        bits of which low ones are set, and how many those are.
    gap : Out(1)
        Of the ``limited`` ones, some are missing.
    none, rest : Out(1)
        Nothing was received; something was that a window does not run over which was received at its base.
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
            self.ahead.eq(ahead), self.run.eq(height(ahead[:RUN_ON] & self.runs.replicate(RUN_ON))),
            self.steps.eq(over), self.end.eq(height(over)), self.none.eq(self.bitmap == 0),
            self.gap.eq((self.limited & ~low).any()),
            self.rest.eq(Cat(self.bitmap[RUN_ON:], again[1:RUN_ON - 1]).any()),
        ]
        return m


class RunOn(wiring.Component):
    """A window marks a packet and slides over what was received from its base on. Combinational.

    A block of its own, as :class:`~weft.hdl.part.select.IndexOf` is.

    Parameters
    ----------
    bits : int
        Of the bitmap, more than ``RUN_ON``.

    Members
    -------
    bitmap, mark : In(bits), In(bits)
        The window, and the bit of the packet, if any: at the base, or where nothing follows the base.
    run : In(range(RUN_ON + 1))
        As :class:`LowBits` has it.
    advanced : Out(bits)
        What the window is then.
    """

    def __init__(self, bits):
        super().__init__({"bitmap": In(bits), "mark": In(bits), "run": In(range(RUN_ON + 1)), "advanced": Out(bits)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.advanced.eq((self.bitmap | self.mark) >> self.run)
        return m


class Step(wiring.Component):
    """One step of a window that slides: it skips received PSNs, then counts missing ones. Combinational.

    A block of its own, too. It adds and subtracts itself, for how far it goes comes late.

    Parameters
    ----------
    bits : int
        Of the bitmap.

    Members
    -------
    base, bitmap : In(32), In(bits)
        The window.
    ahead, steps, end, none : In(STEP), In(STEP), In(range(STEP + 1)), In(1)
        What :class:`LowBits` knows of it.
    slide, limited, position : In(24), In(STEP), In(range(bits))
        Over how many PSNs it has yet to slide; that again, as many low bits, as far as ``STEP`` goes. Where the packet
        is marked then.
    skip, holes : Out(range(STEP + 1)), Out(24)
        Received ones first, then missing ones.
    moved, shifted : Out(32), Out(bits)
        The window behind both.
    left, limiting, place : Out(24), Out(STEP), Out(range(bits))
        What becomes of ``slide``, ``limited`` and ``position``.
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
        received, advance = Signal(STEP), Signal(24)        # the first as `steps`
        m.d.comb += [
            received.eq(self.limited & self.ahead & self.bitmap[0].replicate(STEP)), self.skip.eq(height(received)),
            self.shifted.eq(passed_over(self.bitmap, self.steps)),
            self.moved.eq(self.base + advance), self.place.eq(self.position - advance),
        ]
        further = below(m, self.slide, 2 * STEP, "further")
        with m.If(self.none):
            m.d.comb += [self.holes.eq(self.slide), advance.eq(self.slide)]
        with m.Else():
            m.d.comb += [self.holes.eq(self.end - self.skip), advance.eq(self.end),
                         self.left.eq(self.slide - self.end), self.limiting.eq(passed_over(further, self.steps))]
        return m
