"""Tests of the DMA read engine with a completer that answers late, split, out of order, and sometimes with errors."""

import hashlib
import os
import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import Beat, LineData, LineRequest
from weft.hdl.pcie.completion_credit import COMPLETION_HEADERS, COMPLETION_LINES, TRUST
from weft.hdl.pcie.dma_read import BULK_SHARE, DmaRead
from weft.tb.sim.block.pcie.pcie_subsystem import group
from weft.tb.sim.block.pcie.straddle import STRADDLE, environment
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.pcie.partners import Completer
from weft.tb.test.volume import volume

PARAMS = preset("test")
BULKS, LINES = 2, 3
BULK_PAGES, LINE_PAGES = range(0xFFFF0, 0x100011), range(0xFFC00, 0xFFC00 + 2000)    # pages of random requests
PAGES = [hashlib.shake_128(bytes([k])).digest(4096) for k in range(7)]


def host_bytes(address, length):
    """Return the contents of host memory: a pattern that differs between neighbouring pages."""
    result = b""
    while length:
        part = PAGES[(address >> 12) % len(PAGES)][address & 0xFFF:][:length]
        result += part
        address, length = address + len(part), length - len(part)
    return result


class Bench:
    def __init__(self, dut, pause=0.0, **completer):
        self.dut, self.rng = dut, random.Random(bench_seed())
        self.bulk = [StreamSource(dut, f"i_bulk__{k}", dut.clk, pause, self.rng) for k in range(BULKS)]
        self.packets = [StreamSink(dut, f"o_bulk__{k}", dut.clk, pause, self.rng) for k in range(BULKS)]
        self.lines = [StreamSource(dut, f"i_line__{k}", dut.clk, pause, self.rng) for k in range(LINES)]
        self.line_data = [StreamSink(dut, f"o_line__{k}", dut.clk, 0.0, self.rng) for k in range(LINES)]
        self.completer = Completer(dut, self.rng, read=host_bytes, pause=pause, **completer)

    async def configure(self, code):
        """Set another request size, from a cycle before the next request on."""
        self.dut.cfg_max_read_req.value = code
        await RisingEdge(self.dut.clk)

    async def answer_whole(self):
        """Answer each request of up to 1 KiB in one piece, until the card relies on it."""
        self.completer.rcb = 4096
        await self.configure(3)
        await self.bulk_client(0, [[(0x10000, 1024)]] * (TRUST + 1))

    async def packet(self, client):
        """Return bytes and error flag of the next packet of a bulk client."""
        result = b""
        while True:
            beat = unpack(Beat, await self.packets[client].recv())
            assert beat.last or (beat.empty == 0 and beat.error == 0)
            result += beat.data.to_bytes(64, "little")[:64 - beat.empty]
            if beat.last:
                return result, beat.error

    async def bulk_client(self, client, groups):
        """Send groups and check every packet; return the number of packets with errors."""
        for pieces in groups:
            for word in group(pieces):
                self.bulk[client].send_nowait(word)
        errors = 0
        for pieces in groups:
            got, error = await self.packet(client)
            wanted = b"".join(host_bytes(a, n) for a, n in pieces)
            pages = {p for a, n in pieces for p in range(a >> 12, (a + n - 1 >> 12) + 1)}
            assert error == bool(pages & self.completer.fail)
            assert len(got) == len(wanted) and (error or got == wanted), (client, pieces)
            errors += error
        return errors

    async def line_client(self, client, requests):
        """Request (line, count) pairs and check all lines; return the number of requests that were overtaken."""
        waiting, at, overtaken = {}, 0, 0
        for tag, (line, count) in enumerate(requests):
            self.lines[client].send_nowait(pack(LineRequest, line=line, count=count, tag=tag))
            waiting[tag] = [line, count, 0]
        while waiting:
            got = unpack(LineData, await self.line_data[client].recv())
            line, count, seen = waiting[got.tag]
            assert got.index == seen and got.last == (seen == count - 1)
            pages = {line >> 6, line + count - 1 >> 6}
            failed = self.completer.fail_lines.intersection(range(line, line + count))
            assert got.error == bool(pages & self.completer.fail or failed)
            assert got.error or got.data.to_bytes(64, "little") == host_bytes((line + seen) * 64, 64)
            waiting[got.tag][2] += 1
            if got.last:
                overtaken += got.tag != min(waiting)
                del waiting[got.tag]
            at += 1
        return overtaken


