"""Test of the scan against a model: it finds every QP that needs attention, and no other."""

import random

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.contract.params import preset
from weft.hdl.pacing.scan import OLD_LOG2, TIMES, Scan, queues
from weft.hdl.pacing.wheel import SLOT_LOG2, TIME_BITS, slots_of
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock

PARAMS = preset("test")
STATE, QPS, TIME = queues(PARAMS), PARAMS.qps, 1 << TIME_BITS
REACH = slots_of(PARAMS) << SLOT_LOG2
OLD = 1 << OLD_LOG2
EDGES = (0, REACH - 1, REACH, TIME // 2 - 1, -1, 1 - OLD, -OLD, 1 - TIME // 2)      # next time, relative to now


def random_qp(rng, now):
    """Return state and times of a QP."""
    ahead = rng.choice(EDGES)
    lists = {name: {"some": rng.getrandbits(1)} for name in ("send", "retransmit")}
    return ({**lists, **{name: int(rng.random() < 0.3) for name in ("waiting", "blocked", "marker")}},
            {"known": int(rng.random() < 0.8), "next": {"ns": (now + ahead) % TIME}}, ahead)


def is_found(state, times, ahead, everyone):
    """Return whether the scan must find a QP."""
    new, again = state["send"]["some"], state["retransmit"]["some"]
    near = not times["known"] or ahead < REACH
    sends = again or state["marker"] or new and not state["blocked"]
    return bool(times["known"] and ahead <= -OLD or not state["waiting"] and (
        sends and near or everyone and (new or again)))


@cocotb.test()
async def found_as_in_the_model(dut):
    await start_clock(dut)
    rng, expected, found = random.Random(bench_seed()), [], []
    read, left, reads, hits = None, 0, 0, {False: 0, True: 0}
    dut.enable.value = 1
    for _ in range(6000):
        now = rng.choice([0, 5, TIME - 1, rng.randrange(TIME)])
        state, times, ahead = random_qp(rng, now)
        dut.now.value = now
        dut.state.value, dut.times.value = STATE.const(state).as_bits(), TIMES.const(times).as_bits()
        dut.blocked.value, dut.o__ready.value = rng.random() < 0.4, rng.random() < 0.6
        everyone = rng.random() < 0.01
        dut.all_stb.value = everyone
        await ReadOnly()
        if read is not None:
            if is_found(state, times, ahead, left > 0):
                expected.append(read)
                hits[left > 0] += 1
            left -= left > 0
        if everyone:
            left = QPS
        read = None
        if int(dut.en.value):
            assert not int(dut.blocked.value)
            read = int(dut.qpn.value)
            assert read == reads % QPS
            reads += 1
        if int(dut.o__valid.value) and int(dut.o__ready.value):
            found.append(int(dut.o__payload.value))
        await RisingEdge(dut.clk)
    assert found == expected[:len(found)] and len(found) > len(expected) - 8
    assert min(hits.values()) > 100 and reads > 1500


@pytest.mark.parametrize("sim", SIMULATORS)
def test_scan_finds_what_the_wheel_does_not_reach(sim):
    simulate(Scan(PARAMS), name="pacing_scan", cases=__file__, sim=sim)
