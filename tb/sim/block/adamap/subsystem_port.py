"""Bench interface of the Adamap subsystem: commands in; verdicts, reports and reads of host memory out.

All code that knows the ports of :class:`~weft.hdl.adamap.adamap.Adamap` is in this module, so that a harness only
handles QPs, packets and blocks.
"""

import heapq
import random
from collections import deque

import cocotb
from cocotb.triggers import Lock, RisingEdge

from weft.hdl.contract import abi
from weft.hdl.part.layouts import (
    Extent,
    LineData,
    LineRequest,
    ListCreate,
    QpRef,
    Verdict,
    WindowRequest,
    WindowVerdict,
)
from weft.tb.sim.block.adamap.with_qp_table import write_qp
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.sim.stream.stream import StreamSink, StreamSource

TIME_STEP = 8       # cycles between two changes of time_ns
PLACE_CYCLES = 30   # most payloads are placed within this time after their verdict
STALL_CYCLES = 300  # the others are delayed by this time, as if the host stalled; then many are placed at once
TICKETS_MAX = 120   # limit of the packets that wait for placement
TAG_REST = 0x5000   # arbitrary value of the tag bits above those that the subsystem uses


class SubsystemPort:
    """Driver and monitor of the ports of the Adamap subsystem.

    Parameters
    ----------
    dut
    on_judgement : callable(record, Verdict)
        Called with each verdict of :meth:`judge`, in order.
    on_report : callable(bytes)
        Called with each Meta Report.
    on_read : callable(line, count)
        Called when the card reads host memory; its result is passed to ``on_answer``.
    on_answer : callable(read)
        Returns the 64-byte blocks of a read at the time of the response; None for a block that cannot be read.
    latency : callable()
        Returns the cycles that a read takes.

    Attributes
    ----------
    now : int
        Current time in cycles.
    placed : int
        Ticket of the newest packet whose payload has been placed.
    """

    def __init__(self, dut, rng, *, on_judgement, on_report, on_read, on_answer, latency):
        self.dut, self.rng = dut, rng
        self.on_judgement, self.on_report, self.on_read, self.on_answer = on_judgement, on_report, on_read, on_answer
        self.latency = latency
        self.now = self.placed = self._ticket = self._order = 0
        self._asked, self._placing = deque(), deque()
        self._doorbells = {"link_doorbell": deque(), "cum_doorbell": deque()}
        self._reads, self._lines, self._destroying = [], deque(), Lock()

        def source(name, pause=0.0):
            return StreamSource(dut, name, dut.clk, pause=pause, rng=random.Random(rng.random()))

        def sink(name, pause):
            return StreamSink(dut, name, dut.clk, pause=pause, rng=random.Random(rng.random()))

        self._judge, self._create, self._destroy, self._extent = (
            source("i_check", 0.1), source("qp_control__create"), source("qp_control__destroy"), source("i_extent"))
        self._judgements, self._requests = sink("o_verdict", 0.1), sink("o_line", 0.3)
        self._report_sinks = [sink(f"o_report__{k}", 0.3) for k in range(2)]
        self.errors = sink("o_qp_error", 0.0)
        for task in (self._cycle(), self._take_judgements(), *map(self._take_reports, self._report_sinks)):
            cocotb.start_soon(task)

    @property
    def asked(self):
        """Return the number of packets that wait for their verdict."""
        return len(self._asked)

    @property
    def now_ns(self):
        return self.now * CLOCK_PERIOD_NS

    @property
    def idle(self):
        """Return whether the subsystem reports idle and nothing is outstanding on its ports."""
        waiting = self._asked or self._reads or self._lines or any(self._doorbells.values())
        return not waiting and not any(map(len, self._report_sinks)) and bool(int(self.dut.idle.value))

    def configure(self, **registers):
        for name, value in registers.items():
            getattr(self.dut, f"registers__{name}").value = value

    def hurry(self):
        """From now on, hand in packets and take verdicts without pauses."""
        self._judge.pause = self._judgements.pause = 0.0

    async def pass_cycles(self, cycles):
        for _ in range(cycles):
            await RisingEdge(self.dut.clk)

    # ----------------------------------------------------------------------------------------- commands

    async def extent(self, index, base, lines):
        """Announce an extent and wait until the subsystem has registered it."""
        await self._extent.send(pack(Extent, index=index, base=base, lines=lines))
        await self.pass_cycles(2)

    async def create(self, qpn, generation, psn):
        await write_qp(self.dut, qpn, generation)
        await self._create.send(pack(ListCreate, qpn=qpn, generation=generation, psn=psn))

    async def destroy(self, qpn, generation):
        """Destroy the list of a QP and wait until the subsystem reports it destroyed."""
        async with self._destroying:
            await write_qp(self.dut, qpn, 0, abi.QpState.RESET)
            self._destroy.send_nowait(pack(QpRef, qpn=qpn, generation=generation))
            await RisingEdge(self.dut.clk)
            while not int(self.dut.qp_control__destroyed.value):
                await RisingEdge(self.dut.clk)

    def link(self, qpn, generation, nodes, block):
        """Ring the link doorbell for ``nodes`` further nodes, the first one in block number ``block``."""
        self._doorbells["link_doorbell"].append(abi.LINK_DOORBELL.pack(
            qpn=qpn, generation=generation, nodes=nodes, block=block))

    def cum(self, qpn, generation, psn):
        self._doorbells["cum_doorbell"].append(abi.CUM_DOORBELL.pack(
            qpn=qpn, generation=generation, psn=psn % (1 << 32)))

    def judge(self, record, *, qpn, generation, psn, rsn=0, **flags):
        """Hand in a packet and return its ticket; ``record`` is passed to ``on_judgement`` with the verdict."""
        self._ticket += 1
        self._asked.append((record, self._ticket))
        self._judge.send_nowait(pack(WindowRequest, qpn=qpn, generation=generation, psn=psn % (1 << 24),
                                     rsn=rsn % (1 << 24), ticket=self._ticket % 256, **flags))
        return self._ticket

    # ------------------------------------------------------------------------------------------ outputs

    async def _take_judgements(self):
        while True:
            judged = unpack(WindowVerdict, int(await self._judgements.recv()))
            record, ticket = self._asked.popleft()
            delay = self.rng.randint(0, PLACE_CYCLES) if self.rng.random() < 0.98 else STALL_CYCLES
            self._placing.append((self.now + delay, ticket))
            self.on_judgement(record, Verdict(judged.verdict))

    async def _take_reports(self, sink):
        while True:
            report = int(await sink.recv())
            self.on_report((report % (1 << 8 * abi.BLOCK_BYTES)).to_bytes(abi.BLOCK_BYTES, "little"))

    async def _cycle(self):
        """Advance the time and serve placement, doorbells and reads of host memory, once per cycle."""
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        rung, answering = set(), False
        dut.i_line__valid.value = 0
        while True:
            await edge
            self.now += 1
            if self.now % TIME_STEP == 0:
                dut.time_ns.value = self.now_ns
            while self._placing and (self._placing[0][0] <= self.now or self._ticket > self.placed + TICKETS_MAX):
                self.placed = self._placing.popleft()[1]
                dut.placed_ticket.value = self.placed % 256
            for name, words in self._doorbells.items():
                if words:
                    getattr(dut, f"registers__{name}").value = int.from_bytes(words.popleft(), "little")
                    getattr(dut, f"registers__{name}_stb").value = 1
                    rung.add(name)
                elif name in rung:
                    getattr(dut, f"registers__{name}_stb").value = 0
                    rung.remove(name)
            self._accept_reads()
            if self._lines:
                dut.i_line__payload.value = self._lines.popleft()
                dut.i_line__valid.value = 1
                answering = True
            elif answering:
                dut.i_line__valid.value = 0
                answering = False

    def _accept_reads(self):
        """Accept reads; responses may overtake each other, but the blocks of one response are contiguous."""
        while (value := self._requests.recv_nowait()) is not None:
            request = unpack(LineRequest, int(value))
            read = self.on_read(request.line, request.count)
            self._order += 1
            heapq.heappush(self._reads, (self.now + self.latency(), self._order, request.tag, read))
        if not self._lines and self._reads and self._reads[0][0] <= self.now:
            *_, tag, read = heapq.heappop(self._reads)
            blocks = self.on_answer(read)
            self._lines += [
                pack(LineData, data=int.from_bytes(block or b"", "little"), tag=tag | TAG_REST, index=k,
                     last=int(k + 1 == len(blocks)), error=int(block is None)) for k, block in enumerate(blocks)]
