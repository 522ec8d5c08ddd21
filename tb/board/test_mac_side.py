"""What the MAC tells of itself, read from the card's clock: the link's state, and counters."""

import random

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from weft.hdl.board.mac_side import EVENTS, LEVELS, MacSide
from weft.tb.flow.clock import ports
from weft.tb.flow.simulate import bench_seed, simulate

CARD_PS, MAC_PS = 4000, 3104
INDEX = {name: k for k, (name, _, _) in enumerate(EVENTS)}
ALIGNED = 1 << LEVELS.index("rx_aligned")


async def start(dut):
    """Two unrelated clocks, both resets, and a link."""
    for name, (way, _) in ports().items():
        if way == "input":
            getattr(dut, name).value = 0
    dut.rst.value = dut.mac_rst.value = 1
    # A first edge before the inputs have a value would leave the toggles, which have no reset, unknown for ever.
    await Timer(CARD_PS, "ps")
    cocotb.start_soon(Clock(dut.clk, CARD_PS, unit="ps").start())
    # Odd, and both periods are even: no two edges coincide, so what is driven after one is there at the next.
    await Timer(random.Random(bench_seed()).randrange(1, MAC_PS, 2), "ps")
    cocotb.start_soon(Clock(dut.mac_clk, MAC_PS, unit="ps").start())
    await ClockCycles(dut.clk, 20)
    dut.rst.value = dut.mac_rst.value = 0
    dut.levels.value = ALIGNED
    await ClockCycles(dut.clk, 20)


async def counter(dut, index):
    """A counter, as the board's registers ask for it."""
    dut.counter_address.value, dut.counter_stb.value = index, 1
    await ClockCycles(dut.clk, 1)
    dut.counter_stb.value = 0
    while True:
        await RisingEdge(dut.clk)
        if int(dut.counter_ack.value):
            return int(dut.counter_data.value)


@cocotb.test()
async def a_lost_link_is_told_and_counted(dut):
    await start(dut)
    assert int(dut.status.value) == ALIGNED and int(dut.tx_enable.value)
    for lost in range(1, 4):
        dut.levels.value = 0
        await ClockCycles(dut.clk, 20)
        assert int(dut.status.value) == 0 and not int(dut.tx_enable.value)
        dut.levels.value = ALIGNED
        await ClockCycles(dut.clk, 20)
        assert await counter(dut, INDEX["link_lost"]) == lost


@cocotb.test()
async def what_mac_and_card_tell_is_counted(dut):
    """Each event by its increments, read from the other clock while it goes on counting."""
    await start(dut)
    rng, expected, place = random.Random(bench_seed()), [], 0
    for name, width, _ in EVENTS[:-1]:
        told = [rng.getrandbits(width) for _ in range(20)]
        for increment in told:
            dut.events.value = increment << place
            await ClockCycles(dut.mac_clk, 1)
        expected.append((name, sum(told)))
        place += width
    dut.events.value = 0
    await ClockCycles(dut.mac_clk, 4)
    assert [(name, await counter(dut, INDEX[name])) for name, _ in expected] == expected


@pytest.mark.parametrize("sim", ["icarus"])
def test_mac_side(sim):
    simulate(MacSide(), name="board_mac_side", cases=__file__, sim=sim)
