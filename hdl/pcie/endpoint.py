"""PCIe subsystem: shim, DMA engines and MSI-X, with vendor-neutral ports."""

from amaranth import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part.counter_ports import count_outputs, pass_counts
from ..part.interfaces import MsixTable, RegisterBus
from ..part.layouts import Beat, DmaRequest, LineData, LineRequest, PushedDescriptor
from ..part.stream import pass_unless
from .dma_read import DmaRead
from .dma_write import DmaWrite
from .msix import VECTOR_WIDTH, Msix
from .usplus import UsplusShim, connect_hard_block, hard_block_members


class Endpoint(wiring.Component):
    """Everything between the hard block and the other subsystems of the card.

    Timing is that of :class:`UsplusShim`, :class:`DmaRead`, :class:`DmaWrite` and :class:`Msix`.
    An interrupt is ordered after everything that was accepted from any write client before it.

    Parameters
    ----------
    params : CardParams
    bulk_clients, line_clients, write_clients : int
        Clients of the DMA engines.
    late_writer : int, optional
        The write client whose request is late in its cycle.

    Members
    -------
    m_axis_rq, s_axis_rc, s_axis_cq, m_axis_cc, pcie_*, cfg_*
        The hard block; see :class:`UsplusShim`.
    registers : Out(RegisterBus)
        To the register block.
    o_push : Out(stream.Signature(PushedDescriptor))
        To the rings of ``abi.PUSH_RINGS``.
    i_bulk, o_bulk, i_line, o_line
        See :class:`DmaRead`.
    i_request, i_data
        See :class:`DmaWrite`.
    i_interrupt : In(stream.Signature(5))
        MSI-X vectors to raise.
    msix : In(MsixTable)
        For the register block.
    hold : In(1)
        The clients of the DMA engines are going to be reset: no further reads and writes begin, and payload that
        still comes back is dropped, so that ``idle`` follows without their help.
    idle : Out(1)
        No DMA is in flight, and no write can still be overtaken by the completion of a register read.
    lost : Out(1)
        Strobe: a request was dropped, because the card may not be bus master or must stop.
    stop : In(1)
        Drop every request from now on.
    function_reset, function_reset_done : Out(1), In(1)
        The host resets the function; strobe: the rest of the card is reset. The MSI-X table is reset with it.
    count_host_refused : Out(1)
    """

    COUNTS = UsplusShim.COUNTS

    def __init__(self, params: CardParams, *, bulk_clients, line_clients, write_clients, late_writer=None):
        self.params = params
        self.bulk_clients, self.line_clients, self.write_clients = bulk_clients, line_clients, write_clients
        self.late_writer = late_writer
        super().__init__({
            **hard_block_members(),
            "registers": Out(RegisterBus), "o_push": Out(stream.Signature(PushedDescriptor)), "msix": In(MsixTable),
            "i_bulk": In(stream.Signature(DmaRequest)).array(bulk_clients),
            "o_bulk": Out(stream.Signature(Beat)).array(bulk_clients),
            "i_line": In(stream.Signature(LineRequest)).array(line_clients),
            "o_line": Out(stream.Signature(LineData)).array(line_clients),
            "i_request": In(stream.Signature(DmaRequest)).array(write_clients),
            "i_data": In(stream.Signature(Beat)).array(write_clients),
            "i_interrupt": In(stream.Signature(VECTOR_WIDTH)),
            "hold": In(1), "idle": Out(1), "lost": Out(1), "stop": In(1),
            "function_reset": Out(1), "function_reset_done": In(1),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        flipped = wiring.flipped
        m.submodules.shim = shim = UsplusShim(self.params)
        m.submodules.dma_read = dma_read = DmaRead(
            self.params, bulk_clients=self.bulk_clients, line_clients=self.line_clients)
        m.submodules.dma_write = dma_write = DmaWrite(
            self.params, clients=self.write_clients + 1, late=self.late_writer)
        msix = Msix(self.params)
        m.submodules.msix = ResetInserter(self.function_reset_done)(msix)

        connect_hard_block(m, shim, self)
        wiring.connect(m, shim.registers, flipped(self.registers))
        wiring.connect(m, shim.o_push, flipped(self.o_push))
        m.d.comb += [
            self.function_reset.eq(shim.function_reset), shim.function_reset_done.eq(self.function_reset_done),
            msix.enable.eq(shim.msix_enable), self.lost.eq(shim.dropped), shim.stop.eq(self.stop),
            dma_read.cfg_max_read_req.eq(shim.max_read_req), dma_write.cfg_max_payload.eq(shim.max_payload),
            self.idle.eq(~dma_read.busy & ~dma_write.busy & ~shim.busy),
        ]
        pass_counts(m, (shim,), self)
        wiring.connect(m, dma_read.o_read, shim.i_read)
        wiring.connect(m, shim.o_completion, dma_read.i_completion)
        wiring.connect(m, dma_write.o, shim.i_write)
        for k in range(self.bulk_clients):
            pass_unless(m, self.hold, self.i_bulk[k], dma_read.i_bulk[k], groups=True)
            back = dma_read.o_bulk[k]
            m.d.comb += [
                self.o_bulk[k].payload.eq(back.payload), self.o_bulk[k].valid.eq(back.valid & ~self.hold),
                back.ready.eq(self.o_bulk[k].ready | self.hold),
            ]
        for k in range(self.line_clients):
            pass_unless(m, self.hold, self.i_line[k], dma_read.i_line[k])
            wiring.connect(m, dma_read.o_line[k], flipped(self.o_line[k]))
        for k in range(self.write_clients):
            pass_unless(m, self.hold, self.i_request[k], dma_write.i_request[k], groups=True)
            wiring.connect(m, flipped(self.i_data[k]), dma_write.i_data[k])
        wiring.connect(m, flipped(self.msix), msix.table)
        wiring.connect(m, flipped(self.i_interrupt), msix.i)
        wiring.connect(m, msix.o_request, dma_write.i_request[self.write_clients])
        wiring.connect(m, msix.o_data, dma_write.i_data[self.write_clients])
        return m
