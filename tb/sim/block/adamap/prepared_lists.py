"""Host memory and driver for benches of Adamap blocks: lists made on demand, reads with a latency."""

import cocotb
from cocotb.triggers import Lock, RisingEdge, Timer
from cocotb.utils import get_sim_time

from weft.hdl.adamap.window.control import ControlKind, ControlOp
from weft.hdl.contract import abi
from weft.hdl.part.layouts import Extent, LineData, LineRequest
from weft.tb.sim.block.adamap.with_qp_table import write_qp
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.sim.stream.stream import StreamSource

FIRST_LINE, EXTENT_LINES = 64, 1 << 20
NODES_MAX = (1 << abi.LINK_DOORBELL.by_name["nodes"].width) - 1     # nodes per doorbell


def now():
    """Return the number of clock cycles since the start of the simulation."""
    return get_sim_time("ns") // CLOCK_PERIOD_NS


class LineMemory:
    """Memory that responds to requests on ``o_line`` with lines on ``i_line``.

    ``read(line)`` returns the 64 bytes of a line, ``latency()`` the cycles from a request to the first line of its
    response. The lines of one response are contiguous; responses may overtake each other.
    """

    def __init__(self, dut, read, latency):
        self.dut, self.read, self.latency = dut, read, latency
        self.requests = self.lines = 0
        self.bus = Lock()
        dut.i_line__valid.value = 0
        dut.o_line__ready.value = 1
        cocotb.start_soon(self._accept())

    async def _accept(self):
        dut = self.dut
        while True:
            if not int(dut.o_line__valid.value):
                await RisingEdge(dut.o_line__valid)
            await RisingEdge(dut.clk)
            if not int(dut.o_line__valid.value):
                continue
            request = unpack(LineRequest, int(dut.o_line__payload.value))
            assert 1 <= request.count <= 4
            assert request.line % 64 + request.count <= 64, "a read across 4 KiB"
            self.requests += 1
            self.lines += request.count
            cocotb.start_soon(self._answer(request, self.latency()))

    async def _answer(self, request, cycles):
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        await pass_cycles(dut, cycles)
        async with self.bus:
            for index in range(request.count):
                block = self.read(request.line + index)
                dut.i_line__payload.value = pack(
                    LineData, data=int.from_bytes(block, "little"), tag=request.tag, index=index,
                    last=int(index + 1 == request.count), error=0)
                dut.i_line__valid.value = 1
                await edge
            dut.i_line__valid.value = 0


async def pass_cycles(dut, cycles):
    """Wait for some clock cycles without a callback for each."""
    if cycles > 1:
        await Timer((cycles - 1) * CLOCK_PERIOD_NS - CLOCK_PERIOD_NS // 2, "ns")
    await RisingEdge(dut.clk)


async def open_extent(dut):
    """Announce one extent that holds every line of the benches."""
    await StreamSource(dut, "i_extent", dut.clk).send(pack(Extent, index=0, base=FIRST_LINE, lines=EXTENT_LINES))


async def operate(dut, port, kind, **fields):
    """Perform one control operation on a block."""
    await StreamSource(dut, port, dut.clk).send(pack(ControlOp, kind=kind, **fields))
    await RisingEdge(dut.clk)


def doorbells(qpn, generation, nodes, line):
    """Yield the link doorbells that announce ``nodes`` nodes in consecutive blocks, the first one at ``line``."""
    for at in range(0, nodes, NODES_MAX):
        yield abi.LINK_DOORBELL.pack(qpn=qpn, generation=generation, nodes=min(NODES_MAX, nodes - at),
                                     block=line + at - FIRST_LINE)


async def create_list(dut, qpn, generation):
    """Create the list of a QP in :class:`~weft.hdl.adamap.second_level.SecondLevel`."""
    await write_qp(dut, qpn, generation)
    dut.create_qpn.value, dut.create_stb.value = qpn, 1
    await RisingEdge(dut.clk)
    while not int(dut.create_done.value):
        await RisingEdge(dut.clk)
    dut.create_stb.value = 0
    for port in ("i_prefetch", "i_matcher"):
        await operate(dut, port, ControlKind.CREATE, qpn=qpn, generation=generation)


async def link(dut, qpn, generation, nodes, line):
    """Ring the link doorbell for ``nodes`` nodes, the first one at ``line``."""
    for word in doorbells(qpn, generation, nodes, line):
        dut.link_doorbell.value = int.from_bytes(word, "little")
        dut.link_doorbell_stb.value = 1
        await RisingEdge(dut.clk)
        dut.link_doorbell_stb.value = 0
        await RisingEdge(dut.clk)
