"""Tests of shim, DMA engines and MSI-X with the UltraScale+ hard block and a root complex with 900 to 1100 ns reads."""

import os

import cocotb
import pytest
from cocotb.triggers import RisingEdge, Timer, with_timeout

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import LineData, LineRequest, PushedDescriptor
from weft.hdl.pcie.completion_credit import COMPLETION_HEADERS
from weft.tb.sim.block.pcie.pcie_subsystem import (
    BULKS,
    HALF,
    LINES,
    SCRATCH_WORDS,
    SILENT,
    WRITERS,
    group,
    run_subsystem,
)
from weft.tb.sim.block.pcie.straddle import STRADDLE
from weft.tb.sim.flow.simulate import SIMULATORS
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.sim.stream.payload import beats, pack, receive, unpack
from weft.tb.sim.stream.stream import StreamSink
from weft.tb.test.hdl.pcie.traffic_bench import TrafficBench

NOWHERE = 1 << 50          # an address without memory


@cocotb.test()
async def traffic(dut):
    """Unaligned reads, lines and writes at once, for one MPS and MRRS."""
    payload, request, split = (int(v) for v in os.environ["WEFT_LINK"].split(","))
    count = int(os.environ["WEFT_GROUPS"])
    bench = TrafficBench(dut, pause=0.1, payload_bytes=payload, read_bytes=request, split_all=bool(split))
    await bench.start()
    images = [bytearray(i) for i in bench.image()]
    reads = [cocotb.start_soon(bench.read_groups(k, count)) for k in range(BULKS)]
    lines = [cocotb.start_soon(bench.read_lines(k, count)) for k in range(LINES)]
    writes = [cocotb.start_soon(bench.write_groups(k, count)) for k in range(WRITERS)]
    for task in reads:
        await task
    overtaken = sum([await task for task in lines])
    for _ in range(10):
        if overtaken and bench.host.overtaken:
            break
        more = [cocotb.start_soon(bench.read_lines(k, count)) for k in range(LINES)]
        overtaken += sum([await task for task in more])
    await bench.apply_writes(writes, images)
    assert bench.image() == [bytes(i) for i in images], "host memory differs from the written data"
    assert int(dut.cfg_max_payload.value) == payload.bit_length() - 8
    assert int(dut.cfg_max_read_req.value) == request.bit_length() - 8
    assert overtaken and bench.host.overtaken, "nothing was reordered"
    assert not bench.host.complaints, bench.host.complaints[:3]


@cocotb.test()
async def registers(dut):
    """Accesses of 4 and 8 bytes work; all others are rejected without side effects."""
    bench = TrafficBench(dut)
    bench.host.strict = False
    await bench.start()
    bar, rng = bench.host.bar, bench.rng
    shadow = bytearray(SCRATCH_WORDS * 8)
    await bar.write(0, bytes(8 * 2))
    for at in range(0, len(shadow), 8):
        await bar.write_qword(at, 0)
    for _ in range(40):
        wide = rng.random() < 0.5
        at = rng.randrange(0, len(shadow), 8 if wide else 4)
        body = rng.randbytes(8 if wide else 4)
        shadow[at:at + len(body)] = body
        await bar.write(at, body)
        at = rng.randrange(0, len(shadow), 8)
        assert await bar.read(at, 8) == bytes(shadow[at:at + 8])
        at = rng.randrange(0, len(shadow), 4)
        assert await bar.read(at, 4) == bytes(shadow[at:at + 4])
        at, n = rng.randrange(0, len(shadow), 4), rng.randint(1, 3)
        assert await bar.read(at, n) == bytes(shadow[at:at + n])
    before = int(dut.refused.value)
    assert before == 1
    await bar.write(0, b"\xff")                            # part of a double word
    await bar.write(4, b"\xff" * 8)                        # not aligned
    await bar.write(0, b"\xff" * 256)                      # too long
    refused = 3
    for at, n in ((4, 8), (0, 12), (0, 200), (SILENT, 4)):
        with pytest.raises(Exception, match=r"[Uu]nsuccessful|[Ss]tatus"):
            await with_timeout(bar.read(at, n), 20, "us")
        refused += 1
    assert await bar.read(8, 8) == bytes(shadow[8:16])
    assert int(dut.refused.value) == before + refused


