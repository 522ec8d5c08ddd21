"""Adamap subsystem with a driver and a host memory that use no time while idle, for long measurements.

:class:`~weft.tb.sim.block.adamap.subsystem_port.SubsystemPort` checks more, but is active in every cycle.
"""

import cocotb
from cocotb.triggers import RisingEdge

from weft.hdl.contract import abi
from weft.hdl.part.layouts import ListCreate, QpRef, WindowRequest
from weft.tb.sim.block.adamap.prepared_lists import LineMemory, doorbells, open_extent, pass_cycles
from weft.tb.sim.block.adamap.with_qp_table import write_qp
from weft.tb.sim.stream.payload import pack
from weft.tb.sim.stream.stream import StreamSource

LOOK_CYCLES = 12    # between two polls of the idle signal
LOOKS = 3


class LightSubsystem:
    """Driver of the subsystem that accepts and ignores all reports and verdicts.

    ``read(line)`` returns a block of host memory, and ``latency()`` the cycles of a read.
    """

    def __init__(self, dut, read, latency):
        self.dut = dut
        dut.registers__reorder_distance.value = dut.registers__retransmit_slack.value = 1
        for sink in ("o_verdict", "o_qp_error", "o_report__0", "o_report__1"):
            getattr(dut, f"{sink}__ready").value = 1
        self._judge, self._create, self._destroy = (
            StreamSource(dut, name, dut.clk) for name in ("i_check", "qp_control__create", "qp_control__destroy"))
        LineMemory(dut, read, latency)

    async def start(self):
        """Announce the extent of all blocks."""
        await open_extent(self.dut)

    def cache(self, depth):
        """Set prefetch depth and watermark."""
        self.dut.registers__prefetch_depth.value = self.dut.registers__prefetch_watermark.value = depth

    async def create(self, qpn, generation, *, first_psn, end_psn, line, nodes):
        """Create a QP with losses from ``first_psn`` up to ``end_psn`` - 1, and a list of nodes from ``line`` on."""
        owner = {"qpn": qpn, "generation": generation}
        await write_qp(self.dut, **owner)
        await self._create.send(pack(ListCreate, **owner, psn=end_psn))
        await self._ring("cum_doorbell", abi.CUM_DOORBELL.pack(**owner, psn=first_psn))
        for word in doorbells(**owner, nodes=nodes, line=line):
            await self._ring("link_doorbell", word)

    async def destroy(self, qpn, generation):
        """Destroy the list of a QP and wait until the subsystem reports it destroyed."""
        self._destroy.send_nowait(pack(QpRef, qpn=qpn, generation=generation))
        await RisingEdge(self.dut.clk)
        while not int(self.dut.qp_control__destroyed.value):
            await RisingEdge(self.dut.clk)

    def retransmit(self, qpn, generation, psn, rsn):
        """Queue a retransmission after those queued before."""
        self._judge.send_nowait(pack(WindowRequest, qpn=qpn, generation=generation, psn=psn % (1 << 24),
                                     rsn=rsn % (1 << 24), retransmission=1))

    async def rest(self):
        """Wait until all queued packets have been accepted and nothing is outstanding."""
        await self._judge.idle()
        quiet = 0
        while quiet < LOOKS:
            await pass_cycles(self.dut, LOOK_CYCLES)
            quiet = quiet + 1 if int(self.dut.idle.value) else 0

    async def _ring(self, name, word):
        data, strobe = (getattr(self.dut, f"registers__{name}{part}") for part in ("", "_stb"))
        data.value, strobe.value = int.from_bytes(word, "little"), 1
        await RisingEdge(self.dut.clk)
        strobe.value = 0
        await RisingEdge(self.dut.clk)


class HitCounter:
    """Counter of retransmissions that find their node cached; hits must be at least two cycles apart."""

    def __init__(self, dut):
        self.dut, self.count = dut, 0
        self._task = cocotb.start_soon(self._run())

    def stop(self):
        self._task.cancel()

    async def _run(self):
        while True:
            await RisingEdge(self.dut.count_cache_hits)
            await RisingEdge(self.dut.clk)
            self.count += int(self.dut.count_cache_hits.value)
