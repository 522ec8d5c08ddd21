"""Page writer: copies page-table entries from host memory."""

from functools import reduce
from operator import xor

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import BLOCK_BYTES, PAGE_4K, PTE_BYTES, PTE_CHECK_BITS, CommandStatus
from ..contract.params import REQUEST_LINES_MAX, exact_log2
from ..part.layouts import BEAT_BITS, LINE_WIDTH, LineData, LineRequest
from ..part.stages import SkidBuffer
from ..part.stream import Fifo
from ..table.kinds import PAGE_TABLE
from .check import PTES_PER_COMMAND

ENTRIES_PER_LINE = BLOCK_BYTES // PTE_BYTES
JOB_LINES_MAX = PTES_PER_COMMAND // ENTRIES_PER_LINE


class PageJob(data.Struct):
    """Read entries ``pte_index`` … ``pte_index + count − 1`` from ``line`` on. The range is valid."""

    line: LINE_WIDTH
    count: range(PTES_PER_COMMAND + 1)
    pte_index: 32


class PageLine(data.Struct):
    """A line of page-table entries."""

    data: BEAT_BITS
    number: range(JOB_LINES_MAX)
    error: 1


class PageWriter(wiring.Component):
    """Reads up to 64 lines, several requests in flight, and writes one entry per cycle.

    Lines are written in the order of their arrival. An entry with a wrong check is not written, nor
    is a line that came with an error; the rest of the job is. Up to 16 lines are held, 8 cycles each.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(PageJob))
        Accepted when the previous job has ended.
    done : Out(1)
        Strobe: every entry is in the table.
    status : Out(8)
        With ``done``: OK, BAD_VALUE or (with priority) DMA_ERROR.
    o_line_request : Out(stream.Signature(LineRequest))
    i_line : In(stream.Signature(LineData))
    write : Out(write_port)
        To the page table.
    """

    HELD_LINES = 16

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(PageJob)), "done": Out(1), "status": Out(8),
            "o_line_request": Out(stream.Signature(LineRequest)), "i_line": In(stream.Signature(LineData)),
            "write": Out(PAGE_TABLE.write_port(params)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.lines = lines = Fifo(PageLine, self.HELD_LINES)
        job, busy = Signal(PageJob), Signal()
        requested = Signal(range(JOB_LINES_MAX + 1))  # lines requested so far
        to_request = Signal(range(JOB_LINES_MAX + 1))
        # lines; only the first request begins between two boundaries
        to_boundary = Signal(range(REQUEST_LINES_MAX + 1))
        in_flight = Signal(range(self.HELD_LINES // REQUEST_LINES_MAX + 1))  # requests
        dma_error, bad_value = Signal(), Signal()

        m.d.comb += self.i.ready.eq(~busy)
        with m.If(self.i.valid & ~busy):
            m.d.sync += [
                job.eq(self.i.payload), busy.eq(1), requested.eq(0), dma_error.eq(0), bad_value.eq(0),
                to_request.eq((self.i.payload.count + ENTRIES_PER_LINE - 1)[exact_log2(ENTRIES_PER_LINE):]),
                to_boundary.eq(REQUEST_LINES_MAX - self.i.p.line[:exact_log2(REQUEST_LINES_MAX)]),
            ]

        # Requests end at 256-byte boundaries, so none crosses 4 KiB. Space for all lines of a request is reserved.
        m.submodules.request = ahead = SkidBuffer(LineRequest)
        wiring.connect(m, ahead.o, wiring.flipped(self.o_line_request))
        request = ahead.i
        reserved = Signal(range(2 * self.HELD_LINES + 1))
        space = Signal()
        m.d.comb += [
            reserved.eq(in_flight * REQUEST_LINES_MAX + lines.level),
            request.payload.line.eq(job.line + requested),
            request.payload.count.eq(Mux(to_request < to_boundary, to_request, to_boundary)),
            request.payload.tag.eq(requested),
            request.valid.eq(space & (to_request != 0)),
        ]
        sent, answered = Signal(), Signal()
        m.d.comb += [
            sent.eq(request.valid & request.ready), answered.eq(self.i_line.valid & self.i_line.p.last),
        ]
        m.d.sync += in_flight.eq(in_flight + sent - answered)
        # Reserved space stays reserved: valid is not withdrawn before ready.
        with m.If(sent):
            m.d.sync += [
                space.eq(0), requested.eq(requested + request.p.count), to_request.eq(to_request - request.p.count),
                to_boundary.eq(REQUEST_LINES_MAX),
            ]
        with m.Elif(reserved <= self.HELD_LINES - REQUEST_LINES_MAX):
            m.d.sync += space.eq(1)

        m.d.comb += [
            self.i_line.ready.eq(1), lines.i.valid.eq(self.i_line.valid),
            lines.i.payload.data.eq(self.i_line.p.data), lines.i.payload.error.eq(self.i_line.p.error),
            lines.i.payload.number.eq(self.i_line.p.tag + self.i_line.p.index),
        ]

        # One entry per cycle: read, then checked, then written.
        line, slot = lines.o.p, Signal(range(ENTRIES_PER_LINE))
        number = Signal(range(PTES_PER_COMMAND))
        entry = Signal(PTE_BYTES * 8)
        page_bits = exact_log2(PAGE_4K)
        wanted, whole = Signal(), Signal()
        read, read_valid, read_index = Signal(PTE_BYTES * 8), Signal(), Signal(len(self.write.index))
        m.d.comb += [
            number.eq(line.number * ENTRIES_PER_LINE + slot),
            entry.eq(line.data.word_select(slot, PTE_BYTES * 8)),
            wanted.eq(lines.o.valid & (number < job.count) & ~line.error),
            whole.eq(reduce(xor, (read[at:at + PTE_CHECK_BITS] for at in range(0, len(read), PTE_CHECK_BITS))).all()),
            lines.o.ready.eq(slot == ENTRIES_PER_LINE - 1),
        ]
        m.d.sync += [
            read_valid.eq(wanted), read.eq(entry), read_index.eq(job.pte_index + number),
            self.write.en.eq(read_valid & whole), self.write.index.eq(read_index),
            self.write.entry.eq(read[page_bits:]),
        ]
        with m.If(read_valid & ~whole):
            m.d.sync += bad_value.eq(1)
        with m.If(lines.o.valid):
            m.d.sync += slot.eq(slot + 1)
            with m.If(line.error):
                m.d.sync += dma_error.eq(1)

        finished = (busy & (to_request == 0) & (in_flight == 0) & ~lines.o.valid & ~read_valid & ~self.write.en
                    & (requested != 0))
        m.d.comb += [
            self.done.eq(finished),
            self.status.eq(Mux(dma_error, CommandStatus.DMA_ERROR, Mux(
                bad_value, CommandStatus.BAD_VALUE, CommandStatus.OK))),
        ]
        with m.If(finished):
            m.d.sync += busy.eq(0)
        return m
