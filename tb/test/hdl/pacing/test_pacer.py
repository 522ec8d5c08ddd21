"""Tests of the pacer: order, rates, limits, flushes, and the cycles that it takes."""

import cocotb
import pytest

from weft.hdl.contract import abi
from weft.hdl.pacing.pacer import Pacer
from weft.tb.sim.flow.simulate import SIMULATORS
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.test.hdl.pacing.pacer_bench import BURST_NS, PARAMS, QPS, SCALE, PacerBench, gap_of
from weft.tb.test.hdl.transmit.agents import run

PACKET = {"pmtu": 3, "remote_va": 0, "opcode": 1}     # packets of 1 KiB


@cocotb.test()
async def packets_leave_in_order_and_in_time(dut):
    """Random descriptors, rates, limits, rejections and flushes. Many of these meet a packet at the output."""
    bench = await PacerBench.start(dut)
    rng = bench.rng
    for step in range(1500):
        if step % 50 == 0:
            bench.stalls = (0, 0.3, 0.95)[step // 50 % 3]
        qpn, doorbells = rng.randrange(QPS), {}
        if rng.random() < 0.3 and not any(bench.waiting) and not bench.qps[qpn].markers:
            bench.work(rng.getrandbits(1), qpn, psn=rng.randrange(100), length_max=3000)
        if rng.random() < 0.1:
            doorbells["rate"] = {"qpn": qpn, "limited": rng.getrandbits(1),
                                 "gap": rng.choice([0, gap_of(100), gap_of(20), gap_of(rng.uniform(0.5, 100))])}
        elif rng.random() < 0.1:
            doorbells["limit"] = {"qpn": qpn, "psn": rng.choice([rng.randrange(120), 2**31 - 1])}
        elif rng.random() < (0.05 if bench.offered is None else 0.3 * bench.stalls + 0.05) and not bench.flushes:
            bench.flushes.append(qpn if bench.offered is None else bench.offered.packet.sqpn)
        elif rng.random() < 0.05 and not bench.qps[qpn].markers and not any(bench.waiting):
            bench.hurts.append({"qpn": qpn, "heals": 0})
        await bench.tick(rng.choice([1, 4, 30]) if step % 300 < 250 else 1, **doorbells)
    bench.stalls = 0
    for qpn in range(QPS):
        await bench.tick(rate={"qpn": qpn, "gap": gap_of(10)})
    await bench.drain(20000)
    cocotb.log.info("seen: %s", dict(bench.seen))
    assert min(bench.seen[name] for name in ("new", "retransmission", "marker", "flush", "hurt")) > 10
    assert bench.seen["withdrawn"]


@cocotb.test()
async def mean_rates_are_exact(dut):
    """QPs of 0.2 to 40 Gb/s together, 90 Gb/s: every one has its rate, with little lateness."""
    bench = await PacerBench.start(dut)
    rates = {0: 0.2, 3: 1, 5: 10, 6: 10, 7: 10, 8: 18.8, 15: 40}
    for qpn, rate in rates.items():
        await bench.tick(rate={"qpn": qpn, "gap": gap_of(rate)})
    for qpn in rates:
        bench.work(0, qpn, **PACKET, length=1 << 20)
    begin, cycles = bench.cycle, 50000
    await bench.tick(cycles)
    lateness = []
    for qpn, rate in rates.items():
        left = [each for each in bench.qps[qpn].left if each[0] > CLOCK_PERIOD_NS * begin + 3 * BURST_NS]
        lateness += [late for _, late, _ in left]
        duration = left[-1][0] - left[0][0]
        sent = sum(size for _, _, size in left[:-1])
        cocotb.log.info("%5.1f Gb/s: %d packets, %.4f Gb/s, mean lateness %.0f ns", rate, len(left),
                        8 * sent / duration, sum(late for _, late, _ in left) / len(left))
        # The times of the first and the last packet are uncertain by their lateness.
        slack = max(late for _, late, _ in left) / duration
        assert abs(8 * sent / duration / rate - 1) < 0.001 + slack
    lateness.sort()
    assert bench.cycle - begin == cycles
    cocotb.log.info("lateness: mean %.0f ns, p99.9 %.0f ns", sum(lateness) / len(lateness),
                    lateness[int(0.999 * len(lateness))])
    assert lateness[int(0.999 * len(lateness))] <= 500
    assert sum(lateness) / len(lateness) < 120


@cocotb.test()
async def cycles_per_packet(dut):
    """A packet takes 7 cycles, a descriptor 3 more; one QP alone has a packet every 9 cycles."""
    bench = await PacerBench.start(dut)
    for qps, per_packet in ((range(8), 7.2), (range(8, 9), 9.2)):
        for qpn in qps:
            bench.work(0, qpn, **PACKET, length=200 * 1024)
        await bench.tick(100)
        before = bench.seen["new"]
        await bench.tick(500)
        taken = 500 / (bench.seen["new"] - before)
        cocotb.log.info("%d QPs: %.2f cycles per packet", len(qps), taken)
        assert taken <= per_packet
        for qpn in qps:
            bench.flushes.append(qpn)
        await bench.tick(100)
    for number in range(400):
        bench.work(0, number % QPS, **PACKET, length=1000)
    begin = bench.cycle
    await bench.drain(6000)
    cocotb.log.info("%.2f cycles per descriptor of one packet", (bench.cycle - begin) / 400)
    assert bench.cycle - begin < 10.5 * 400


@cocotb.test()
async def slow_qps_block_nobody(dut):
    """Beside 15 QPs whose next packet is far away, a fast one has its rate; a new rate holds at once."""
    bench = await PacerBench.start(dut)
    for qpn in range(QPS):
        await bench.tick(rate={"qpn": qpn, "gap": gap_of(50 if qpn == 7 else 0.001)})
    for qpn in range(QPS):
        bench.work(0, qpn, **PACKET, length=1 << 18)
    await bench.tick(5000)
    fast = bench.qps[7].left
    assert len(fast) > 5000 * CLOCK_PERIOD_NS * 50 / 8 / (1024 + 98) - 3
    assert all(len(bench.qps[qpn].left) == 1 for qpn in range(QPS) if qpn != 7), "bursts are small"
    began = bench.now
    await bench.tick(rate={"qpn": 3, "gap": gap_of(10)})
    while len(bench.qps[3].left) == 1:
        await bench.tick()
    took = bench.now - began
    cocotb.log.info("a new rate took %d ns", took)
    assert took < (1024 + 98) * 0.8 + 64 + 60


@cocotb.test()
async def full_pool_refuses(dut):
    bench = await PacerBench.start(dut)
    size = PARAMS.pace_descriptors
    for qpn in range(2):
        await bench.tick(rate={"qpn": qpn, "gap": gap_of(0.001)})
        bench.work(0, qpn, **PACKET, length=2048)
    await bench.tick(100)
    for _ in range(3):
        for number in range(size + 3):
            bench.work(number % 2, number % 2, **PACKET, length=2048)
        await bench.tick(1000)
        assert bench.held == size and not any(bench.waiting)
        before = bench.cycle
        bench.flushes.append(1)
        while bench.flushes:
            await bench.tick()
        assert bench.cycle - before < 30, "lists of any length are freed at once"
        assert bench.held == sum(map(len, bench.qps[0].lists))
        bench.flushes.append(0)
        await bench.tick(30)
    assert bench.seen["refused"] >= 9
    await bench.tick(rate={"qpn": 0, "gap": 0})
    bench.work(0, 0, **PACKET, length=100)
    await bench.drain(100)


@cocotb.test()
async def limits_hold_new_packets_only(dut):
    """Packets from the limit on wait, retransmissions do not; more doorbells than the pacer can take are not lost."""
    bench = await PacerBench.start(dut)
    for qpn in range(QPS):
        await bench.tick(limit={"qpn": qpn, "psn": 0xFFFF_FFFE})
        await bench.tick(rate={"qpn": qpn, "gap": 0, "limited": 1})
        bench.work(0, qpn, **PACKET, length=8192, psn=0xFFFF_FFFC)
    await bench.tick(600)
    assert all(len(qp.left) == 2 for qp in bench.qps)
    bench.work(1, 4, **PACKET, length=2048, psn=0xFFFF_FFFC)
    await bench.tick(200)
    assert len(bench.qps[4].left) == 4
    for number in range(10 * QPS):
        await bench.tick(limit={"qpn": number % QPS, "psn": 2})
    await bench.tick(1000)
    assert [len(qp.left) for qp in bench.qps] == [6 + 2 * (qpn == 4) for qpn in range(QPS)]
    await bench.tick(rate={"qpn": 2, "gap": 0, "limited": 0})
    await bench.tick(100)
    assert len(bench.qps[2].left) == 8
    for qpn in range(QPS):
        await bench.tick(limit={"qpn": qpn, "psn": 2**31 - 1})
    await bench.drain(3000)


@cocotb.test()
async def lateness_is_made_up_within_the_burst(dut):
    """A QP that had nothing to send for 24 us sends packets of 4.1 us at once, and no more."""
    bench = await PacerBench.start(dut)
    await bench.tick(rate={"qpn": 6, "gap": gap_of(10)})
    bench.work(0, 6, **PACKET, length=100)
    await bench.tick(6000)
    began = bench.now
    bench.work(0, 6, **PACKET, length=20 << 10)
    await bench.tick(1500)
    soon = [ns for ns, _, _ in bench.qps[6].left[1:] if ns < began + 300]
    assert len(soon) == 1 + BURST_NS * 10 // 8 // (1024 + 98)
    assert len(bench.qps[6].left) - 1 < len(soon) + 1500 * CLOCK_PERIOD_NS * 10 / 8 / (1024 + 98) + 1
    await bench.drain(6000)


@cocotb.test()
async def gaps_have_a_limit(dut):
    """The rate 1 Mb/s is possible; a gap beyond the largest one counts as that. The time passes eight times as fast."""
    bench = await PacerBench.start(dut)
    bench.step = 8 * CLOCK_PERIOD_NS
    gaps = {2: gap_of(0.001), 3: abi.PACE_GAP_MAX, 4: (1 << abi.RATE_DOORBELL.by_name["gap"].width) - 1}
    for qpn, gap in gaps.items():
        await bench.tick(rate={"qpn": qpn, "gap": gap})
        bench.work(0, qpn, **PACKET, length=1)
        bench.work(0, qpn, **PACKET, length=1)
    await bench.drain(40_000)
    for qpn, gap in gaps.items():
        (first, _, size), (second, _, _) = bench.qps[qpn].left
        waited = size * min(gap, abi.PACE_GAP_MAX) / SCALE - BURST_NS
        assert waited <= second - first < 1.01 * waited + 2_000


@cocotb.test()
async def reset_empties_the_pool(dut):
    bench = await PacerBench.start(dut)
    for _ in range(2):
        for qpn in range(4):
            await bench.tick(rate={"qpn": qpn, "gap": gap_of(0.001), "limited": 1})
            bench.work(0, qpn, **PACKET, length=8192, psn=0)
        await bench.tick(100)
        assert bench.held == 4
        dut.rst.value = 1
        await bench.tick(2)
        dut.rst.value = 0
        bench.qps = [type(qp)() for qp in bench.qps]
        bench.held = 0
        await bench.tick(100)
        assert int(dut.idle.value)
    for qpn in range(QPS):
        bench.work(qpn % 2, qpn, **PACKET, length=4096)
    await bench.drain(700)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_pacer_sends_in_order_and_in_time(sim):
    run(Pacer(PARAMS), name="pacer", cases=__file__, sim=sim)


def test_work_keeps_the_reserved_bits_of_other_descriptors():
    """The flag ``paced`` of a WORK is a reserved bit of an INLINE_DATA, which the pacer must not see."""
    assert abi.WORK.offset_of("paced") >= abi.INLINE_DATA.offset_of("_r0")
