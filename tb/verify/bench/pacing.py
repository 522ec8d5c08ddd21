"""Rates and lateness of paced QPs: the pacer of preset ``basic`` in RTL, then a queue and a line of 100 Gb/s.

Each QP has one descriptor of 16 MiB. A packet is late by the time from the one that its rate demands until it begins on
the line. Descriptors come at random times; the figures begin when all rates are in force.
"""

import random
from dataclasses import asdict, dataclass

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import preset
from weft.hdl.pacing.engine import BURST_NS, OVERHEAD
from weft.hdl.pacing.pacer import Pacer
from weft.hdl.pacing.wheel import TIME_BITS
from weft.hdl.part.layouts import tx_job
from weft.tb.sim.flow.bench import given, leave, run_bench
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock

PARAMS = preset("basic")
JOB = tx_job(paced=True)
LINE_GBPS, LOAD = 100.0, 0.9
LENGTH = (1 << 24) - 4096
APART_NS, SETTLE_NS = 1_500, 30_000     # between two descriptors, on average; after the last one
CLEARED_CYCLES = PARAMS.qps + 64      # after a reset, until the pacer accepts descriptors
RATE_ERROR, SLOWED = 1e-3, 5e-3


@dataclass(frozen=True)
class Case:
    """Settings of one measurement: rates in Gb/s of the QPs, with the frame overhead, and the time measured."""

    name: str
    rates: tuple[float, ...]
    ns: int
    pmtu: int = 1024


def spread(qps, seed=1):
    """Return rates that differ by up to 10^3 and have 0.9 of the line together."""
    rng = random.Random(seed)
    weights = [10 ** rng.uniform(0, 3) for _ in range(qps)]
    return tuple(LOAD * LINE_GBPS * weight / sum(weights) for weight in weights)


LATE_US = {"16": 0.5, "1000": 2.5}
CASES = (
    Case("16", spread(16), 1_000_000), Case("1000", spread(1000), 4_000_000),
    Case("slow", (0.001, 0.003, 0.01, 0.1, 1.0, 10.0, 40.0), 8_200_000, pmtu=256),
    Case("line", (LINE_GBPS,), 200_000), Case("line_and_slow", (LINE_GBPS, 0.001), 200_000))


class Flow:
    """Packets of a QP: when its rate demands the next one, and what was measured."""

    def __init__(self, gbps):
        self.exact_gap = 8 / gbps
        self.gap = round(self.exact_gap * (1 << abi.PACE_SCALE)) / (1 << abi.PACE_SCALE)
        self.next, self.times, self.bytes = None, [], []

    def left(self, now, size):
        """Note a packet; return the time that the rate demanded."""
        due = now if self.next is None else self.next
        self.next = max(now - BURST_NS if self.next is None else self.next, now - BURST_NS) + size * self.gap
        self.times.append(now)
        self.bytes.append(size)
        return due

    def rate_error(self, begin):
        """Return the relative error of the rate between the first and the last packet after a time."""
        first = next((n for n, time in enumerate(self.times) if time >= begin), len(self.times))
        if len(self.times) - first < 2:
            return None
        demanded = sum(self.bytes[first:-1]) * self.exact_gap
        return demanded / (self.times[-1] - self.times[first]) - 1


