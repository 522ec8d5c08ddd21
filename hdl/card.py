"""The card: rooms and the wires between them."""

from amaranth import Cat, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from . import abi
from .adamap.adamap import Adamap
from .axis import axis_signature
from .command.processor import CommandProcessor
from .counters import Counters
from .csr import Csr
from .layouts import BEAT_BITS
from .mac import RX_USER_WIDTH, TX_USER_WIDTH, MacRx, MacTx
from .params import CardParams
from .pcie.endpoint import Endpoint, pass_unless
from .pcie.usplus import hard_block_members
from .receive.receive import Receive
from .report import Reporter
from .ring.rings import DOWN, UP, Rings, ring_registers
from .simple_nic import SimpleNicRx, SimpleNicTx
from .table.tables import RECEIVE, TRANSMIT, Tables
from .transmit.transmit import Transmit

NS_PER_CYCLE = 4

# Clients of the DMA engines, in the order of their ports.
LINE_COMMAND, LINE_ADAMAP, LINE_CLIENTS = DOWN, DOWN + 1, DOWN + 2        # behind the rings
BULK_TRANSMIT, BULK_NIC, BULK_CLIENTS = range(3)
WRITE_PLACE, WRITE_NIC, WRITE_COMMAND, WRITE_RINGS = range(4)
WRITE_CLIENTS = WRITE_RINGS + UP + 1
REPORT_JUDGE, REPORT_NODES, REPORT_LIST, REPORT_TRANSMIT, REPORT_SOURCES = range(5)

ADAMAP_REGISTERS = ("reorder_distance", "node_age_ns", "retransmit_slack", "prefetch_depth", "prefetch_watermark")


