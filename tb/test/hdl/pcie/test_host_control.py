"""Tests of what the host enables and disables: interrupts, bus mastering, extended tags, function-level reset."""

from collections import Counter

import cocotb
import pytest
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge, Timer, with_timeout

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import LineData, LineRequest
from weft.hdl.pcie.tag_limiter import FEW
from weft.tb.sim.block.pcie.pcie_subsystem import BULKS, HALF, LINES, WRITERS, group, run_subsystem
from weft.tb.sim.flow.simulate import SIMULATORS
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.sim.stream.payload import beats, pack, receive, unpack
from weft.tb.test.hdl.pcie.traffic_bench import TrafficBench
from weft.tb.test.rounds import rounds

QUIET_NS = 1_500
TAKEN_AFTER_NS = (0, 600, 1_500, 2_500)     # time at which bus mastering is disabled, with traffic
ROUNDS = 8         # of reads of random sizes, until the limit of outstanding reads was reached


async def all_clients(bench, count):
    """Run reads and writes of every client; return the written data."""
    reads = [cocotb.start_soon(bench.read_groups(k, count)) for k in range(BULKS)]
    reads += [cocotb.start_soon(bench.read_lines(k, count)) for k in range(LINES)]
    writes = [cocotb.start_soon(bench.write_groups(k, count)) for k in range(WRITERS)]
    for task in reads:
        await task
    images = [bytearray(image) for image in bench.image()]
    await bench.apply_writes(writes, images)
    assert bench.image() == [bytes(image) for image in images], "host memory differs from the written data"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def interrupts_are_masked(dut):
    """MSI-X Enable and Function Mask: a vector waits in the pending bits, and is sent once when allowed."""
    bench = TrafficBench(dut)
    await bench.start(vectors=preset("test").msix_vectors)
    capability, event = bench.host.device.functions[0].msix_cap, bench.host.function.msi_vectors[1].event
    for name, waits, goes in (("msix_function_mask", True, False), ("msix_enable", False, True)):
        event.clear()
        setattr(capability, name, waits)
        await Timer(100, "ns")
        for _ in range(2):
            await bench.vectors.send(1)
        await Timer(QUIET_NS, "ns")
        assert not event.is_set(), name
        assert await bench.host.bar.read_qword(abi.MSIX_PBA_OFFSET) == 1 << 1
        setattr(capability, name, goes)
        await with_timeout(event.wait(), 5, "us")
        event.clear()
        await Timer(QUIET_NS, "ns")
        assert not event.is_set() and await bench.host.bar.read_qword(abi.MSIX_PBA_OFFSET) == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def no_bus_master_no_requests(dut):
    """Disable bus mastering during traffic: no request goes to RQ any more.

    Every read ends, with an error if its completion came too late, and every write is taken. When bus mastering is
    enabled again, everything works, with all tags.
    """
    bench = TrafficBench(dut, pause=0.1)
    bench.host.strict = False
    await bench.start()
    function = bench.host.device.functions[0]
    late = Counter()      # delay -> rounds with errors
    for number in rounds(late, TAKEN_AFTER_NS, least=len(TAKEN_AFTER_NS), most=6 * len(TAKEN_AFTER_NS)):
        wait_ns = TAKEN_AFTER_NS[number % len(TAKEN_AFTER_NS)]
        wanted = [bench.ask(k, 12) for k in range(BULKS)]
        for tag in range(20):
            bench.lines[0].send_nowait(pack(LineRequest, line=bench.regions[0].physical(0) // 64, count=2, tag=tag))
        base = bench.regions[0].physical(HALF)
        for k in range(20):
            bench.requests[0].send_nowait(group([(base + k * 4096, 3000)])[0])
            for word in beats(bytes(3000)):
                bench.data[0].send_nowait(word)
        await Timer(wait_ns + 1, "ns")
        function.bus_master_enable = False
        await gone_out(dut)
        quiet = cocotb.start_soon(nothing_is_sent(dut))
        errors = 0
        for k in range(BULKS):
            for expected in wanted[k]:
                got, error = await with_timeout(receive(bench.packets[k]), 50, "us")
                assert len(got) == len(expected) and (error or got == expected)
                errors += error
        lines = [unpack(LineData, await with_timeout(bench.line_data[0].recv(), 50, "us")) for _ in range(40)]
        assert sorted((line.tag, line.index) for line in lines) == [(k // 2, k % 2) for k in range(40)]
        errors += sum(line.error for line in lines)
        await with_timeout(bench.data[0].idle(), 50, "us")
        await with_timeout(bench.at_rest(), 50, "us")
        quiet.cancel()
        late[wait_ns] += bool(errors)
        function.bus_master_enable = True
        await Timer(100, "ns")
        await all_clients(bench, 4)
    assert all("Bus mastering disabled" in text for text in bench.host.complaints), bench.host.complaints


async def gone_out(dut):
    """Wait until requests offered to RQ before are in the hard block."""
    idle = 0
    while idle < 5:
        await RisingEdge(dut.clk)
        idle = 0 if int(dut.m_axis_rq__tvalid.value) else idle + 1


async def nothing_is_sent(dut):
    while True:
        await RisingEdge(dut.clk)
        assert not int(dut.m_axis_rq__tvalid.value), "a request without bus mastering"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def limited_tags_are_used(dut):
    """The model asserts that tags are below 32 unless the host enables more; all clients work with all 32 tags."""
    bench = TrafficBench(dut)
    await bench.start()
    host, ports = bench.host, bench.dut.cfg_ext_tag_enable
    for extended in (0, 1, 0):
        host.device.functions[0].pcie_cap.extended_tag_field_enable = bool(extended)
        ports.value = extended
        most = cocotb.start_soon(most_active(dut, host.device))
        await ClockCycles(dut.clk, 10)
        for _ in range(ROUNDS):
            await all_clients(bench, 10)
            if Seen.most >= FEW + extended:
                break
        most.cancel()
        assert (Seen.most == FEW) if not extended else (Seen.most > FEW), Seen.most
    assert not host.complaints, host.complaints[:3]


class Seen:
    most = 0


async def most_active(dut, device):
    Seen.most = 0
    while True:
        await RisingEdge(dut.clk)
        Seen.most = max(Seen.most, sum(request is not None for request in device.active_request))


async def held_back(dut):
    """Return a bench whose hard block withholds sequence numbers.

    The result is ``(bench, device, withheld numbers, function that returns a number)``.
    """
    bench, held = TrafficBench(dut), []
    await bench.start()
    device = bench.host.device
    put, device.rq_seq_num.put_nowait = device.rq_seq_num.put_nowait, held.append
    return bench, device, held, put


async def write_line(bench):
    """Send a write of 64 bytes to the hard block."""
    bench.requests[0].send_nowait(group([(bench.regions[0].physical(HALF), 64)])[0])
    bench.data[0].send_nowait(beats(bytes(64))[0])
    await Timer(QUIET_NS, "ns")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def idle_waits_for_writes(dut):
    """The subsystem is not idle while a write is in the hard block and its sequence number has not returned."""
    bench, _, held, put = await held_back(dut)
    bench.requests[0].send_nowait(group([(bench.regions[0].physical(HALF), 1000)])[0])
    for word in beats(bytes(1000)):
        bench.data[0].send_nowait(word)
    await Timer(QUIET_NS, "ns")
    writes = len(held)
    assert writes >= 2 and bench.data[0].sent == 16
    for _ in range(500):
        await RisingEdge(dut.clk)
        assert not int(dut.idle.value)
    for number in held[:-1]:
        put(number)
    await Timer(QUIET_NS, "ns")
    assert not int(dut.idle.value)
    put(held[-1])
    await with_timeout(bench.at_rest(), 1, "us")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def writes_in_the_hard_block_may_be_lost(dut):
    """Disabling bus mastering while a write is in the hard block counts as a loss, even without further requests.

    Without outstanding writes nothing is lost.
    """
    bench, device, held, put = await held_back(dut)
    bench.host.strict = False
    for busy in (True, False, True):
        if busy:
            await write_line(bench)
            assert len(held) == 1
        device.functions[0].bus_master_enable = False
        lost = 0
        for _ in range(20):
            await RisingEdge(dut.clk)
            lost += int(dut.lost.value)
        assert lost == busy
        device.functions[0].bus_master_enable = True
        while held:
            put(held.pop())
        await with_timeout(bench.at_rest(), 1, "us")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def requests_lost_without_bus_mastering_are_given_up(dut):
    """The hard block drops a write, so that its sequence number never returns, and bus mastering is enabled again.

    When the card must stop, and no number returns for long, it becomes idle nevertheless, and works afterwards.
    """
    bench, device, held, put = await held_back(dut)
    bench.host.strict = False
    await write_line(bench)
    assert len(held) == 1
    device.rq_seq_num.put_nowait = put
    device.functions[0].bus_master_enable = False
    await with_timeout(RisingEdge(dut.lost), 1, "us")
    dut.stop.value = 1
    device.functions[0].bus_master_enable = True
    silence = 1 << preset("test").silence_log2
    for _ in range(silence // 2):
        await RisingEdge(dut.clk)
        assert not int(dut.idle.value), "given up too early"
    await with_timeout(bench.at_rest(), silence * CLOCK_PERIOD_NS, "ns")
    dut.stop.value = 0
    await RisingEdge(dut.clk)
    await all_clients(bench, 2)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def stopping_card_requests_nothing(dut):
    """Although bus mastering is enabled: reads end with an error, writes are discarded; afterwards everything works."""
    bench = TrafficBench(dut)
    await bench.start()
    dut.stop.value = 1
    await RisingEdge(dut.clk)
    quiet = cocotb.start_soon(nothing_is_sent(dut))
    lost = cocotb.start_soon(with_timeout(RisingEdge(dut.lost), 1, "us"))
    bench.lines[0].send_nowait(pack(LineRequest, line=bench.regions[0].physical(0) // 64, count=1, tag=3))
    assert unpack(LineData, await with_timeout(bench.line_data[0].recv(), 1, "us")).error
    await lost
    image = bench.image()
    bench.requests[0].send_nowait(group([(bench.regions[0].physical(HALF), 64)])[0])
    bench.data[0].send_nowait(beats(bytes([255] * 64))[0])
    await Timer(QUIET_NS, "ns")
    await with_timeout(bench.at_rest(), 1, "us")
    assert bench.image() == image
    quiet.cancel()
    dut.stop.value = 0
    await RisingEdge(dut.clk)
    await all_clients(bench, 2)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def function_is_reset(dut):
    """The reset request reaches the rest of the card; its completion reaches the hard block for one cycle.

    The state of interrupts is then the one after power-up.
    """
    bench = TrafficBench(dut)
    await bench.start(vectors=preset("test").msix_vectors)
    bar, control = bench.host.bar, abi.MSIX_TABLE_OFFSET + 12
    assert await bar.read_dword(control) == 0
    dut.cfg_flr_in_process.value = 1
    while not int(dut.function_reset.value):
        await RisingEdge(dut.clk)
    bench.lines[0].send_nowait(pack(LineRequest, line=bench.regions[0].physical(0) // 64, count=1, tag=3))
    assert unpack(LineData, await with_timeout(bench.line_data[0].recv(), 1, "us")).error
    await with_timeout(bench.at_rest(), 5, "us")
    dut.function_reset_done.value = 1
    await RisingEdge(dut.clk)
    dut.function_reset_done.value = 0
    done = []
    for _ in range(5):
        await ReadOnly()
        done.append(int(dut.cfg_flr_done.value))
        await RisingEdge(dut.clk)
    assert sorted(done) == [0, 0, 0, 0, 1]
    dut.cfg_flr_in_process.value = 0
    while int(dut.function_reset.value):
        await RisingEdge(dut.clk)
    assert await bar.read_dword(control) == 1
    await all_clients(bench, 2)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_the_host_is_obeyed(sim):
    some = "interrupts_are_masked|idle_waits|may_be_lost|to_stop|function_is_reset"
    quick = {"tests": some} if sim == "icarus" else {}
    run_subsystem(__file__, sim=sim, **quick)


def test_the_host_is_obeyed_with_straddle():
    run_subsystem(__file__, sim="verilator", straddle=True)
