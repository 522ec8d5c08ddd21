"""Tests of the MAC interface: frames keep their bytes, ends and error marks in both directions."""

import random
from collections import Counter

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.contract import wire
from weft.hdl.mac.edge import RX_USER_WIDTH, TX_USER_WIDTH, MacRx, MacTx
from weft.hdl.part.axis import axis_signature
from weft.hdl.part.layouts import BEAT_BITS, BEAT_BYTES, Beat
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack, unpack

ALL = (1 << BEAT_BYTES) - 1
ETHERTYPE_AT = 12


class MacEdge(wiring.Component):
    """Both directions, side by side."""

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Beat)), "hold": In(1), "sending": Out(1),
            "m_axis": Out(axis_signature(data_width=BEAT_BITS, user_width=TX_USER_WIDTH)),
            "s_axis": In(axis_signature(data_width=BEAT_BITS, user_width=RX_USER_WIDTH)),
            "o": Out(stream.Signature(Beat)), "o_control": Out(stream.Signature(Beat))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.tx, m.submodules.rx = tx, rx = MacTx(), MacRx()
        m.d.comb += [tx.hold.eq(self.hold), self.sending.eq(tx.sending)]
        connect(m, flipped(self.i), tx.i)
        connect(m, tx.m_axis, flipped(self.m_axis))
        connect(m, flipped(self.s_axis), rx.s_axis)
        connect(m, rx.o, flipped(self.o))
        connect(m, rx.o_control, flipped(self.o_control))
        return m


def random_frames(rng):
    """Return ``(data, bytes, last, error)`` of each beat: frames that end at every byte of a beat, some of them bad."""
    lengths = [*range(1, 2 * BEAT_BYTES + 2), *(rng.randint(1, 9000) for _ in range(5))]
    rng.shuffle(lengths)
    for length in lengths:
        bad = rng.getrandbits(1)
        for at in range(0, length, BEAT_BYTES):
            last = int(at + BEAT_BYTES >= length)
            yield rng.getrandbits(BEAT_BITS), min(length - at, BEAT_BYTES), last, bad & last


@cocotb.test()
async def frames_are_sent(dut):
    """Each beat is transferred in the cycle in which the MAC is ready.

    While held, no frame begins; one that has begun continues.
    """
    await start_clock(dut)
    rng, seen = random.Random(bench_seed()), Counter()
    hold = inside = 0
    for data, size, last, bad in random_frames(rng):
        # Only the error flag of a last beat has a meaning.
        word = pack(Beat, data=data, last=last, empty=BEAT_BYTES - size, error=bad if last else rng.getrandbits(1))
        valid = shown = taken = False
        while not taken:
            valid, ready = valid or rng.random() < 0.8, rng.random() < 0.7
            hold ^= rng.random() < 0.1
            dut.i__payload.value, dut.i__valid.value, dut.m_axis__tready.value = word, int(valid), int(ready)
            dut.hold.value = hold
            await ReadOnly()
            goes = valid and bool(not hold or shown or inside)
            assert int(dut.m_axis__tvalid.value) == goes
            assert not valid or int(dut.i__ready.value) == (ready and goes)
            assert int(dut.sending.value) == bool(inside or shown)
            if goes:
                assert int(dut.m_axis__tdata.value) == data and int(dut.m_axis__tkeep.value) == (1 << size) - 1
                assert (int(dut.m_axis__tlast.value), int(dut.m_axis__tuser.value)) == (last, bad)
            taken, shown = goes and ready, goes and not ready
            seen["held back"] += valid and not goes
            seen["continues"] += bool(hold and goes)
            seen["waits for the MAC"] += shown
            await RisingEdge(dut.clk)
        inside = not last
    assert min(seen[case] for case in ("held back", "continues", "waits for the MAC")) > 20, seen


@cocotb.test()
async def frames_are_received(dut):
    """One beat per cycle leaves, a cycle later, whatever back pressure the next subsystem applies.

    The MAC's error mark counts on the last beat. MAC control frames have a separate output.
    """
    await start_clock(dut)
    rng, awaited, awaited_control, seen = random.Random(bench_seed()), None, False, Counter()
    first, control = True, False
    beats = [beat for beat in random_frames(rng) for beat in [None] * rng.choice([0, 0, 0, 2]) + [beat]]
    for beat in [*beats, None]:
        data, size, last, bad = beat or (rng.getrandbits(BEAT_BITS), BEAT_BYTES, rng.getrandbits(1), 0)
        if beat and first:
            control = size >= wire.ETH.size_bytes and rng.random() < 0.3
            if control or rng.random() < 0.1:       # too short for a control frame
                data &= ~(0xFFFF << 8 * ETHERTYPE_AT)
                data |= int.from_bytes(wire.ETHERTYPE_MAC_CONTROL.to_bytes(2, "big"), "little") << 8 * ETHERTYPE_AT
                control = size >= wire.ETH.size_bytes
            seen[control, size < wire.ETH.size_bytes] += 1
        first = last if beat else first
        beat = beat and (data, *beat[1:])
        dut.s_axis__tvalid.value, dut.s_axis__tdata.value = int(beat is not None), data
        dut.s_axis__tkeep.value = ALL >> BEAT_BYTES - size if last else rng.getrandbits(BEAT_BYTES)
        dut.s_axis__tlast.value = last
        dut.s_axis__tuser.value = bad if last else rng.getrandbits(1)
        dut.o__ready.value = rng.getrandbits(1)
        await ReadOnly()
        assert int(dut.s_axis__tready.value), "the MAC was stalled"
        assert int(dut.o__valid.value) == (awaited is not None and not awaited_control)
        assert int(dut.o_control__valid.value) == (awaited is not None and awaited_control)
        if awaited:
            got = unpack(Beat, int((dut.o_control__payload if awaited_control else dut.o__payload).value))
            assert (got.data, BEAT_BYTES - got.empty, got.last, got.error) == awaited
        awaited, awaited_control = beat, control
        await RisingEdge(dut.clk)
    assert len(seen) == 3, seen


@pytest.mark.parametrize("sim", SIMULATORS)
def test_frames_pass_the_edge(sim):
    simulate(MacEdge(), name="mac", cases=__file__, sim=sim)