@cocotb.test()
async def pushed_descriptors(dut):
    """A descriptor that the host writes to a push window arrives whole, with its ring and window."""
    bench = TrafficBench(dut, pause=0.1)
    await bench.start()
    rng, sink = bench.rng, StreamSink(dut, "o_push", dut.clk, 0.3, bench.rng)
    for _ in range(24):
        ring, window = rng.randrange(len(abi.PUSH_RINGS)), rng.randrange(abi.PUSH_WINDOWS)
        descriptor = rng.randbytes(abi.BLOCK_BYTES)
        await bench.host.bar.write(abi.PUSH_BASE + ring * abi.PUSH_PAGE_BYTES + abi.BLOCK_BYTES * window, descriptor)
        got = unpack(PushedDescriptor, await with_timeout(sink.recv(), 5, "us"))
        assert (got.ring, got.window, got.whole) == (ring, window, 1)
        assert got.data == int.from_bytes(descriptor, "little")
    assert not bench.host.complaints, bench.host.complaints[:3]


@cocotb.test()
async def interrupts(dut):
    """Each vector arrives with its own data; a masked one waits in the pending bits."""
    vectors = preset("test").msix_vectors
    bench = TrafficBench(dut)
    await bench.start(vectors=vectors)
    function, bar = bench.host.function, bench.host.bar
    for vector in [*range(vectors), 0]:
        event = function.msi_vectors[vector].event
        event.clear()
        await bench.vectors.send(vector)
        await with_timeout(event.wait(), 5, "us")
    control = abi.MSIX_TABLE_OFFSET + 16 * 2 + 12
    assert await bar.read_dword(control) == 0
    await bar.write_dword(control, 1)
    assert await bar.read_dword(control) == 1
    event = function.msi_vectors[2].event
    event.clear()
    await bench.vectors.send(2)
    await bench.vectors.send(31)
    await Timer(1, "us")
    assert not event.is_set()
    assert await bar.read_qword(abi.MSIX_PBA_OFFSET) == 1 << 2
    await bar.write_dword(control, 0)
    await with_timeout(event.wait(), 5, "us")
    assert await bar.read_qword(abi.MSIX_PBA_OFFSET) == 0
    assert not bench.host.complaints, bench.host.complaints[:3]


@cocotb.test()
async def interrupts_among_writes(dut):
    """Each interrupt message goes to the address in its table entry, whatever other writes are in progress."""
    bench = TrafficBench(dut, pause=0.1)
    vectors = preset("test").msix_vectors
    await bench.start(vectors=vectors)
    bar, messages = bench.host.bar, [bench.rng.getrandbits(32) for _ in range(vectors)]
    for vector, message in enumerate(messages):
        entry = abi.MSIX_TABLE_OFFSET + 16 * vector
        address = bench.regions[vector % 2].physical(4 * vector)
        await bar.write_qword(entry, address)
        await bar.write_dword(entry + 8, message)
        assert await bar.read_qword(entry) == address and await bar.read_dword(entry + 8) == message

    async def arrived(region, at, message):
        while region.read(at, 4) != message:
            await RisingEdge(dut.clk)

    images, sent = [bytearray(i) for i in bench.image()], 0
    writes = [cocotb.start_soon(bench.write_groups(k, 10)) for k in range(WRITERS)]
    while sent < 4 * vectors or not all(task.done() for task in writes):
        vector = sent % vectors
        region, message = bench.regions[vector % 2], messages[vector]
        region.write(4 * vector, (~message % (1 << 32)).to_bytes(4, "little"))
        await bench.vectors.send(vector)
        await with_timeout(arrived(region, 4 * vector, message.to_bytes(4, "little")), 5, "us")
        sent += 1
    dut._log.info("%d interrupts among writes", sent)
    await bench.apply_writes(writes, images)
    assert bench.image() == [bytes(i) for i in images], "host memory differs from the written data"
    assert not bench.host.complaints, bench.host.complaints[:3]


