"""Top level of the card: subsystems and their connections."""

from amaranth import Cat, ClockDomain, DomainRenamer, Module, ResetInserter
from amaranth.lib import wiring

from .adamap.adamap import Adamap
from .command.processor import CommandProcessor
from .contract import abi
from .contract.params import CardParams
from .csr import Csr
from .mac.edge import MacRx, MacTx, mac_members
from .mac.pause import Pause
from .mac.pause_crossing import PauseCrossing
from .mac.pause_gate import PauseGate
from .mac.reset_release import ResetRelease
from .mac.rx_crossing import RxCrossing
from .part.counter_ports import merged, pass_counts
from .part.counters import Counters
from .pcie.endpoint import Endpoint
from .pcie.usplus import connect_hard_block, hard_block_members
from .receive.receive import Receive
from .report import Reporter
from .ring.rings import DOWN, UP, Rings
from .simple_nic import SimpleNicRx, SimpleNicTx
from .supervisor import Supervisor
from .table.tables import RECEIVE, TRANSMIT, Tables
from .transmit.transmit import Transmit

# Clients of the DMA engines, in the order of their ports.
LINE_COMMAND, LINE_ADAMAP, LINE_CLIENTS = DOWN, DOWN + 1, DOWN + 2        # after the rings
BULK_TRANSMIT, BULK_NIC, BULK_CLIENTS = range(3)
WRITE_PLACE, WRITE_NIC, WRITE_COMMAND, WRITE_RINGS = range(4)
WRITE_CLIENTS = WRITE_RINGS + UP + 1
REPORT_JUDGE, REPORT_NODES, REPORT_LIST, REPORT_TRANSMIT, REPORT_SOURCES = range(5)


def card_signature(*, mac_clock):
    """Return the signature of the card, equal for all sizes; ``mac_clock``: with :attr:`CardParams.mac_clock`."""
    return wiring.Signature({**hard_block_members(), **mac_members(mac_clock=mac_clock)})


