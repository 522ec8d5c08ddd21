"""Tests of the splitter against the rule in Python: cut at multiples of the size."""

import gc
import os
import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout

from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import DmaRequest
from weft.hdl.pcie.dma_read import DmaRead
from weft.hdl.pcie.msix import Msix
from weft.hdl.pcie.splitter import Splitter
from weft.hdl.pcie.tlp import Piece
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.sim.stream.stream import StreamSink, StreamSource


def pieces(address, length, size):
    """Return (address, length) of every piece."""
    result = []
    while length:
        part = min(length, size - address % size)
        result.append((address, part))
        address, length = address + part, length - part
    return result


@cocotb.test()
async def offsets_and_lengths(dut):
    """Offsets and lengths around every boundary, for every size."""
    await start_clock(dut)
    rng = random.Random(bench_seed())
    source, sink = StreamSource(dut, "i", dut.clk), StreamSink(dut, "o", dut.clk)
    step = int(os.environ["WEFT_STEP"])
    for code in range(6):
        size = 128 << code
        dut.size.value = code
        edges = sorted({(k * size + d) % 4096 for k in range(min(4, 4096 // size)) for d in (-2, -1, 0, 1, 2)})
        lengths = {k * size + d for k in range(1, 5) for d in (-2, -1, 0, 1)} | {1, 2, 4095, 4096}
        lengths = sorted(n for n in lengths if n <= 4096)
        cases = [(o, n) for o in edges for n in lengths][rng.randrange(step)::step]
        cut = 0
        for k, (offset, length) in enumerate(cases):
            address, last = rng.choice([0xFFFF_F000, 0x1000, (1 << 64) - 0x3000]) + offset, k & 1
            source.send_nowait(pack(DmaRequest, address=address, length=length, last=last))
            wanted = pieces(address, length, size)
            cut += len(wanted) > 1
            got = [unpack(Piece, await with_timeout(sink.recv(), 10, "us")) for _ in wanted]
            assert [(p.address, p.length) for p in got] == wanted, (offset, length, size)
            assert [p.last for p in got] == [0] * (len(wanted) - 1) + [last]
            assert all(a // 4096 == (a + n - 1) // 4096 for a, n in wanted)
        assert cut


@cocotb.test()
async def one_piece_per_cycle(dut):
    """No cycle is lost between pieces or requests."""
    await start_clock(dut)
    source, sink = StreamSource(dut, "i", dut.clk), StreamSink(dut, "o", dut.clk)
    for k in range(20):
        source.send_nowait(pack(DmaRequest, address=k * 4096, length=4096, last=1))
    while not sink.received:
        await RisingEdge(dut.clk)
    start, cycles = sink.received, 0
    while sink.received < 20 * 32:
        await RisingEdge(dut.clk)
        cycles += 1
    assert cycles == 20 * 32 - start


@pytest.mark.parametrize("sim", SIMULATORS)
def test_requests_are_cut_at_aligned_boundaries(sim):
    simulate(Splitter(), name="pcie_splitter", cases=__file__, sim=sim, env={"WEFT_STEP": "1"})


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("change", [{"bulk_slot_bytes": 64}, {"bulk_tags": 1}, {"bulk_slot_bytes": 8192}])
def test_impossible_read_parameters_are_rejected(change):
    with pytest.raises(ValueError, match="bulk"):
        DmaRead(preset("test").with_(**change), bulk_clients=2)
    gc.collect()    # collect half-built components while their warning is ignored


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_too_many_msix_vectors_are_rejected():
    with pytest.raises(ValueError, match="msix_vectors"):
        Msix(preset("test").with_(msix_vectors=33))
    gc.collect()