class Card(wiring.Component):
    """One RDMA card: 512 bit at 250 MHz, one beat per cycle each way.

    Control bit 1 resets everything but the PCIe room and the registers, whatever is waiting there: it holds new DMA
    and frames back, and resets once the DMA that was begun has ended; status bit 1 rises when that is done. Clear bit
    0 first.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    m_axis_rq, s_axis_rc, s_axis_cq, m_axis_cc, cfg_max_payload, cfg_max_read_req
        UltraScale+ PCIe hard block; see :class:`~weft.hdl.pcie.usplus.UsplusShim`.
    m_axis_tx : Out(axis)
        Frames to the MAC, without FCS, without a gap inside a frame.
    s_axis_rx : In(axis)
        Frames from the MAC, without FCS. ``tready`` is always 1.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            **hard_block_members(),
            "m_axis_tx": Out(axis_signature(data_width=BEAT_BITS, user_width=TX_USER_WIDTH)),
            "s_axis_rx": In(axis_signature(data_width=BEAT_BITS, user_width=RX_USER_WIDTH)),
        })

    def elaborate(self, platform):
        m = Module()
        params = self.params
        core_reset = Signal()
        self.reset_pending, self.sending = Signal(), Signal()   # `sending`: amid a frame to the MAC
        core = ResetInserter(core_reset)

        self.endpoint = Endpoint(params, bulk_clients=BULK_CLIENTS, line_clients=LINE_CLIENTS,
                                 write_clients=WRITE_CLIENTS)
        self.csr = Csr(params)
        self.rings = Rings(params)
        self.command = CommandProcessor(params)
        self.tables = Tables(params)
        self.transmit = Transmit(params)
        self.receive = Receive(params)
        self.adamap = Adamap(params)
        self.reporter = Reporter(params, REPORT_SOURCES, unticketed=(REPORT_NODES, REPORT_LIST, REPORT_TRANSMIT))
        self.nic_tx, self.nic_rx = SimpleNicTx(params), SimpleNicRx(params)
        self.counted = [self.transmit, self.receive, self.adamap, self.reporter, self.nic_rx, self.endpoint]
        self.counters = Counters(self._count_widths(), refusals=len(self._refusals()), reads=2)
        self.mac_tx, self.mac_rx = MacTx(), MacRx()

        m.submodules.endpoint, m.submodules.csr = self.endpoint, self.csr
        for name in ("rings", "command", "tables", "transmit", "receive", "adamap", "reporter", "nic_tx", "nic_rx",
                     "counters", "mac_rx"):
            m.submodules[name] = core(getattr(self, name))
        m.submodules.mac_tx = self.mac_tx

        self._wire_edges(m)
        self._wire_registers(m, core_reset)
        self._wire_commands(m)
        self._wire_transmit(m)
        self._wire_receive(m)
        self._wire_counters(m)
        return m

    def _wire_edges(self, m):
        endpoint, flipped = self.endpoint, wiring.flipped
        for name in hard_block_members():
            if name.startswith("cfg"):
                m.d.comb += getattr(endpoint, name).eq(getattr(self, name))
            else:
                wiring.connect(m, getattr(endpoint, name), flipped(getattr(self, name)))
        wiring.connect(m, self.mac_tx.m_axis, flipped(self.m_axis_tx))
        wiring.connect(m, flipped(self.s_axis_rx), self.mac_rx.s_axis)

    def _wire_registers(self, m, core_reset):
        endpoint, csr, rings = self.endpoint, self.csr, self.rings
        wiring.connect(m, endpoint.o_write, csr.i_write)
        m.d.comb += [
            csr.read_address.eq(endpoint.read_address), csr.read_stb.eq(endpoint.read_stb),
            endpoint.read_data.eq(csr.read_data), endpoint.read_ack.eq(csr.read_ack),
            endpoint.msix_w_stb.eq(csr.msix_w_stb), endpoint.msix_w_address.eq(csr.msix_w_address),
            endpoint.msix_w_data.eq(csr.msix_w_data), endpoint.msix_w_mask.eq(csr.msix_w_mask),
            endpoint.msix_r_address.eq(csr.msix_r_address), csr.msix_r_data.eq(endpoint.msix_r_data),
        ]
        for register in ring_registers():
            name = f"r_{register.name}"
            ours, theirs = getattr(csr, name), getattr(rings, name)
            m.d.comb += ours.eq(theirs) if register.access is abi.Access.RO else theirs.eq(ours)
            if register.access is abi.Access.DOORBELL:
                m.d.comb += getattr(rings, f"{name}_stb").eq(getattr(csr, f"{name}_stb"))
        for k in range(DOWN):
            wiring.connect(m, rings.o_line_request[k], endpoint.i_line[k])
            wiring.connect(m, endpoint.o_line[k], rings.i_line[k])
        for k in range(UP + 1):
            wiring.connect(m, rings.o_request[k], endpoint.i_request[WRITE_RINGS + k])
            wiring.connect(m, rings.o_data[k], endpoint.i_data[WRITE_RINGS + k])
        wiring.connect(m, rings.o_interrupt, endpoint.i_interrupt)

        params = self.params
        time_ns, all_idle, idle_q = Signal(64), Signal(), Signal()
        self.time_ns = time_ns
        m.d.sync += [time_ns.eq(time_ns + NS_PER_CYCLE), idle_q.eq(all_idle)]
        m.d.comb += all_idle.eq(Cat(endpoint.idle, rings.idle, self.transmit.idle, self.receive.idle, self.adamap.idle,
                                    self.reporter.idle, self.nic_tx.idle, self.nic_rx.idle, ~self.command.busy).all())
        reset_pending, at_rest = self.reset_pending, Signal()
        m.d.comb += endpoint.hold.eq(reset_pending)
        m.d.sync += [
            at_rest.eq(reset_pending & endpoint.idle & ~self.sending),
            core_reset.eq(reset_pending & at_rest & endpoint.idle & ~self.sending & ~csr.r_control[0]),
        ]
        with m.If(csr.r_control[1]):
            m.d.sync += reset_pending.eq(1)
        with m.Elif(core_reset):
            m.d.sync += reset_pending.eq(0)
        major, minor, patch = abi.VERSION
        m.d.comb += [
            csr.r_magic.eq(abi.MAGIC),
            csr.r_version.eq(major << 24 | minor << 16 | patch),
            csr.r_cap_tables.eq(params.qpn_width | params.mr_width << 8 | params.pte_width << 16),
            csr.r_cap_adamap.eq(params.window_bits | params.cache_entries << 16),
            csr.r_cap_misc.eq(params.knit_extents | params.msix_vectors << 8 | params.prefetch_depth_max << 16
                              | params.extent_blocks_log2 << 24),
            csr.r_status.eq(Cat(idle_q, self.command.tables_clear & ~reset_pending & ~core_reset)),
            csr.r_time_ns.eq(time_ns),
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
        wiring.connect(m, command.o_list_create, adamap.i_create)
        wiring.connect(m, command.o_list_destroy, adamap.i_destroy)
        wiring.connect(m, command.o_extent, adamap.i_extent)
        wiring.connect(m, adamap.o_qp_error, command.i_qp_error)
        for reader, table in zip(adamap.qp, tables.list_read, strict=True):
            wiring.connect(m, reader, table)
        m.d.comb += [
            rings.retire[ring].eq(command.retire),
            tables.enable.eq(command.tables_clear),
            command.list_destroyed.eq(adamap.destroyed),
            self.transmit.drain_request.eq(command.drain_request),
            self.receive.drain_request.eq(command.drain_request),
            command.drain_done.eq(self.transmit.drain_done & self.receive.drain_done),
            adamap.query_stb.eq(command.query_stb), adamap.query_qpn.eq(command.query_qpn),
            command.query_done.eq(adamap.query_done), command.query_result.eq(Cat(adamap.query_result)),
            self.transmit.mac.eq(command.mac), self.transmit.ip.eq(command.ip),
            self.receive.network_mac.eq(command.mac), self.receive.network_ip.eq(command.ip),
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
        m.d.comb += self.sending.eq(pass_unless(m, self.reset_pending, transmit.o, self.mac_tx.i, groups=True))
        wiring.connect(m, transmit.o_report, self.reporter.i[REPORT_TRANSMIT])
        m.d.comb += [
            transmit.enable.eq(self.csr.r_control[0] & self.command.tables_clear),
            transmit.placed_ticket.eq(self.receive.placed_ticket),
            rings.retire[send].eq(transmit.retire_send),
            rings.retire[retransmit].eq(transmit.retire_retransmit),
            rings.retire[raw].eq(nic.retire),
        ]

    def _wire_receive(self, m):
        receive, adamap, reporter, rings = self.receive, self.adamap, self.reporter, self.rings
        endpoint, nic, csr = self.endpoint, self.nic_rx, self.csr
        wiring.connect(m, self.mac_rx.o, receive.i)
        wiring.connect(m, receive.o_translate, self.tables.i[RECEIVE])
        wiring.connect(m, self.tables.o[RECEIVE], receive.i_translate)
        wiring.connect(m, receive.o_judge, adamap.i_judge)
        wiring.connect(m, adamap.o_judgement, receive.i_judgement)
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
        wiring.connect(m, adamap.o_line, endpoint.i_line[LINE_ADAMAP])
        wiring.connect(m, endpoint.o_line[LINE_ADAMAP], adamap.i_line)
        m.d.comb += [
            receive.enable.eq(csr.r_control[0] & self.command.tables_clear),
            receive.room.eq(reporter.room),
            reporter.placed_ticket.eq(receive.placed_ticket),
            nic.buffer.eq(csr.r_nic_rx_buffer), nic.slot_log2.eq(csr.r_nic_rx_slot_log2),
            nic.position.eq(rings.position[frames]), nic.full.eq(rings.full[frames]),
            nic.time_ns.eq(self.time_ns),
            adamap.time_ns.eq(self.time_ns), adamap.placed_ticket.eq(receive.placed_ticket),
            adamap.link_doorbell.eq(csr.r_link_doorbell), adamap.link_doorbell_stb.eq(csr.r_link_doorbell_stb),
            adamap.cum_doorbell.eq(csr.r_cum_doorbell), adamap.cum_doorbell_stb.eq(csr.r_cum_doorbell_stb),
        ]
        for name in ADAMAP_REGISTERS:
            m.d.comb += getattr(adamap, name).eq(getattr(csr, f"r_{name}"))

    def _count_widths(self):
        widths = {}
        for block in self.counted:
            for name, member in block.signature.members.items():
                if name.startswith("count_"):
                    widths[name.removeprefix("count_")] = member.shape
        return widths

    def _refusals(self):
        """(strobe, reason) of every block that refuses something."""
        pairs = [(port.stb, port.reason) for port in (*self.rings.refuse, *self.receive.refuse)]
        pairs += [(b.refuse_stb, b.refuse_reason) for b in (self.transmit, self.adamap, self.nic_tx, self.nic_rx)]
        return [*pairs, (self.adamap.broken_stb, self.adamap.broken_reason)]

    def _wire_counters(self, m):
        counters, command, csr = self.counters, self.command, self.csr
        for block in self.counted:
            for name in block.signature.members:
                if name.startswith("count_"):
                    m.d.comb += getattr(counters, name).eq(getattr(block, name))
        for port, (stb, reason) in zip(counters.refuse, self._refusals(), strict=True):
            m.d.comb += [port.stb.eq(stb), port.reason.eq(reason)]
        # The command processor allows its index one cycle more than the memory needs.
        delayed = Signal(abi.COUNTER_WIDTH)
        m.d.sync += delayed.eq(counters.read[1].data)
        m.d.comb += [
            counters.read[0].index.eq(csr.counter_index), csr.counter_data.eq(counters.read[0].data),
            counters.read[1].index.eq(command.counter_index), command.counter_data.eq(delayed),
        ]
