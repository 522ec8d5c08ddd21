"""What a bitmap of received PSNs says: how far a window slides in one cycle, and of one PSN."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..logic import below, height, passed_over

RUN_ON = 8     # received PSNs it slides over in the cycle that finishes a packet
STEP = 16      # PSNs the window slides over in one cycle while it holds received ones


class RunOn(wiring.Component):
    """A window marks a packet and slides over what was received from its base on. Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is.

    Parameters
    ----------
    bits : int
        Of the bitmap, more than ``RUN_ON``.

    Members
    -------
    bitmap, mark : In(bits)
        The window, and the bit of the packet, if any.
    ones, advanced : Out(range(RUN_ON + 1)), Out(bits)
        Over how many PSNs it slides, and what the window is then.
    more, empty : Out(1)
        The first PSN of that was received, too; none was.
    """

    def __init__(self, bits):
        self.bits = bits
        super().__init__({
            "bitmap": In(bits), "mark": In(bits), "ones": Out(range(RUN_ON + 1)), "advanced": Out(bits),
            "more": Out(1), "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        marked, steps = Signal(self.bits), Signal(RUN_ON)
        m.d.comb += [
            marked.eq(self.bitmap | self.mark), steps.eq(Cat(marked[:k + 1].all() for k in range(RUN_ON))),
            self.ones.eq(height(steps)), self.advanced.eq(passed_over(marked, steps)),
            self.more.eq(marked[:RUN_ON + 1].all()),
            self.empty.eq(~Cat(marked[RUN_ON:], marked[1:RUN_ON] & ~marked[:RUN_ON - 1]).any()),
        ]
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
    slide, limited, position : In(24), In(STEP), In(range(bits))
        Over how many PSNs it has yet to slide; that again, as many low bits, as far as ``STEP`` goes. Where the packet
        is marked then.
    skip, holes : Out(range(STEP + 1)), Out(24)
        Received ones first, then missing ones; ``some``: there are missing ones.
    moved, shifted : Out(32), Out(bits)
        The window behind both.
    left, limiting, place : Out(24), Out(STEP), Out(range(bits))
        What becomes of ``slide``, ``limited`` and ``position``.
    """

    def __init__(self, bits):
        self.bits = bits
        super().__init__({
            "base": In(32), "bitmap": In(bits), "slide": In(24), "limited": In(STEP), "position": In(range(bits)),
            "skip": Out(range(STEP + 1)), "some": Out(1), "holes": Out(24),
            "moved": Out(32), "shifted": Out(bits),
            "left": Out(24), "limiting": Out(STEP), "place": Out(range(bits)),
        })

    def elaborate(self, platform):
        m = Module()
        low, limited = self.bitmap[:STEP], self.limited
        # Bits of which low ones are set. A step ends at the first PSN that was received while the one before was not.
        received, steps = Signal(STEP), Signal(STEP)
        again = low[1:] & ~low[:-1]
        end, advance = Signal(range(STEP + 1)), Signal(24)
        m.d.comb += [
            received.eq(limited & Cat(low[:k + 1].all() for k in range(STEP))),
            steps.eq(limited & Cat(~again[:k].any() for k in range(STEP))),
            end.eq(height(steps)), self.skip.eq(height(received)), self.some.eq((limited & ~low).any()),
            self.shifted.eq(passed_over(self.bitmap, steps)),
            self.moved.eq(self.base + advance), self.place.eq(self.position - advance),
        ]
        further = below(m, self.slide, 2 * STEP, "further")
        with m.If(self.bitmap == 0):
            m.d.comb += [self.holes.eq(self.slide), advance.eq(self.slide)]
        with m.Else():
            m.d.comb += [self.holes.eq(end - self.skip), advance.eq(end), self.left.eq(self.slide - end),
                         self.limiting.eq(passed_over(further, steps))]
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