@cocotb.test()
async def failed_reads(dut):
    """Reads of absent memory are marked as errors; the next reads work."""
    bench = TrafficBench(dut)
    bench.host.strict = False
    await bench.start()
    good = bench.regions[0].physical(0)
    for _ in range(3):
        for word in group([(good, 700), (NOWHERE, 700), (good, 100)]):
            bench.bulk[0].send_nowait(word)
        bench.lines[0].send_nowait(pack(LineRequest, line=NOWHERE // 64, count=3, tag=9))
        got, error = await with_timeout(receive(bench.packets[0]), 20, "us")
        assert len(got) == 1500 and error
        for index in range(3):
            line = unpack(LineData, await with_timeout(bench.line_data[0].recv(), 20, "us"))
            assert line.error and line.tag == 9 and line.index == index
        await bench.read_groups(0, 2)
    assert bench.host.complaints


@cocotb.test()
async def write_rate(dut):
    """Aligned 4 KiB writes at MPS 512: RQ is never idle.

    512 bytes take 9 RQ beats; with straddle, 1024 bytes take 17.
    """
    bench = TrafficBench(dut)
    await bench.start()
    groups, base = 8, bench.regions[0].physical(HALF)
    for k in range(groups):
        bench.requests[0].send_nowait(group([(base + k * 4096, 4096)])[0])
        for word in beats(bench.rng.randbytes(4096)):
            bench.data[0].send_nowait(word)
    rq, used, taken, start, cycle = dut.m_axis_rq__tvalid, 0, 0, None, 0
    while used < groups * 4 * (17 if STRADDLE else 18):
        await RisingEdge(dut.clk)
        cycle += 1
        if int(rq.value):
            start = cycle if start is None else start
            taken += 1
            used += int(dut.m_axis_rq__tready.value)
    cycles = cycle - start + 1
    cocotb.log.warning("%d bytes in %d RQ beats, a beat waiting in %d of %d cycles", groups * 4096, used, taken, cycles)
    assert taken >= 0.98 * cycles, "the card left RQ idle"
    await bench.quiet()


@cocotb.test()
async def read_rate(dut):
    """4 KiB reads at MRRS 1024 and a latency of 1 microsecond; the buffer of completions stays nearly empty.

    Without straddle that holds once the card knows how the host splits completions. Also measures the latency of one
    line.
    """
    bench = TrafficBench(dut, read_bytes=1024, split_all="WEFT_SPLIT" in os.environ)
    await bench.start()
    base = bench.regions[0].physical(0)
    cycles = 0
    bench.lines[0].send_nowait(pack(LineRequest, line=base // 64, count=1, tag=1))
    while not bench.line_data[0].received:
        await RisingEdge(dut.clk)
        cycles += 1
    cocotb.log.warning("one line: %d ns", cycles * CLOCK_PERIOD_NS)
    for k in range(32):
        bench.bulk[0].send_nowait(group([(base + k * 4096, 4096)])[0])
    while bench.packets[0].received < 12 * 64:
        await RisingEdge(dut.clk)
    start, cycles, most = bench.packets[0].received, 0, 0
    while bench.packets[0].received < 32 * 64:
        await RisingEdge(dut.clk)
        cycles += 1
        most = max(most, bench.host.device.rx_buf_cplh_fc_count)
    rate = (bench.packets[0].received - start) * 512 / (cycles * CLOCK_PERIOD_NS)
    cocotb.log.warning("sustained reads: %.1f Gb/s, %d completions in the hard block at most", rate, most)
    assert rate >= 90
    assert not STRADDLE or most <= COMPLETION_HEADERS // 8, "RC is not emptied as fast as it fills"
    assert not bench.host.complaints, bench.host.complaints[:3]


@pytest.mark.parametrize(("sim", "link"), [
    ("icarus", "256,1024,1"), ("verilator", "512,512,0"), ("verilator", "128,128,1"), ("verilator", "256,1024,1"),
    ("verilator", "512,4096,0"),
])
def test_traffic_with_a_late_and_reordering_host(sim, link):
    run_subsystem(__file__, sim=sim, tests="traffic",
                  env={"WEFT_LINK": link, "WEFT_GROUPS": "6" if sim == "icarus" else "12"})


@pytest.mark.parametrize("link", ["512,512,0", "128,128,1", "256,1024,1", "512,4096,0"])
def test_traffic_with_straddle(link):
    run_subsystem(__file__, sim="verilator", straddle=True, tests="traffic",
                  env={"WEFT_LINK": link, "WEFT_GROUPS": "12"})


@pytest.mark.parametrize("sim", SIMULATORS)
def test_host_requests_interrupts_and_errors(sim):
    run_subsystem(__file__, sim=sim, tests="registers|pushed|interrupts|failed_reads")


def test_interrupts_and_errors_with_straddle():
    run_subsystem(__file__, sim="verilator", straddle=True, tests="registers|pushed|interrupts|failed_reads")


@pytest.mark.parametrize(("straddle", "split"), [(False, False), (True, False), (True, True)])
def test_rates_at_the_hard_block(straddle, split):
    run_subsystem(__file__, sim="verilator", straddle=straddle, tests="write_rate|read_rate",
                  env={"WEFT_SPLIT": "1"} if split else {})