class Driver:
    """Passes descriptors to the pacer and takes its packets at once."""

    def __init__(self, dut, case):
        self.dut, self.case, self.cycle = dut, case, 0
        self.flows = [Flow(rate) for rate in case.rates]
        self.free, self.late, self.sent = 0.0, [], 0

    async def cycle_once(self):
        """Pass a cycle; return true if the pacer accepts a descriptor in it."""
        dut = self.dut
        dut.time_ns.value = self.cycle * int(CLOCK_PERIOD_NS) % (1 << TIME_BITS)
        await ReadOnly()
        accepts = int(dut.i_send__ready.value)
        if int(dut.o__valid.value):
            self._left(JOB.from_bits(int(dut.o__payload.value)).packet)
        self.cycle += 1
        await RisingEdge(dut.clk)
        return accepts

    async def cycles(self, count):
        for _ in range(count):
            await self.cycle_once()

    async def set_rate(self, qpn, gap):
        self.dut.registers__rate_doorbell.value = int.from_bytes(
            abi.RATE_DOORBELL.pack(qpn=qpn, gap=round(gap * (1 << abi.PACE_SCALE))), "little")
        self.dut.registers__rate_doorbell_stb.value = 1
        await self.cycles(1)
        self.dut.registers__rate_doorbell_stb.value = 0

    async def post(self, qpn):
        pmtu = next(code for code, size in wire.PMTUS.items() if size == self.case.pmtu)
        self.dut.i_send__payload.value = int.from_bytes(abi.WORK.pack(
            opcode=abi.WorkOpcode.WRITE, paced=1, pmtu=pmtu, sqpn=qpn, length=LENGTH), "little")
        self.dut.i_send__valid.value = 1
        while not await self.cycle_once():
            pass
        self.dut.i_send__valid.value = 0

    def _left(self, packet):
        now, size = self.cycle * CLOCK_PERIOD_NS, packet.length + OVERHEAD
        due = self.flows[packet.sqpn].left(now, size)
        start = max(self.free, now)
        self.free = start + size * 8 / LINE_GBPS
        if now >= self.begin:
            self.late.append(start - due)
            self.sent += size

    async def run(self, rng):
        """Return the figures of the case."""
        self.begin = float("inf")
        for qpn, flow in enumerate(self.flows):
            await self.set_rate(qpn, flow.gap)
        await self.cycles(int(2 * BURST_NS / CLOCK_PERIOD_NS))      # a QP makes up for lateness since its rate was set
        order = rng.sample(range(len(self.flows)), len(self.flows))
        for qpn in order:
            await self.post(qpn)
            await self.cycles(int(rng.expovariate(CLOCK_PERIOD_NS / APART_NS)))
        await self.cycles(int(SETTLE_NS / CLOCK_PERIOD_NS))
        self.begin = self.cycle * CLOCK_PERIOD_NS
        await self.cycles(int(self.case.ns / CLOCK_PERIOD_NS))
        late = sorted(self.late)
        errors = [flow.rate_error(self.begin) for flow in self.flows]
        return {"packets": len(late), "p999_us": late[int(0.999 * (len(late) - 1))] / 1e3, "least_ns": late[0],
                "mean_ns": sum(late) / len(late), "error": max(abs(e) for e in errors if e is not None),
                "measured": sum(e is not None for e in errors),
                "gbps": sum(self.flows[0].bytes[-len(late):]) * 8 / self.case.ns, "load": self.sent * 8 / self.case.ns}


@cocotb.test()
async def pace(dut):
    """Pass the figures of one case to the benchmark."""
    case = Case(**given() | {"rates": tuple(given()["rates"])})
    await start_clock(dut)
    dut.o__ready.value = 1
    driver = Driver(dut, case)
    await driver.cycles(CLEARED_CYCLES)
    leave(await driver.run(random.Random(bench_seed())))


def measure(case, sim="verilator"):
    """Return the figures of a case."""
    return run_bench(Pacer(PARAMS), name="pacing", cases=__file__, settings=asdict(case), sim=sim, seed=1,
                     optimize="run", timeout_s=1800)


def rows(cases=CASES):
    """Return the rows of all cases."""
    return list(_rows({case.name: measure(case) for case in cases}))


def _rows(found):
    about = f"pacer of preset basic in RTL, line of {LINE_GBPS:g} Gb/s"
    for name, most in LATE_US.items():
        if name in found:
            conditions = (f"{about}, {name} QPs with rates that differ by up to 1000, load {LOAD:g}, 1 KiB; "
                          f"{found[name]['packets']:,} packets")
            yield Row(f"network_pacing_{name}_late_p999", "us", found[name]["p999_us"], at_most=most,
                      conditions=conditions)
            yield Row(f"network_pacing_{name}_rate_error", "of the rate", found[name]["error"], at_most=RATE_ERROR,
                      conditions=f"{conditions}; largest of {found[name]['measured']} QPs")
    if "slow" in found:
        yield Row("network_pacing_slow_rate_error", "of the rate", found["slow"]["error"], at_most=RATE_ERROR,
                  conditions=f"{about}, QPs of 1 Mb/s to 40 Gb/s, 256 bytes; largest of {found['slow']['measured']}")
    if "line" in found:
        yield Row("network_pacing_line_rate_error", "of the rate", found["line"]["error"], at_most=RATE_ERROR,
                  conditions=f"{about}, one QP at the rate of the line, 1 KiB")
        yield Row("network_pacing_line_beside_slow", "of alone lost",
                  1 - found["line_and_slow"]["gbps"] / found["line"]["gbps"], at_most=SLOWED,
                  conditions=f"{about}, a QP at the rate of the line beside one of 1 Mb/s, 1 KiB")