class Card(wiring.Component):
    """One RDMA card: 512 bit at 250 MHz, one beat per cycle each way.

    Control bit 1 resets all subsystems but the PCIe subsystem and the registers, with everything that waits in them:
    the card holds new DMA and frames back, resets when the DMA in progress has ended, and then sets status bit 1. The
    driver must clear control bit 0 before. A reset of the function by the host resets the registers, too: see
    :class:`~weft.hdl.supervisor.Supervisor`.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    m_axis_rq, s_axis_rc, s_axis_cq, m_axis_cc, pcie_*, cfg_*
        UltraScale+ PCIe hard block; see :class:`~weft.hdl.pcie.usplus.UsplusShim`.
    m_axis_tx : Out(axis)
        Frames to the MAC, without FCS, without a gap inside a frame.
    s_axis_rx : In(axis)
        Frames from the MAC, without FCS. ``tready`` is always 1.

    With ``mac_clock`` these two are in domain ``mac``, whose clock is unrelated to the other one; a frame to the
    MAC that a reset cut ends with the error bit. There are additional ports:

    clk, rst, mac_clk, mac_rst : In(1)
        Clocks, and resets of any timing and duration: they last 32 cycles longer inside. While the MAC's clock
        is stopped its reset must be active, or a reset of the card waits for it.
    mac_up : In(1)
        Domain ``mac``: link up. While low, frames to the MAC are dropped, so that the card does not block.
    mac_tx_dropped, mac_tx_aborted, mac_rx_dropped : Out(1)
        Strobes, domain ``mac``: a frame to the MAC was lost because of ``mac_up`` or a reset; one was cut by a reset
        of the card; a frame from the MAC did not reach the card: no space, too long, or a reset.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__(card_signature(mac_clock=params.mac_clock))

    def elaborate(self, platform):
        m = Module()
        params = self.params
        self.supervisor = Supervisor(params)
        self.endpoint = Endpoint(params, bulk_clients=BULK_CLIENTS, line_clients=LINE_CLIENTS,
                                 write_clients=WRITE_CLIENTS, late_writer=WRITE_PLACE)
        self.csr = Csr(params)
        self.rings = Rings(params)
        self.command = CommandProcessor(params)
        self.tables = Tables(params)
        self.transmit = Transmit(params)
        self.receive = Receive(params)
        self.adamap = Adamap(params)
        self.reporter = Reporter(params, REPORT_SOURCES, unticketed=(REPORT_NODES, REPORT_LIST, REPORT_TRANSMIT))
        self.nic_tx, self.nic_rx = SimpleNicTx(params), SimpleNicRx(params)
        self.pause = Pause(params)
        counted = [self.transmit, self.receive, self.pause, self.adamap, self.reporter, self.nic_rx, self.endpoint]
        drops = [*self.rings.drop, *self.receive.drop, self.transmit.drop, self.adamap.drop,
                 self.nic_tx.drop, self.nic_rx.drop, self.adamap.broken, self.pause.drop]
        self.counters = Counters(merged(*(block.COUNTS for block in counted)), drops=len(drops), reads=2)
        if params.mac_clock:
            self.mac_tx, self.mac_rx = DomainRenamer("mac")(MacTx()), RxCrossing()
            self.pause_gate, self.pause_crossing = DomainRenamer("mac")(PauseGate()), PauseCrossing()
            m.submodules.pause_crossing = self.pause_crossing
            self._clocks(m)
        else:
            self.mac_tx, self.mac_rx, self.pause_gate = MacTx(), MacRx(), PauseGate()

        for name in ("supervisor", "endpoint", "mac_tx"):
            m.submodules[name] = getattr(self, name)
        m.submodules.csr = ResetInserter(self.supervisor.function_reset_done)(self.csr)
        core = ResetInserter(self.supervisor.core_reset)
        for name in ("rings", "command", "tables", "transmit", "receive", "adamap", "reporter", "nic_tx", "nic_rx",
                     "counters", "pause"):
            m.submodules[name] = core(getattr(self, name))
        for name in ("pause_gate", "mac_rx"):
            m.submodules[name] = getattr(self, name) if params.mac_clock else core(getattr(self, name))

        self._wire_edges(m)
        self._wire_registers(m)
        self._wire_supervisor(m)
        self._wire_commands(m)
        self._wire_transmit(m)
        self._wire_receive(m)
        pass_counts(m, counted, self.counters)
        for drop, port in zip(drops, self.counters.drop, strict=True):
            wiring.connect(m, drop, port)
        return m

    def _clocks(self, m):
        for name, clk, rst in (("sync", self.clk, self.rst), ("mac", self.mac_clk, self.mac_rst)):
            m.submodules[f"{name}_release"] = release = ResetRelease(name)
            m.domains += (domain := ClockDomain(name))
            domain.clk, domain.rst = clk, release.rst
            m.d.comb += release.arst.eq(rst)

    def _wire_edges(self, m):
        endpoint, flipped = self.endpoint, wiring.flipped
        connect_hard_block(m, endpoint, self)
        wiring.connect(m, self.mac_tx.m_axis, flipped(self.m_axis_tx))
        wiring.connect(m, flipped(self.s_axis_rx), self.mac_rx.s_axis)
        if self.params.mac_clock:
            m.d.comb += [
                self.transmit.mac_up.eq(self.mac_up), self.mac_tx.hold.eq(0),
                self.mac_tx_dropped.eq(self.transmit.mac_dropped), self.mac_tx_aborted.eq(self.transmit.mac_aborted),
                self.mac_rx_dropped.eq(self.mac_rx.dropped),
            ]

    def _wire_registers(self, m):
        endpoint, csr, rings = self.endpoint, self.csr, self.rings
        wiring.connect(m, endpoint.registers, csr.bus)
        wiring.connect(m, csr.msix, endpoint.msix)
        wiring.connect(m, csr.counters, self.counters.read[0])
        for group, subsystem in (("card", self.supervisor), ("rings", rings), ("adamap", self.adamap),
                                 ("nic", self.nic_rx), ("receive", self.receive), ("pause", self.pause),
                                 *[("pacer", self.transmit)] * bool(self.params.pace_descriptors)):
            wiring.connect(m, getattr(csr, group), subsystem.registers)
        for k in range(DOWN):
            wiring.connect(m, rings.o_line_request[k], endpoint.i_line[k])
            wiring.connect(m, endpoint.o_line[k], rings.i_line[k])
        for k in range(UP + 1):
            wiring.connect(m, rings.o_request[k], endpoint.i_request[WRITE_RINGS + k])
            wiring.connect(m, rings.o_data[k], endpoint.i_data[WRITE_RINGS + k])
        wiring.connect(m, rings.o_interrupt, endpoint.i_interrupt)
        wiring.connect(m, endpoint.o_push, rings.i_push)

    def _wire_supervisor(self, m):
        supervisor, command = self.supervisor, self.command
        subsystems = (self.endpoint, self.rings, self.transmit, self.receive, self.adamap, self.reporter, self.nic_tx,
                      self.nic_rx)
        last = self.transmit if self.params.mac_clock else self.mac_tx       # the block that can hold frames back
        m.d.comb += [
            supervisor.idle.eq(Cat(*(subsystem.idle for subsystem in subsystems), ~command.busy).all()),
            supervisor.dma_idle.eq(self.endpoint.idle), supervisor.dma_lost.eq(self.endpoint.lost),
            self.endpoint.stop.eq(supervisor.stop),
            supervisor.function_reset.eq(self.endpoint.function_reset),
            self.endpoint.function_reset_done.eq(supervisor.function_reset_done),
            supervisor.sending.eq(last.sending),
            supervisor.tables_clear.eq(command.tables_clear),
            self.tables.enable.eq(command.tables_clear),
            *[subsystem.enable.eq(supervisor.enable) for subsystem in (self.transmit, self.receive)],
            *[edge.hold.eq(supervisor.hold) for edge in (self.endpoint, last)],
            *[subsystem.time_ns.eq(supervisor.time_ns) for subsystem in (self.adamap, self.nic_rx, self.receive)],
        ]

    def _wire_commands(self, m):
        command, rings, endpoint, tables, adamap = self.command, self.rings, self.endpoint, self.tables, self.adamap
        ring = abi.HOST_TO_CARD.index(abi.Ring.COMMAND)
        wiring.connect(m, rings.o[ring], command.i)
        wiring.connect(m, command.o, rings.i[abi.CARD_TO_HOST.index(abi.Ring.RESPONSE)])
        for name in ("qp_read", "qp_write", "mr_read", "mr_write", "page_write"):
            wiring.connect(m, getattr(command, name), getattr(tables, name))
        wiring.connect(m, command.o_line_request, endpoint.i_line[LINE_COMMAND])
        wiring.connect(m, endpoint.o_line[LINE_COMMAND], command.i_line)
        wiring.connect(m, command.o_dma_request, endpoint.i_request[WRITE_COMMAND])
        wiring.connect(m, command.o_dma_data, endpoint.i_data[WRITE_COMMAND])
        wiring.connect(m, command.qp_control, adamap.qp_control)
        wiring.connect(m, command.o_extent, adamap.i_extent)
        wiring.connect(m, adamap.o_qp_error, command.i_qp_error)
        wiring.connect(m, command.network, self.transmit.network, self.receive.network, self.pause.network)
        wiring.connect(m, command.counters, self.counters.read[1])
        if self.params.pace_descriptors:
            wiring.connect(m, command.o_flush, self.transmit.i_flush)
            m.d.comb += self.transmit.time_ns.eq(self.supervisor.time_ns)
        for reader, table in zip(adamap.qp, tables.list_read, strict=True):
            wiring.connect(m, reader, table)
        m.d.comb += [
            rings.retire[ring].eq(command.retire),
            self.transmit.drain_request.eq(command.drain_request),
            self.receive.drain_request.eq(command.drain_request),
            self.receive.created.eq(command.qp_control.create.valid & command.qp_control.create.ready),
            self.receive.created_index.eq(command.qp_control.create.p.qpn),
            command.drain_done.eq(self.transmit.drain_done & self.receive.drain_done),
        ]

    def _wire_transmit(self, m):
        transmit, rings, endpoint, nic = self.transmit, self.rings, self.endpoint, self.nic_tx
        send, retransmit, raw = (abi.HOST_TO_CARD.index(r) for r in (
            abi.Ring.SEND, abi.Ring.RETRANSMIT, abi.Ring.NIC_TX))
        wiring.connect(m, rings.o[send], transmit.i_send)
        wiring.connect(m, rings.o[retransmit], transmit.i_retransmit)
        wiring.connect(m, rings.o[raw], nic.i)
        wiring.connect(m, nic.o_bulk_request, endpoint.i_bulk[BULK_NIC])
        wiring.connect(m, endpoint.o_bulk[BULK_NIC], nic.i_bulk)
        wiring.connect(m, nic.o, transmit.i_raw)
        wiring.connect(m, transmit.o_translate, self.tables.i[TRANSMIT])
        wiring.connect(m, self.tables.o[TRANSMIT], transmit.i_translate)
        wiring.connect(m, transmit.o_request, endpoint.i_bulk[BULK_TRANSMIT])
        wiring.connect(m, endpoint.o_bulk[BULK_TRANSMIT], transmit.i_payload)
        wiring.connect(m, transmit.o, self.pause_gate.i)
        wiring.connect(m, self.pause_gate.o, self.mac_tx.i)
        if self.params.mac_clock:
            wiring.connect(m, self.pause.o, self.pause_crossing.i)
            wiring.connect(m, self.pause_crossing.o, self.pause_gate.i_pause)
        else:
            wiring.connect(m, self.pause.o, self.pause_gate.i_pause)
        wiring.connect(m, transmit.o_report, self.reporter.i[REPORT_TRANSMIT])
        m.d.comb += [
            # With a MAC clock, frames that have left the buffer cannot be held any more.
            (transmit.pause if self.params.mac_clock else self.pause_gate.hold).eq(self.pause.hold),
            rings.retire[send].eq(transmit.retire_send),
            rings.retire[retransmit].eq(transmit.retire_retransmit),
            rings.retire[raw].eq(nic.retire),
        ]

    def _wire_receive(self, m):
        receive, adamap, reporter, rings = self.receive, self.adamap, self.reporter, self.rings
        endpoint, nic = self.endpoint, self.nic_rx
        wiring.connect(m, self.mac_rx.o, receive.i)
        wiring.connect(m, self.mac_rx.o_control, self.pause.i_control)
        wiring.connect(m, receive.o_translate, self.tables.i[RECEIVE])
        wiring.connect(m, self.tables.o[RECEIVE], receive.i_translate)
        wiring.connect(m, receive.qp_read, self.tables.place_read)
        wiring.connect(m, receive.o_check, adamap.i_check)
        wiring.connect(m, adamap.o_verdict, receive.i_verdict)
        wiring.connect(m, receive.o_request, endpoint.i_request[WRITE_PLACE])
        wiring.connect(m, receive.o_data, endpoint.i_data[WRITE_PLACE])
        wiring.connect(m, receive.o_raw_info, nic.i_info)
        wiring.connect(m, receive.o_raw, nic.i)
        wiring.connect(m, receive.o_report, reporter.i[REPORT_JUDGE])
        wiring.connect(m, adamap.o_report[0], reporter.i[REPORT_NODES])
        wiring.connect(m, adamap.o_report[1], reporter.i[REPORT_LIST])
        wiring.connect(m, reporter.o, rings.i[abi.CARD_TO_HOST.index(abi.Ring.META_REPORT)])
        wiring.connect(m, nic.o_request, endpoint.i_request[WRITE_NIC])
        wiring.connect(m, nic.o_data, endpoint.i_data[WRITE_NIC])
        frames = abi.CARD_TO_HOST.index(abi.Ring.NIC_RX)
        wiring.connect(m, nic.o_entry, rings.i[frames])
        wiring.connect(m, rings.slot[frames], nic.slot)
        wiring.connect(m, adamap.o_line, endpoint.i_line[LINE_ADAMAP])
        wiring.connect(m, endpoint.o_line[LINE_ADAMAP], adamap.i_line)
        reports = rings.slot[abi.CARD_TO_HOST.index(abi.Ring.META_REPORT)]
        m.d.comb += [
            reports.mark.eq(reporter.drop_report), receive.drop_reports.written.eq(reporter.drop_report),
            receive.drop_reports.unread.eq(reports.marked), receive.drop_reports.half.eq(reports.half),
            receive.space.eq(reporter.space), receive.pause_enabled.eq(self.pause.pause_enabled),
            self.pause.high.eq(receive.pause_high), self.pause.low.eq(receive.pause_low),
            *[subsystem.placed_ticket.eq(receive.placed_ticket) for subsystem in (reporter, adamap)],
        ]
