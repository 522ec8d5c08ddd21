"""Tests of the MAC's link state and counters as read from the card's clock."""

import random

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl.board.mac_side import COUNTER_BITS, EVENTS, LEVELS, MacSide
from weft.tb.sim.flow.simulate import bench_seed, simulate
from weft.tb.sim.stream.clock import phase_ps, start_clocks

CARD_PS, MAC_PS = 4000, 3104
INDEX = {name: k for k, (name, _, _) in enumerate(EVENTS)}
ALIGNED = 1 << LEVELS.index("rx_aligned")


async def start(dut):
    """Start two unrelated clocks, release both resets, and bring the link up."""
    rng = random.Random(bench_seed())
    await start_clocks(dut, {"clk": (CARD_PS, phase_ps(rng, CARD_PS, odd=False)),
                             "mac_clk": (MAC_PS, phase_ps(rng, MAC_PS, odd=True))}, ("rst", "mac_rst"))
    dut.levels.value = ALIGNED
    await ClockCycles(dut.clk, 20)


async def counter(dut, index):
    """Return the value of a counter, read like the board's registers read it."""
    dut.counter_address.value, dut.counter_stb.value = index, 1
    await ClockCycles(dut.clk, 1)
    dut.counter_stb.value = 0
    while True:
        await RisingEdge(dut.clk)
        if int(dut.counter_ack.value):
            return int(dut.counter_data.value)


@cocotb.test()
async def lost_link_is_reported_and_counted(dut):
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
async def reports_of_mac_and_card_are_counted(dut):
    """Each counter is the sum of its increments, read from the other clock."""
    await start(dut)
    rng, expected, place = random.Random(bench_seed()), [], 0
    for name, width, _ in EVENTS[:-1]:
        increments = [rng.getrandbits(width) for _ in range(20)]
        for increment in increments:
            dut.events.value = increment << place
            await ClockCycles(dut.mac_clk, 1)
        expected.append((name, sum(increments)))
        place += width
    dut.events.value = 0
    await ClockCycles(dut.mac_clk, 4)
    assert [(name, await counter(dut, INDEX[name])) for name, _ in expected] == expected


@cocotb.test()
async def every_digit_of_a_counter_is_read(dut):
    """Set the counters to values that no run reaches; each bit is 0 and 1 in every counter."""
    await start(dut)
    rng = random.Random(bench_seed())
    drawn = {name: rng.getrandbits(COUNTER_BITS) for name in INDEX}
    for flipped in (0, (1 << COUNTER_BITS) - 1):
        for name, value in drawn.items():
            getattr(dut, name).value = value ^ flipped
        for name, value in drawn.items():
            assert await counter(dut, INDEX[name]) == value ^ flipped, name


@cocotb.test()
async def carries_pass_every_digit_of_a_counter(dut):
    await start(dut)
    name = "tx_total_packets"
    for bit in range(COUNTER_BITS + 1):
        before = (1 << bit) - 1
        getattr(dut, name).value = before
        dut.events.value = 1
        await ClockCycles(dut.mac_clk, 1)
        dut.events.value = 0
        assert await counter(dut, INDEX[name]) == (before + 1) % (1 << COUNTER_BITS)


@pytest.mark.parametrize("sim", ["icarus"])
def test_mac_side(sim):
    simulate(MacSide(), name="board_mac_side", cases=__file__, sim=sim)
