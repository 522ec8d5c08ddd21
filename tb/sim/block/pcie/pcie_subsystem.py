"""PCIe subsystem for benches: the endpoint with a scratch memory, and the host, streams and host memory around it."""

import functools
import random

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out, connect, flipped
from cocotb.triggers import RisingEdge, Timer, with_timeout

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import DmaRequest
from weft.hdl.pcie.endpoint import Endpoint
from weft.hdl.pcie.usplus import connect_hard_block, hard_block_members
from weft.model.functional.memory import PAGE
from weft.tb.sim.block.pcie.straddle import STRADDLE, environment
from weft.tb.sim.block.pcie.usplus_host import UsplusHost
from weft.tb.sim.flow.bench import run_bench
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pcie.host import HostConfig
from weft.tb.sim.pcie.host_memory import HIGH, LOW
from weft.tb.sim.stream.clock import quiet_inputs
from weft.tb.sim.stream.payload import beats, pack
from weft.tb.sim.stream.stream import StreamSink, StreamSource

BULKS, LINES, WRITERS = 2, 2, 2
SILENT = 0x4000            # reads from here up to the MSI-X range get no response
SCRATCH_WORDS = 64
REGION_BYTES = 1 << 18
HALF = REGION_BYTES // 2   # the lower half of a region is read, the upper half is written


def group(pieces):
    """Return the packed DmaRequests of one group of (address, length) pairs."""
    return [pack(DmaRequest, address=a, length=n, last=int(k == len(pieces) - 1)) for k, (a, n) in enumerate(pieces)]


class PcieSubsystem(wiring.Component):
    """Endpoint with a scratch memory instead of the registers."""

    def __init__(self, params):
        self._endpoint = Endpoint(params, bulk_clients=BULKS, line_clients=LINES, write_clients=WRITERS)
        members = self._endpoint.signature.members
        self._arrays = ["i_bulk", "o_bulk", "i_line", "o_line", "i_request", "i_data"]
        self._plain = ["hold", "stop", "function_reset_done"]
        self._shown = ["idle", "lost", "function_reset"]
        passed = ("i_interrupt", "o_push", *self._arrays, *self._plain, *self._shown)
        super().__init__({**hard_block_members(), "refused": Out(16), **{name: members[name] for name in passed}})

    def elaborate(self, platform):
        m = Module()
        m.submodules.endpoint = endpoint = self._endpoint
        connect_hard_block(m, endpoint, self)
        connect(m, endpoint.i_interrupt, flipped(self.i_interrupt))
        connect(m, endpoint.o_push, flipped(self.o_push))
        for name in self._arrays:
            for inner, outer in zip(getattr(endpoint, name), getattr(self, name), strict=True):
                connect(m, inner, flipped(outer))
        m.d.comb += [getattr(endpoint, name).eq(getattr(self, name)) for name in self._plain]
        m.d.comb += [getattr(self, name).eq(getattr(endpoint, name)) for name in self._shown]
        m.d.sync += self.refused.eq(self.refused + endpoint.count_host_refused)

        # Registers: a scratch memory below SILENT, the MSI-X ranges above.
        m.submodules.scratch = scratch = Memory(shape=64, depth=SCRATCH_WORDS, init=[])
        w, r = scratch.write_port(granularity=32), scratch.read_port()
        bus = endpoint.registers
        written = bus.write.p
        data = Mux(written.wide, written.data, Cat(written.data[:32], written.data[:32]))
        enables = Mux(written.wide, 0b11, Mux(written.address[2], 0b10, 0b01))
        is_msix = written.address >= abi.MSIX_TABLE_OFFSET
        stb_q, high_q = Signal(), Signal()
        m.d.comb += [
            bus.write.ready.eq(1),
            w.addr.eq(written.address[3:]), w.data.eq(data),
            w.en.eq(Mux(bus.write.valid & ~is_msix, enables, 0)),
            r.addr.eq(bus.read_address[3:]), r.en.eq(1),
            endpoint.msix.w_stb.eq(bus.write.valid & is_msix),
            endpoint.msix.w_address.eq(written.address & 0xFFF8),
            endpoint.msix.w_data.eq(data),
            endpoint.msix.w_mask.eq(Cat(enables[0].replicate(4), enables[1].replicate(4))),
            endpoint.msix.r_address.eq(bus.read_address & 0xFFF8),
            bus.read_data.eq(Mux(high_q, endpoint.msix.r_data, r.data)),
            bus.read_ack.eq(stb_q),
        ]
        m.d.sync += [
            stb_q.eq(bus.read_stb
                     & ((bus.read_address < SILENT) | (bus.read_address >= abi.MSIX_TABLE_OFFSET))),
            high_q.eq(bus.read_address >= abi.MSIX_TABLE_OFFSET),
        ]
        return m


