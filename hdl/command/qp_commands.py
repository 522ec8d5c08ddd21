"""QP_CREATE, QP_MODIFY, QP_DESTROY and QP_QUERY."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract.abi import GENERATION_BITS, CommandOpcode, CommandStatus, QpState
from ..part.interfaces import QUERY_RESULTS, QpControl
from ..part.layouts import COMMAND
from ..table.kinds import QP_TABLE
from .qp_port import QpOperation, QpPort


class QpCommands(wiring.Component):
    """Executes one QP command whose fields are already checked; errors detected by the card pass in parallel.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    command : In(COMMAND)
        Stable from ``start`` to ``done``.
    start, done : In(1), Out(1)
        Strobes.
    status : Out(8)
        With ``done``: its :class:`~weft.hdl.contract.abi.CommandStatus`.
    results : Out(ArrayLayout(32, 4))
        With ``done``: the response to QP_QUERY, otherwise zero.
    i_error, read, write
        See :class:`~weft.hdl.command.qp_port.QpPort`.
    o_flush, qp_control, drain_request, drain_done
        See :class:`~weft.hdl.command.processor.CommandProcessor`.
    """

    def __init__(self, params):
        self.params = params
        results = data.ArrayLayout(32, QUERY_RESULTS)
        super().__init__({
            "command": In(COMMAND), "start": In(1), "done": Out(1), "status": Out(8),
            "results": Out(results),
            "i_error": In(stream.Signature(24)),
            "read": Out(QP_TABLE.read_port(params)), "write": Out(QP_TABLE.write_port(params)),
            "qp_control": Out(QpControl), "drain_request": Out(1), "drain_done": In(1),
            **({"o_flush": Out(stream.Signature(params.qpn_width))} if params.pace_descriptors else {}),
        })

    def elaborate(self, platform):
        m = Module()
        command, opcode = self.command, self.command.opcode
        m.submodules.port = port = QpPort(self.params)
        for inner, outer in ((port.i_error, self.i_error), (port.read, self.read), (port.write, self.write)):
            connect(m, inner, flipped(outer))
        generation = Signal(GENERATION_BITS)
        paced = bool(self.params.pace_descriptors)
        stop = "FLUSH" if paced else "DRAIN_BEGIN"
        index, meant = command.qpn[:self.params.qpn_width], command.qpn[self.params.qpn_width:]
        old = port.o.p
        live = old.state != QpState.RESET
        update = port.i.p
        m.d.comb += [
            port.o.ready.eq(1),
            update.index.eq(index), update.entry.generation.eq(meant),
            update.entry.pd.eq(command.pd), update.entry.access.eq(command.access),
            update.entry.peer_ip.eq(command.ip), update.entry.psn_guard.eq(command.psn_guard),
            self.qp_control.create.p.qpn.eq(index), self.qp_control.create.p.generation.eq(meant),
            self.qp_control.create.p.psn.eq(command.psn),
            self.qp_control.destroy.p.qpn.eq(index), self.qp_control.destroy.p.generation.eq(generation),
            self.qp_control.query_qpn.eq(index),
        ]

        if paced:
            m.d.comb += self.o_flush.payload.eq(index)

        def end(status):
            m.d.comb += [self.done.eq(1), self.status.eq(status)]
            m.next = "IDLE"

        with m.FSM():
            with m.State("IDLE"):  # waits for a command
                with m.If(self.start):
                    m.next = "LOOK_UP"
            with m.State("LOOK_UP"):  # waits until the port accepts the operation
                m.d.comb += [port.i.valid.eq(1), update.operation.eq(QpOperation.READ)]
                with m.Switch(opcode):
                    with m.Case(CommandOpcode.QP_MODIFY):
                        m.d.comb += [update.operation.eq(QpOperation.MODIFY),
                                     update.entry.state.eq(command.qp_state)]
                    with m.Case(CommandOpcode.QP_DESTROY):
                        m.d.comb += [update.operation.eq(QpOperation.MODIFY),
                                     update.entry.state.eq(QpState.RESET)]
                with m.If(port.i.ready):
                    m.next = "OLD"
            with m.State("OLD"):  # waits for the old entry
                m.d.sync += generation.eq(old.generation)
                with m.If(port.o.valid):
                    with m.If(opcode == CommandOpcode.QP_CREATE):
                        m.next = "LIST_CREATE"
                        with m.If(live):
                            end(CommandStatus.IN_USE)
                    with m.Elif(~live | (old.generation != meant)):
                        end(CommandStatus.BAD_INDEX)
                    with m.Elif(opcode == CommandOpcode.QP_DESTROY):
                        m.next = stop
                    with m.Elif(opcode == CommandOpcode.QP_QUERY):
                        m.next = "QUERY"
                    with m.Elif((old.state == QpState.ERR) & (command.qp_state != QpState.ERR)):
                        end(CommandStatus.BAD_VALUE)
                    with m.Else():
                        m.next = stop
                        if paced:
                            with m.If(command.qp_state == QpState.RTS):
                                m.next = "DRAIN_BEGIN"
            with m.State("LIST_CREATE"):  # waits until the list exists
                m.d.comb += self.qp_control.create.valid.eq(1)
                with m.If(self.qp_control.create.ready):
                    m.next = "WRITE"
            with m.State("WRITE"):  # waits until the port accepts the entry
                m.d.comb += [port.i.valid.eq(1), update.operation.eq(QpOperation.CREATE),
                             update.entry.state.eq(QpState.RTS)]
                with m.If(port.i.ready):
                    m.next = "WRITTEN"
            with m.State("WRITTEN"):  # waits until the entry is in the table
                with m.If(port.o.valid):
                    end(CommandStatus.OK)
            if paced:
                with m.State("FLUSH"):  # waits until the pacer has discarded the QP's descriptors
                    m.d.comb += self.o_flush.valid.eq(1)
                    with m.If(self.o_flush.ready):
                        m.next = "DRAIN_BEGIN"
            with m.State("DRAIN_BEGIN"):  # one cycle for the pipelines to see the request
                m.d.comb += self.drain_request.eq(1)
                m.next = "DRAIN"
            with m.State("DRAIN"):  # waits until no packet that read the old entry may still come to the list
                m.d.comb += self.drain_request.eq(1)
                with m.If(self.drain_done):
                    m.next = "LIST_DESTROY"
                    with m.If(opcode == CommandOpcode.QP_MODIFY):
                        end(CommandStatus.OK)
            with m.State("LIST_DESTROY"):  # waits until the order is accepted
                m.d.comb += self.qp_control.destroy.valid.eq(1)
                with m.If(self.qp_control.destroy.ready):
                    m.next = "LIST_DESTROYED"
                    with m.If(self.qp_control.destroyed):
                        end(CommandStatus.OK)
            with m.State("LIST_DESTROYED"):  # waits until it is executed
                with m.If(self.qp_control.destroyed):
                    end(CommandStatus.OK)
            with m.State("QUERY"):  # one-cycle request
                m.d.comb += self.qp_control.query_stb.eq(1)
                m.next = "QUERY_RESULT"
                with m.If(self.qp_control.query_done):
                    m.d.comb += self.results.eq(self.qp_control.query_result)
                    end(CommandStatus.OK)
            with m.State("QUERY_RESULT"):  # waits for the response
                with m.If(self.qp_control.query_done):
                    m.d.comb += self.results.eq(self.qp_control.query_result)
                    end(CommandStatus.OK)
        return m
