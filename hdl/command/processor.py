"""Command processor: executes the Command Queue."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract.abi import COUNTER_WIDTH, CommandOpcode, CommandStatus
from ..part.counters import CounterRead
from ..part.interfaces import QUERY_RESULTS, Network, QpControl
from ..part.layouts import BEAT_BITS, COMMAND, RESPONSE, Beat, DmaRequest, Extent, LineData, LineRequest
from ..table.kinds import MR_TABLE, PAGE_TABLE, QP_TABLE
from .check import LINE_SHIFT, CommandCheck
from .page_writer import PageWriter
from .qp_commands import QpCommands
from .statistics import StatisticsWriter


class CommandProcessor(wiring.Component):
    """Executes commands in order, one at a time, with exactly one response each, which has the command's tag.

    A command takes about ten cycles, plus the time for which it waits for others. Checks against the tables:

    * IN_USE: QP_CREATE or MR_CREATE on a used index;
    * BAD_INDEX: QP_MODIFY, QP_DESTROY, QP_QUERY of no QP or another generation of it, MR_DESTROY of no MR;
    * BAD_VALUE: QP_MODIFY of a QP in ERR to anything but ERR (only its destruction ends that state).

    For the other checks see :class:`~weft.hdl.command.check.CommandCheck`. BAD_INDEX has priority over BAD_VALUE, both
    over IN_USE. A rejected command changes nothing, except that PAGE_TABLE_WRITE has written its good entries.

    The list of a new QP is created before the entry in the table, which is in RTS. An MR is written last and at once.
    Before the response to QP_MODIFY, QP_DESTROY or MR_DESTROY the entry is changed or cleared and the pipelines that
    may have read the old one are drained; a QP's list is destroyed after that, so that no packet comes to it any more.
    With a pacer, the descriptors of a QP that is not to send any more are discarded there before the pipelines are
    drained.

    After a reset the QP and MR tables are cleared first, one entry per cycle; they must not be used until
    ``tables_clear``.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(512))
        COMMAND descriptors from the ring reader, their phase already checked.
    retire : Out(1)
        Strobe: the response to the oldest command was sent.
    o : Out(stream.Signature(512))
        RESPONSE entries for the ring writer, phase 0.
    qp_read, qp_write, mr_read, mr_write, page_write : Out(read_port), Out(write_port)
        To the tables.
    tables_clear : Out(1)
        High from the end of the clearing on.
    busy : Out(1)
        A command is being executed, or the tables are being cleared.
    network : Out(Network)
    i_qp_error : In(stream.Signature(24))
        QPNs whose lists broke: an active QP goes to ERR. Accepted within a few cycles, independent of other work.
    qp_control : Out(QpControl)
    o_flush : Out(stream.Signature(params.qpn_width))
        With a pacer: QP whose paced descriptors are discarded; accepted when this is done.
    drain_request : Out(1)
        Held until ``drain_done``.
    drain_done : In(1)
        Sampled from the second cycle of ``drain_request`` on: everything that was in the pipelines when the request
        began has left, and every write of it was accepted by the DMA engine.
    o_extent : Out(stream.Signature(Extent))
    o_line_request, i_line : Out(stream.Signature(LineRequest)), In(stream.Signature(LineData))
        Reads of PAGE_TABLE_WRITE.
    o_dma_request, o_dma_data : Out(stream.Signature(DmaRequest)), Out(stream.Signature(Beat))
        Writes of STATISTICS.
    counters : Out(CounterRead)
    """

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(BEAT_BITS)), "retire": Out(1), "o": Out(stream.Signature(BEAT_BITS)),
            "qp_read": Out(QP_TABLE.read_port(params)), "qp_write": Out(QP_TABLE.write_port(params)),
            "mr_read": Out(MR_TABLE.read_port(params)), "mr_write": Out(MR_TABLE.write_port(params)),
            "page_write": Out(PAGE_TABLE.write_port(params)),
            "tables_clear": Out(1), "busy": Out(1), "network": Out(Network),
            "i_qp_error": In(stream.Signature(24)),
            "qp_control": Out(QpControl), "drain_request": Out(1), "drain_done": In(1),
            "o_extent": Out(stream.Signature(Extent)),
            "o_line_request": Out(stream.Signature(LineRequest)), "i_line": In(stream.Signature(LineData)),
            "o_dma_request": Out(stream.Signature(DmaRequest)), "o_dma_data": Out(stream.Signature(Beat)),
            "counters": Out(CounterRead),
            **({"o_flush": Out(stream.Signature(params.qpn_width))} if params.pace_descriptors else {}),
        })

    def elaborate(self, platform):
        m = Module()
        params = self.params
        m.submodules.check = check = CommandCheck(params)
        m.submodules.qp = qp = QpCommands(params)
        command, status = Signal(COMMAND), Signal(CommandStatus)
        page_writer, statistics = self._add_writers(m, command)
        results = Signal(data.ArrayLayout(32, QUERY_RESULTS))
        m.d.comb += [
            check.command.eq(command), qp.command.eq(command), qp.drain_done.eq(self.drain_done),
            self.o_extent.p.index.eq(command.extent), self.o_extent.p.base.eq(command.address[LINE_SHIFT:]),
            self.o_extent.p.lines.eq(command.length[LINE_SHIFT:]),
        ]
        if params.pace_descriptors:
            connect(m, qp.o_flush, flipped(self.o_flush))
        for inner, outer in ((qp.i_error, self.i_qp_error), (qp.read, self.qp_read),
                             (qp.qp_control, self.qp_control)):
            connect(m, inner, flipped(outer))
        mr_write_stb, mr_make = self._write_tables(m, qp, command)

        response = data.View(RESPONSE, self.o.payload)
        m.d.comb += [
            response.opcode.eq(command.opcode), response.tag.eq(command.tag), response.status.eq(status),
            *[response[f"result{n}"].eq(results[n]) for n in range(QUERY_RESULTS)],
        ]

        def answer(value):
            m.d.sync += status.eq(value)
            m.next = "RESPOND"

        wait = Signal(range(check.CYCLES + 1))
        m.d.comb += [self.busy.eq(1), self.mr_read.index.eq(command.mr_index)]
        with m.FSM():
            with m.State("IDLE"):  # waits for a command
                m.d.comb += [self.busy.eq(~self.tables_clear | self.i.valid), self.i.ready.eq(self.tables_clear)]
                m.d.sync += [command.eq(self.i.payload), wait.eq(check.CYCLES), results.eq(0)]
                with m.If(self.i.valid & self.tables_clear):
                    m.next = "CHECK"
            with m.State("CHECK"):  # waits for the check of the fields
                m.d.comb += self.mr_read.en.eq(1)
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    with m.If(check.status != CommandStatus.OK):
                        answer(check.status)
                    with m.Else():
                        with m.Switch(command.opcode):
                            with m.Case(CommandOpcode.SET_NETWORK):
                                m.d.sync += [self.network.mac.eq(command.mac), self.network.ip.eq(command.ip)]
                                answer(CommandStatus.OK)
                            with m.Case(CommandOpcode.MR_CREATE, CommandOpcode.MR_DESTROY):
                                m.next = "MR"
                            with m.Case(CommandOpcode.PAGE_TABLE_WRITE):
                                m.next = "PAGES"
                            with m.Case(CommandOpcode.EXTENT_SET):
                                m.next = "EXTENT"
                            with m.Case(CommandOpcode.STATISTICS):
                                m.next = "STATISTICS"
                            with m.Default():
                                m.d.comb += qp.start.eq(1)
                                m.next = "QP"
            with m.State("MR"):  # the old entry is at the read port
                with m.If(command.opcode == CommandOpcode.MR_CREATE):
                    m.d.comb += [mr_make.eq(1), mr_write_stb.eq(~self.mr_read.entry.valid)]
                    with m.If(self.mr_read.entry.valid):
                        answer(CommandStatus.IN_USE)
                    with m.Else():
                        answer(CommandStatus.OK)
                with m.Elif(self.mr_read.entry.valid):
                    m.d.comb += mr_write_stb.eq(1)
                    m.next = "DRAIN_BEGIN"
                with m.Else():
                    answer(CommandStatus.BAD_INDEX)
            with m.State("PAGES"):  # waits until the page writer accepts the job
                m.d.comb += page_writer.i.valid.eq(1)
                m.next = "PAGES_WAIT"
            with m.State("PAGES_WAIT"):  # waits until every entry is written
                with m.If(page_writer.done):
                    answer(page_writer.status)
            with m.State("EXTENT"):  # waits until the extent is accepted
                m.d.comb += self.o_extent.valid.eq(1)
                with m.If(self.o_extent.ready):
                    answer(CommandStatus.OK)
            with m.State("STATISTICS"):  # waits until the writer accepts the address
                m.d.comb += statistics.i.valid.eq(1)
                m.next = "STATISTICS_WAIT"
            with m.State("STATISTICS_WAIT"):  # waits until the data are accepted
                with m.If(statistics.done):
                    answer(CommandStatus.OK)
            with m.State("QP"):  # waits until the QP command is executed
                m.d.comb += self.drain_request.eq(qp.drain_request)
                # `done` may come through other subsystems: values used only in RESPOND do not depend on it.
                m.d.sync += [results.eq(qp.results), status.eq(qp.status)]
                with m.If(qp.done):
                    m.next = "RESPOND"
            with m.State("DRAIN_BEGIN"):  # one cycle for the pipelines to see the request
                m.d.comb += self.drain_request.eq(1)
                m.next = "DRAIN"
            with m.State("DRAIN"):  # waits until no user of the old entry is left
                m.d.comb += self.drain_request.eq(1)
                with m.If(self.drain_done):
                    answer(CommandStatus.OK)
            with m.State("RESPOND"):  # waits until the response is accepted
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.comb += self.retire.eq(1)
                    m.next = "IDLE"
        return m

    def _add_writers(self, m, command):
        """Add the writers of page tables and statistics; the fields of the command are their inputs. Return both."""
        m.submodules.page_writer = page_writer = PageWriter(self.params)
        m.submodules.statistics = statistics = StatisticsWriter(self.params)
        for inner, outer in ((page_writer.o_line_request, self.o_line_request), (page_writer.i_line, self.i_line),
                             (page_writer.write, self.page_write), (statistics.o_dma_request, self.o_dma_request),
                             (statistics.o_dma_data, self.o_dma_data)):
            connect(m, inner, flipped(outer))
        delayed = Signal(COUNTER_WIDTH)     # the writer allows its index one cycle more than the counters need
        m.d.sync += delayed.eq(self.counters.data)
        m.d.comb += [
            page_writer.i.p.line.eq(command.address[LINE_SHIFT:]), page_writer.i.p.count.eq(command.count),
            page_writer.i.p.pte_index.eq(command.pte_index),
            statistics.i.payload.eq(command.address), statistics.counter_data.eq(delayed),
            self.counters.index.eq(statistics.counter_index),
        ]
        return page_writer, statistics

    def _write_tables(self, m, qp, command):
        """Clear the tables through their write ports while commands and errors wait, then connect their writers.

        Return the strobe of the MR table, and whether the entry is the command's MR, or none.
        """
        clear_index = Signal(max(self.params.qpn_width, self.params.mr_width))
        mr_write_stb, mr_make = Signal(), Signal()
        with m.If(~self.tables_clear):
            m.d.comb += [self.qp_write.en.eq(1), self.qp_write.index.eq(clear_index),
                         self.mr_write.en.eq(1), self.mr_write.index.eq(clear_index),
                         self.i_qp_error.ready.eq(0), qp.i_error.valid.eq(0)]
            m.d.sync += clear_index.eq(clear_index + 1)
            with m.If(clear_index.all()):
                m.d.sync += self.tables_clear.eq(1)
        with m.Else():
            entry = self.mr_write.entry
            m.d.comb += [
                self.qp_write.en.eq(qp.write.en), self.qp_write.index.eq(qp.write.index),
                self.qp_write.entry.eq(qp.write.entry),
                self.mr_write.en.eq(mr_write_stb), self.mr_write.index.eq(command.mr_index),
            ]
            with m.If(mr_make):
                m.d.comb += entry.valid.eq(1)
                m.d.comb += [entry[n].eq(command[n]) for n in (
                    "key_tag", "access", "pd", "page_2m", "va", "length", "pte_index")]
        return mr_write_stb, mr_make
