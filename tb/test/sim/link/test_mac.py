"""Tests of the MAC against cocotbext-eth's models, side by side: the same frames at the same picosecond.

In those models the FCS is part of a frame; here it is part of the gap.
"""

import logging
import random

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiStreamBus
from cocotbext.eth import EthMacRx, EthMacTx

from weft.hdl.part.axis import axis_signature
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, elaborate, simulate
from weft.tb.sim.link.mac import BITS_PER_SECOND, FCS_BYTES, GAP_BYTES, MacRx, MacTx
from weft.tb.sim.pair.two_cards import TOP, two_cards_verilog
from weft.tb.sim.stream.bus import Bus
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.stream import Ticker

FRAMES, DEPTH = 40, 64
GAP = FCS_BYTES + GAP_BYTES


class Loop(wiring.Component):
    """Sends every frame back when it is complete; only these of its ports are used."""

    s_axis_rx: In(axis_signature(data_width=512, user_width=1))
    m_axis_tx: Out(axis_signature(data_width=512, user_width=17))

    def elaborate(self, _platform):
        m = Module()
        rx, tx = self.s_axis_rx, self.m_axis_tx
        m.submodules.store = store = fifo.SyncFIFOBuffered(width=512 + 64 + 1, depth=DEPTH)
        whole = Signal(range(DEPTH + 1))
        ends = tx.tvalid & tx.tready & tx.tlast
        m.d.comb += [
            rx.tready.eq(1), store.w_data.eq(rx.tlast << 576 | rx.tkeep << 512 | rx.tdata), store.w_en.eq(rx.tvalid),
            tx.tdata.eq(store.r_data[:512]), tx.tkeep.eq(store.r_data[512:576]), tx.tlast.eq(store.r_data[576]),
            tx.tuser.eq(0), tx.tvalid.eq(store.r_rdy & (whole != 0)), store.r_en.eq(tx.tvalid & tx.tready)]
        m.d.sync += whole.eq(whole + (rx.tvalid & rx.tlast) - ends)
        return m


class Packed:
    """A bus for cocotbext's source with the beat in one word: ``tvalid`` and the other signals follow each other."""

    def __init__(self, bus):
        self._bus, self._entity, self._name = bus, bus._entity, bus._name
        self.tdata, self.tkeep, self.tuser, self.tready, self.tvalid = bus.tdata, bus.tkeep, bus.tuser, bus.tready, self
        self._word = 0

    def __len__(self):
        return 1

    def setimmediatevalue(self, value):
        self._bus.beat.value = value

    def drive(self, beat):
        self._word = self._bus.word(beat.tdata.to_bytes(64, "little"), beat.tkeep, beat.tlast, beat.tuser)

    @property
    def value(self):
        return int(self._bus.tvalid.value)

    @value.setter
    def value(self, valid):
        self._bus.beat.value = self._word & ~(1 << self._bus.valid_at) | int(valid) << self._bus.valid_at


def plain_macs(dut, ticker):
    """Return cocotbext-eth's models at card B."""
    for name in ("b_s_axis_rx", "b_m_axis_tx"):
        logging.getLogger(f"cocotb.{dut._name}.{name}").setLevel(logging.ERROR)    # they print every frame
    receiver = EthMacRx(Packed(Bus(dut, "b_s_axis_rx", ticker)), dut.clk, speed=BITS_PER_SECOND, ifg=GAP)
    sender = EthMacTx(AxiStreamBus.from_prefix(dut, "b_m_axis_tx", bus_separator="__"), dut.clk,
                      speed=BITS_PER_SECOND, ifg=GAP)
    return receiver, sender


async def collect(sender, found):
    while True:
        frame = await sender.recv()
        found.append((get_sim_time("ps"), bytes(frame)))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def same_frames_at_the_same_time(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    ticker = Ticker(dut.clk)
    plain_rx, plain_tx = plain_macs(dut, ticker)
    lean, plain = [], []
    MacTx(Bus(dut, "a_m_axis_tx", ticker), lambda frame: lean.append((get_sim_time("ps"), frame)))
    mac_rx = MacRx(Bus(dut, "a_s_axis_rx", ticker))
    collector = cocotb.start_soon(collect(plain_tx, plain))
    for _ in range(FRAMES):
        size = rng.choice([64, 128, 65, 127, 129, 1088, 1087, 1089, rng.randrange(60, 1500), rng.randrange(60, 1500)])
        frame = rng.randbytes(size)
        mac_rx.receive(frame)
        plain_rx.send_nowait(frame)
        if rng.random() < 0.4:
            await Timer(rng.randrange(1, 400_000), "ps")
    while mac_rx.waiting or len(plain) < FRAMES or len(lean) < FRAMES:
        await Timer(1, "us")
    collector.cancel()
    assert [frame for _, frame in lean] == [frame for _, frame in plain]
    apart = [(round(one), round(other), len(frame))
             for (one, frame), (other, _) in zip(lean, plain, strict=True) if one != other]
    assert not apart, f"(ps here, ps of cocotbext-eth, bytes) of frames that end at another time: {apart}"


@pytest.mark.parametrize("sim", SIMULATORS)
def test_mac_agrees_with_cocotbext_eth(sim):
    text = elaborate(Loop(), "loop")
    simulate(verilog=two_cards_verilog(text, "loop"), top=TOP, name="mac", cases=__file__, sim=sim)