@functools.cache
def pcie_subsystem(straddle=False):
    """Return the subsystem with preset ``test``, one object per process.

    The tests of several files share its Verilog.
    """
    return PcieSubsystem(preset("test").with_(straddle=straddle))


def run_subsystem(cases, *, straddle=False, env=None, **options):
    """Run tests of the file ``cases``, each with a :class:`Bench`; for ``options`` see ``run_bench``."""
    return run_bench(pcie_subsystem(straddle), name="pcie_subsystem" + "_straddle" * straddle, cases=cases,
                     env={**(env or {}), **environment(straddle)}, **options)


class Bench:
    """Host, streams and two regions of host memory: one below 4 GiB, one above.

    Without ``take_packets``, the results of bulk reads are not received. Reads take 900 to 1100 ns, so that
    completions of different tags overtake each other.
    """

    def __init__(self, dut, *, pause=0.0, payload_bytes=512, read_bytes=512, split_all=False, take_packets=True):
        self.dut, self.rng = dut, random.Random(bench_seed())
        quiet_inputs(dut)
        config = HostConfig(max_payload_bytes=payload_bytes, max_read_bytes=read_bytes, split_completions=split_all,
                            check_tlps=True, lean=False)
        self.host = UsplusHost(dut, config, self.rng, vectors=preset("test").msix_vectors, straddle=STRADDLE)
        rng, clk = self.rng, dut.clk
        self.bulk = [StreamSource(dut, f"i_bulk__{k}", clk, pause, rng) for k in range(BULKS)]
        self.packets = [StreamSink(dut, f"o_bulk__{k}", clk, pause, rng) for k in range(BULKS if take_packets else 0)]
        self.lines = [StreamSource(dut, f"i_line__{k}", clk, pause, rng) for k in range(LINES)]
        self.line_data = [StreamSink(dut, f"o_line__{k}", clk, 0.0, rng) for k in range(LINES)]
        self.requests = [StreamSource(dut, f"i_request__{k}", clk, pause, rng) for k in range(WRITERS)]
        self.data = [StreamSource(dut, f"i_data__{k}", clk, pause, rng) for k in range(WRITERS)]
        self.vectors = StreamSource(dut, "i_interrupt", clk)

    async def start(self, vectors=0):
        await self.host.bring_up(vectors)
        self.regions = [self._region(area) for area in (LOW, HIGH)]
        for region in self.regions:
            region.write(0, self.rng.randbytes(HALF))

    def _region(self, area):
        self.host.memory.areas = (area,)
        return self.host.memory.alloc(REGION_BYTES, PAGE, contiguous=True, page_bytes=PAGE)

    def piece(self, low, high):
        """Return a random (region, offset, length) within two offsets."""
        length = self.rng.choice([1, 3, 4, 64, self.rng.randint(1, 300), self.rng.randint(1, 4096)])
        return self.rng.randrange(2), self.rng.randrange(low, high - length), length

    def draw_group(self, client):
        """Request a random group; return its (address, length) pairs and the expected bytes."""
        pieces = [self.piece(0, HALF) for _ in range(self.rng.choice([1, 1, 3]))]
        places = [(self.regions[r].physical(a), n) for r, a, n in pieces]
        for word in group(places):
            self.bulk[client].send_nowait(word)
        return places, b"".join(self.regions[r].read(a, n) for r, a, n in pieces)

    async def write_groups(self, client, count):
        """Write disjoint pieces; return the expected (region, offset, bytes)."""
        at, expected = HALF + client * (HALF // WRITERS), []
        limit = at + HALF // WRITERS
        for _ in range(count):
            pieces, payload = [], b""
            for _ in range(self.rng.choice([1, 1, 3])):
                region, _, length = self.piece(0, HALF)
                at += self.rng.randint(1, 100)
                if at + length > limit:
                    break
                body = self.rng.randbytes(length)
                pieces.append((self.regions[region].physical(at), length))
                expected.append((region, at, body))
                payload, at = payload + body, at + length
            if not pieces:
                break
            for word in group(pieces):
                self.requests[client].send_nowait(word)
            for word in beats(payload):
                self.data[client].send_nowait(word)
        await with_timeout(self.data[client].idle(), 500, "us")
        return expected

    async def at_rest(self):
        while not int(self.dut.idle.value):
            await RisingEdge(self.dut.clk)

    async def quiet(self):
        """Wait until the engines are idle and their last writes have reached the host."""
        await self.at_rest()
        await Timer(2, "us")

    def image(self):
        return [region.read(HALF, HALF) for region in self.regions]
