"""Logic in few levels says the same as the plain way to write it."""

from operator import add

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from weft.hdl.part.logic import (
    above,
    below,
    choose,
    encoded,
    first,
    height,
    lowest,
    one_hot,
    passed_over,
    sums_to,
    total,
    up_to,
)

WIDTH, PAIRS = 7, 29


class Both(wiring.Component):
    """Each function beside what it stands for, of one number."""

    def __init__(self):
        super().__init__({"i": In(WIDTH), "told": Out(16).array(PAIRS), "said": Out(16).array(PAIRS)})

    def elaborate(self, platform):
        m, i = Module(), self.i
        chosen = Cat(i == k for k in range(5))
        sums = up_to(m, (Cat(bit, 0, 0) for bit in i), add, "sums")
        low = Mux(i[:4] > 8, 8, i[:4])
        steps, pattern = ((1 << low) - 1)[:8], Cat(i, 1, ~i, 1)
        pairs = [
            (height(steps), low), (height(steps[:4]), Mux(low > 4, 4, low)),
            (passed_over(pattern, steps), pattern >> low),
            (total(i), sum(i)), (choose(chosen, range(3, 8)), (i + 3) * (i < 5)), (Cat(lowest(m, i, "low")), i & -i),
            (below(m, i, 15, "ones"), ((1 << i) - 1)[:15]), (below(m, i, 16, "ones"), ((1 << i) - 1)[:16]),
            (below(m, i[:3], 6, "ones"), ((1 << i[:3]) - 1)[:6]), (one_hot(i[-1], i[:3], 8), i[-1] << i[:3]),
            (encoded(one_hot(i[-1], i[:3], 8)), Mux(i[-1], i[:3], 0)),
            (Mux(i[:4] == 0, 0, first(i[:4])), Mux(i[0], 0, Mux(i[1], 1, Mux(i[2], 2, Mux(i[3], 3, 0))))),
            (sums_to(i[:2], i[2:4], i[4:]), i[:2] + i[2:4] == i[4:]),
            (sums_to(i[:3], i[3], i[4:]), (i[:3] + i[3])[:3] == i[4:]),
            *((above(i, number), i > number) for number in (-1, 0, 1, 63, 64, 100, 127, 128)),
            *((sums[k], sum(i[:k + 1])) for k in range(WIDTH)),
        ]
        for told, said, (few, plain) in zip(self.told, self.said, pairs, strict=True):
            m.d.comb += [told.eq(few), said.eq(plain)]
        return m


def test_few_levels_say_the_same():
    dut = Both()
    sim = Simulator(dut)

    async def every_number(ctx):
        for number in range(1 << WIDTH):
            ctx.set(dut.i, number)
            await ctx.delay(1e-9)
            for k, (told, said) in enumerate(zip(dut.told, dut.said, strict=True)):
                assert ctx.get(told) == ctx.get(said), f"pair {k} of {number}"

    sim.add_testbench(every_number)
    sim.run()
