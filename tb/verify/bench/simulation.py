"""Simulation speed: two idle RTL cards, register reads, and the link's logic alone."""

import time

import cocotb
from cocotb.triggers import Timer

from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import preset
from weft.model.impairments import Impairments, LinkConfig
from weft.tb.sim.flow.bench import leave
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.sim.pair.two_hosts import TwoCards
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS

IDLE_CYCLES = 20_000
READS = 100
FRAMES = 20_000


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def two_cards(dut):
    figures = {}
    env = TwoCards(dut, seed=bench_seed())
    began = time.perf_counter()
    await env.start()
    figures["start_of_two_hosts_seconds"] = time.perf_counter() - began
    began = time.perf_counter()
    await Timer(IDLE_CYCLES * CLOCK_PERIOD_NS, "ns")
    figures["idle_cycles_per_second"] = IDLE_CYCLES / (time.perf_counter() - began)
    bar = env.host("a").bar
    began = time.perf_counter()
    for _ in range(READS):
        assert await bar.read_dword(abi.REGISTER["magic"].offset) == abi.MAGIC
    figures["register_reads_per_second"] = READS / (time.perf_counter() - began)
    leave(figures)


def link_frames_per_second():
    """Return the number of frames per second that the link's logic alone processes."""
    frame = wire.build_frame(opcode=wire.Opcode.WRITE_ONLY, dst_mac=2, src_mac=1, src_ip=1, dst_ip=2, sport=0xC000,
                             dest_qp=1, psn=0, extensions=bytes(wire.RETH.size_bytes), payload=bytes(1024))
    link = Impairments(LinkConfig(loss=0.01, reorder=0.01, duplicate=0.01, corrupt=0.01))
    began = time.perf_counter()
    for at in range(FRAMES):
        link.outcome(frame, at)
    return FRAMES / (time.perf_counter() - began)


def measure(_progress):
    figures = {**run_cards(preset("test"), __file__, seed=1), "link_frames_per_second": link_frames_per_second()}
    return [Row(f"simulation_{name}", "s" if name.endswith("seconds") else "1/s", value)
            for name, value in figures.items()]
