"""Tests of the environment of end-to-end benches with a stub card: hosts, MACs, link, and a driver in a thread."""

import os
import random
from pathlib import Path

import cocotb
import pytest
from cocotb.task import bridge
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.tlp import Tlp

from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, elaborate, simulate
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.sim.pair.two_cards import TOP, two_cards_verilog
from weft.tb.sim.pair.two_hosts import EnvConfig, TwoCards
from weft.tb.sim.pcie.host import HostConfig

SOURCE, DESTINATION, COPY, SEND, FRAMES, OCTETS, CONFIGURED = 0x00, 0x08, 0x10, 0x14, 0x18, 0x1C, 0x20
DELAY_NS = 2000


def config(**changes):
    link = LinkConfig(delay_ns=DELAY_NS)
    return EnvConfig(**{"a_to_b": link, "b_to_a": link, "pcap_folder": Path(os.environ["WEFT_RUN"]), **changes})


def copy_lines(device, count=5):
    """Copy lines between scattered pages with the card, like a blocking driver."""
    rng = random.Random(bench_seed())
    source, destination = device.alloc(8192, contiguous=False), device.alloc(8192, contiguous=False)
    payload = rng.randbytes(8192)
    source.write(0, payload)
    waits = []
    for _ in range(count):
        at = rng.randrange(8192 // 64) * 64
        device.write64(SOURCE, source.physical(at))
        device.write64(DESTINATION, destination.physical(at))
        assert device.read64(SOURCE) == source.physical(at)
        began = device.now_ns()
        device.write32(COPY, 1)
        assert device.wait(20_000), "no interrupt"
        waits.append(device.now_ns() - began)
        assert destination.read(at, 64) == payload[at:at + 64]
    return waits


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def drivers_run_in_threads(dut):
    env = TwoCards(dut, config(), seed=bench_seed())
    await env.start()
    task_a = cocotb.start_soon(bridge(copy_lines)(env.device("a")))
    waits = await bridge(copy_lines)(env.device("b")) + await task_a
    # Each contains one read of about 1 µs; jitter makes them differ.
    assert all(850 < wait < 2500 for wait in waits) and len(set(waits)) > 3, waits
    assert await bridge(env.device("a").read32)(CONFIGURED) == 2 | 3 << 8
    began = get_sim_time("ns")
    assert not await bridge(env.device("a").wait)(700)
    assert round(get_sim_time("ns") - began, 3) == 700
    env.finish()


async def send_frames(env, count):
    for _ in range(count):
        await env.host("a").bar.write_dword(SEND, 17)
        await Timer(200, "ns")
    await Timer(DELAY_NS + 2000, "ns")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def frames_cross_after_the_delay(dut):
    env = TwoCards(dut, config(), seed=bench_seed())
    await env.start()
    await send_frames(env, 10)
    bar = env.host("b").bar
    assert (await bar.read_dword(FRAMES), await bar.read_dword(OCTETS)) == (10, 10 * 17 * 64)
    env.finish()
    sent, arrived = (read_pcap(Path(os.environ["WEFT_RUN"]) / f"a_to_b.{subject}.pcap") for subject in ("sent",
                                                                                                        "arrived"))
    assert [frame for _, frame in sent] == [frame for _, frame in arrived]
    assert {len(frame) for _, frame in sent} == {17 * 64}
    assert all(abs(late[0] - early[0] - DELAY_NS) <= 1 for early, late in zip(sent, arrived, strict=True))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def lost_frames_do_not_arrive(dut):
    env = TwoCards(dut, config(a_to_b=LinkConfig(delay_ns=DELAY_NS, loss=0.5)), seed=bench_seed())
    await env.start()
    await send_frames(env, 40)
    counters = env.link("a_to_b").counters
    assert counters.sent.total() == 40 and 5 < counters.lost.total() < 35
    assert await env.host("b").bar.read_dword(FRAMES) == 40 - counters.lost.total()
    assert env.frames_in_flight == 0
    env.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def forbidden_memory_is_noticed(dut):
    env = TwoCards(dut, config(host=HostConfig(read_latency_ns=0, check_tlps=True)), seed=bench_seed())
    await env.start()
    assert Tlp.check.__module__ == Tlp.__module__, "the hosts of the cases before switched the model's checks off"
    host = env.host("a")
    host.strict = False
    await host.bar.write(SOURCE, (0x1234_5000).to_bytes(8, "little"))
    await host.bar.write_dword(COPY, 1)
    await Timer(2, "us")
    assert any("Memory read operation failed" in complaint for complaint in host.complaints)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_environment(sim):
    from weft.tb.test.sim.pair.stub_card import StubCard

    text = two_cards_verilog(elaborate(StubCard(), "stub_card"), "stub_card")
    simulate(verilog=text, top=TOP, name="env", cases=__file__, sim=sim)