def upper_bits(rng, width):
    """Return bits of an address above ``width`` bits, mostly 0."""
    return rng.choice([0, 0, 0, rng.getrandbits(64 - width) << width])


def random_groups(rng, count):
    groups = []
    for _ in range(count):
        lengths = [rng.choice([1, 2, 64, rng.randint(1, 200), rng.randint(1, 4096), 4096])
                   for _ in range(rng.choice([1, 1, 2, 5]))]
        groups.append([((BULK_PAGES[0] << 12) + rng.randrange(0x20000) + upper_bits(rng, 33), n) for n in lengths])
    return groups


def random_lines(rng, count):
    result = []
    for _ in range(count):
        lines = rng.randint(1, 4)
        line = rng.choice(LINE_PAGES) * 64 + rng.randint(0, 64 - lines)
        result.append((line + upper_bits(rng, 33) // 64, lines))
    return result


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def offsets_and_lengths(dut):
    """Every byte offset with the lengths around every boundary, alone and appended to earlier pieces.

    The other clients have beats in which the second piece begins at each byte.
    """
    await start_clock(dut)
    bench = Bench(dut, window=4)
    step = int(os.environ["WEFT_STEP"])
    await bench.configure(0)
    lengths = [*range(1, 10), *range(58, 70), *range(122, 133), 257]
    cases = [(offset, length) for offset in range(64) for length in lengths]
    cases = cases[bench_seed() % step::step]
    groups = [[(0x1000 + o, n)] if k % 2 else [(0x2000 + (o * 37 & 63), 1 + k % 70), (0x3000 + o, n)]
              for k, (o, n) in enumerate(cases)]
    joined = [[(0x4000 + bench.rng.randrange(64), fill), (0x5000 + bench.rng.randrange(64), 70)]
              for fill in range(1, 64)]
    others = [cocotb.start_soon(bench.bulk_client(k, joined)) for k in range(1, BULKS)]
    await bench.bulk_client(0, groups)
    for task in others:
        await task


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def everything_at_once(dut):
    """All clients, completions split and overtaking each other, pauses everywhere, failing pages."""
    await start_clock(dut)
    rng = random.Random(bench_seed())
    bench = Bench(dut, pause=0.2, window=8)
    count = int(os.environ["WEFT_GROUPS"])
    overtaken = errors = reads = 0
    for code in (0, 1, 2, 5):
        await bench.configure(code)
        bench.completer.size = min(128 << code, 1024)
        bench.completer.split_all = code == 1
        bench.completer.fail = {*rng.sample(BULK_PAGES, 4), *rng.sample(LINE_PAGES, 200)} if code else set()
        line_requests = [random_lines(rng, (2 if code else 4) * count) for _ in range(LINES)]
        tasks = [cocotb.start_soon(bench.bulk_client(k, random_groups(rng, count))) for k in range(BULKS)]
        line_tasks = [cocotb.start_soon(bench.line_client(k, line_requests[k])) for k in range(LINES)]
        errors += sum([await t for t in tasks])
        overtaken += sum([await t for t in line_tasks])
        reads += sum(1 + (code == 0 and n > 2) for requests in line_requests for _, n in requests)
    assert overtaken and errors and bench.completer.overtaken and bench.completer.split
    assert sum(tag >= PARAMS.bulk_tags for *_, tag in bench.completer.seen) == reads
    assert bench.completer.most_lines <= COMPLETION_LINES
    for _ in range(20):
        await RisingEdge(dut.clk)
    assert not int(dut.busy.value)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_slot_keeps_its_error(dut):
    """Short reads in all slots, half of them failing, with completions in any order."""
    await start_clock(dut)
    places = PARAMS.bulk_tags - PARAMS.bulk_tags // BULK_SHARE * (BULKS - 1)
    bench = Bench(dut, window=places)
    cocotb.start_soon(hold_back(bench.completer, places))
    bench.completer.fail = set(bench.rng.sample(BULK_PAGES, len(BULK_PAGES) // 2))
    groups = [[((bench.rng.choice(BULK_PAGES) << 12) + bench.rng.randrange(4000), bench.rng.randint(1, 64))]
              for _ in range(6 * places)]
    assert await bench.bulk_client(0, groups) > places
    assert bench.completer.most_active == places and bench.completer.overtaken > places


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def either_read_of_a_request_may_fail(dut):
    """With 128-byte reads a request of more lines takes two: it fails if one of them does, in every slot."""
    await start_clock(dut)
    bench = Bench(dut, window=PARAMS.line_tags, size=128)
    await bench.configure(0)
    requests = [(64 * page + 4 * bench.rng.randrange(15), bench.rng.choice([3, 4]))
                for page in bench.rng.sample(LINE_PAGES, 450)]
    bench.completer.fail_lines = {line + bench.rng.randrange(count) for line, count in requests
                                  if bench.rng.random() < 0.7}
    tasks = [cocotb.start_soon(bench.line_client(k, requests[k::LINES])) for k in range(LINES)]
    for task in tasks:
        await task
    assert bench.completer.most_active >= PARAMS.line_tags - 1


async def hold_back(completer, places):
    """Send completions in bursts; the first one when all slots wait for theirs."""
    while True:
        completer.window = 0
        for _ in range(completer.rng.randint(1, 60) if completer.most_active == places else 4 * places):
            await RisingEdge(completer.dut.clk)
        completer.window = places
        for _ in range(completer.rng.randint(1, 60)):
            await RisingEdge(completer.dut.clk)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def full_rate(dut):
    """Sustained 4 KiB reads with 60 cycles of latency: the reader keeps up with the completions."""
    await start_clock(dut)
    bench = Bench(dut, latency=60)
    await bench.answer_whole()
    groups = [[(0x10000 + 0x1000 * k, 4096)] for k in range(24)]
    task = cocotb.start_soon(bench.bulk_client(0, groups))
    taken = bench.packets[0].received
    while bench.packets[0].received < taken + 8 * 64:
        await RisingEdge(dut.clk)
    start, cycles = bench.packets[0].received, 0
    while bench.packets[0].received < taken + 20 * 64:
        await RisingEdge(dut.clk)
        cycles += 1
    beats = bench.packets[0].received - start
    # A completion of 1 KiB with its header takes 17 beats on the link: the reader must not be slower.
    cocotb.log.warning("%d beats out in %d cycles, %d link beats needed", beats, cycles, beats * 17 // 16)
    assert beats >= 0.97 * cycles * 16 / 17
    await task


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def output_rate(dut):
    """Data in the slots leaves at one beat per cycle."""
    await start_clock(dut)
    bench = Bench(dut)
    await bench.answer_whole()
    asked, taken = len(bench.completer.seen), bench.packets[0].received
    bench.packets[0].pause = 1.0
    task = cocotb.start_soon(bench.bulk_client(0, [[(0x10000 + 0x1000 * k, 4096)] for k in range(8)]))
    for _ in range(600):
        await RisingEdge(dut.clk)
    assert (len(bench.completer.seen) - asked) * 1024 <= COMPLETION_LINES * 64 + 28 * 1024
    bench.packets[0].pause = 0.0
    while bench.packets[0].received < taken + 1:
        await RisingEdge(dut.clk)
    start, cycles = bench.packets[0].received, 0
    while bench.packets[0].received < taken + 5 * 64:
        await RisingEdge(dut.clk)
        cycles += 1
    beats = bench.packets[0].received - start
    cocotb.log.warning("%d beats in %d cycles from full slots", beats, cycles)
    assert beats >= 0.97 * cycles
    await task


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reads_in_flight_are_those_of_the_buffer(dut):
    """Outstanding reads fill exactly the lines of the hard block's buffer, wherever in a line they begin.

    Short reads of three completions each use all its headers but two, in whichever unit the host splits them.
    """
    await start_clock(dut)
    bench = Bench(dut, latency=100)
    await bench.answer_whole()
    for dword in (0, 1, 2, 4, 8):
        lines = 14 + (dword > 0)                # the last dword has a separate line
        bench.completer.most_lines = 0
        piece = 4 * dword, 64 * 14 - 4 * dword + 4 * (dword > 0)
        await bench.bulk_client(0, [[(0x10000 + 0x1000 * k + piece[0], piece[1])] for k in range(28)])
        assert bench.completer.most_lines == COMPLETION_LINES // lines * lines, dword
    bench.completer.split_all = True
    for unit in (256, 128, 64):     # the first reads show a finer unit
        bench.completer.rcb = unit
        for reads in (5, 50):
            bench.completer.most_headers = 0
            await bench.bulk_client(0, [[(0x10000 + 0x1000 * k + unit - 4, unit + 8)] for k in range(reads)])
        assert bench.completer.most_headers == COMPLETION_HEADERS // 3 * 3, unit


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def headers_in_flight_are_those_of_the_buffer(dut):
    """Outstanding reads use all headers of the buffer, and not more, however finely the host splits completions.

    That holds once the card has seen how the host splits them.
    """
    await start_clock(dut)
    bench, spare = Bench(dut, latency=100), 1024 // 64
    for unit in (64, 128, 256):
        await bench.answer_whole()
        bench.completer.rcb, bench.completer.split_all = unit, True
        for half in ("learns", "knows"):
            await bench.line_client(0, [(0x400 + 4 * k, 1) for k in range(20)])     # nothing else is outstanding
            bench.completer.most_headers = bench.completer.most_lines = 0
            await bench.bulk_client(0, [[(0x10000 + 0x1000 * k, 1024)] for k in range(60)])
            if half == "knows":
                wanted = min(COMPLETION_HEADERS, COMPLETION_LINES * 64 // unit)
                assert wanted - spare <= bench.completer.most_headers <= COMPLETION_HEADERS, unit
        bench.completer.split_all = False


@cocotb.test(timeout_time=1, timeout_unit="ms", skip=not STRADDLE)
async def finely_split_completions_use_little_space(dut):
    """With straddle, a read of more than two lines counts as a completion for every four lines.

    Each end inside a line adds one. The lines outstanding never exceed those of the buffer.
    """
    await start_clock(dut)
    bench = Bench(dut, latency=300, rcb=64, split_all=True)
    await bench.configure(3)
    places = PARAMS.bulk_tags - PARAMS.bulk_tags // BULK_SHARE * (BULKS - 1)
    for at, length, completions in ((0, 1024, 4), (60, 964, 5), (60, 956, 6), (0, 960, 4), (0, 836, 5), (60, 8, 2),
                                    (0, 64, 1), (8, 256, 4), (0, 448, 2), (0, 128, 2), (60, 72, 3)):
        bench.completer.most_headers = bench.completer.most_lines = 0
        await bench.bulk_client(0, [[(0x10000 + 0x1000 * k + at, length)] for k in range(2 * places)])
        lines = (at + length + 63) // 64
        reads = min(COMPLETION_HEADERS // completions, COMPLETION_LINES // lines, places)
        assert bench.completer.most_lines == bench.completer.most_headers == reads * lines, (at, length)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def single_line_latency(dut):
    """Count cycles from request to data with a completer that answers at once; outstanding bytes stay bounded."""
    await start_clock(dut)
    bench = Bench(dut)
    bench.lines[1].send_nowait(pack(LineRequest, line=77, count=1, tag=5))
    while not int(dut.i_line__1__valid.value):
        await RisingEdge(dut.clk)
    cycles = 0
    while not bench.line_data[1].received:
        await RisingEdge(dut.clk)
        cycles += 1
    cocotb.log.warning("a line takes %d cycles, completer included", cycles)
    assert cycles <= 12
    bench.bulk[0].send_nowait(group([(99, 60)])[0])
    while not int(dut.i_completion__valid.value):
        await RisingEdge(dut.clk)
    cycles = 0
    while not int(dut.o_bulk__0__valid.value):
        await RisingEdge(dut.clk)
        cycles += 1
    cocotb.log.warning("from a slot's completion to its first beat %d cycles", cycles)
    assert cycles <= 12


@pytest.mark.parametrize("sim", SIMULATORS)
def test_reads_return_the_requested_bytes(sim):
    quick = sim == "icarus"     # Icarus omits the header counts, which take half as long as all other cases
    simulate(DmaRead(PARAMS, bulk_clients=BULKS, line_clients=LINES), name="pcie_dma_read", cases=__file__,
             sim=sim, tests=r"\.(?!headers_in_flight|finely_split)\w+$" if quick else None,
             env={"WEFT_STEP": "7" if quick else volume("5", "2"), "WEFT_GROUPS": "6" if quick else volume("8", "16")})


def test_reads_with_straddle():
    simulate(DmaRead(PARAMS.with_(straddle=True), bulk_clients=BULKS, line_clients=LINES),
             name="pcie_dma_read_straddle", cases=__file__, sim="verilator",
             tests="finely_split|everything_at_once", env={**environment(), "WEFT_GROUPS": volume("8", "16")})
