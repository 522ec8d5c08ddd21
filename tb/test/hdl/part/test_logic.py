"""Tests of logic of few levels against the straightforward expressions."""

from operator import add

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from weft.hdl.part.logic import (
    adder_tree,
    encode_one_hot,
    greater_than,
    lowest_one_hot,
    one_hot,
    one_hot_mux,
    prefix,
    priority_encode,
    shift_by_thermometer,
    sum_equals,
    thermometer,
    thermometer_count,
)

WIDTH, PAIRS = 7, 29


class Both(wiring.Component):
    """Each function of one number, beside the straightforward expression of the same value."""

    def __init__(self):
        super().__init__({"i": In(WIDTH), "shallow": Out(16).array(PAIRS), "plain_result": Out(16).array(PAIRS)})

    def elaborate(self, platform):
        m, i = Module(), self.i
        chosen = Cat(i == k for k in range(5))
        sums = prefix(m, (Cat(bit, 0, 0) for bit in i), add, "sums")
        low = Mux(i[:4] > 8, 8, i[:4])
        steps, pattern = ((1 << low) - 1)[:8], Cat(i, 1, ~i, 1)
        pairs = [
            (thermometer_count(steps), low), (thermometer_count(steps[:4]), Mux(low > 4, 4, low)),
            (shift_by_thermometer(pattern, steps), pattern >> low),
            (adder_tree(i), sum(i)), (one_hot_mux(chosen, range(3, 8)), (i + 3) * (i < 5)),
            (Cat(lowest_one_hot(m, i, "low")), i & -i),
            (thermometer(m, i, 15, "ones"), ((1 << i) - 1)[:15]), (thermometer(m, i, 16, "ones"), ((1 << i) - 1)[:16]),
            (thermometer(m, i[:3], 6, "ones"), ((1 << i[:3]) - 1)[:6]), (one_hot(i[-1], i[:3], 8), i[-1] << i[:3]),
            (encode_one_hot(one_hot(i[-1], i[:3], 8)), Mux(i[-1], i[:3], 0)),
            (Mux(i[:4] == 0, 0, priority_encode(i[:4])), Mux(i[0], 0, Mux(i[1], 1, Mux(i[2], 2, Mux(i[3], 3, 0))))),
            (sum_equals(i[:2], i[2:4], i[4:]), i[:2] + i[2:4] == i[4:]),
            (sum_equals(i[:3], i[3], i[4:]), (i[:3] + i[3])[:3] == i[4:]),
            *((greater_than(i, number), i > number) for number in (-1, 0, 1, 63, 64, 100, 127, 128)),
            *((sums[k], sum(i[:k + 1])) for k in range(WIDTH)),
        ]
        for shallow, plain_result, (few, plain) in zip(self.shallow, self.plain_result, pairs, strict=True):
            m.d.comb += [shallow.eq(few), plain_result.eq(plain)]
        return m


def test_shallow_logic_equals_plain_logic():
    dut = Both()
    sim = Simulator(dut)

    async def every_number(ctx):
        for number in range(1 << WIDTH):
            ctx.set(dut.i, number)
            await ctx.delay(1e-9)
            for k, (shallow, plain_result) in enumerate(zip(dut.shallow, dut.plain_result, strict=True)):
                assert ctx.get(shallow) == ctx.get(plain_result), f"pair {k} of {number}"

    sim.add_testbench(every_number)
    sim.run()
