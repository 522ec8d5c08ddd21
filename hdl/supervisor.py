"""Supervisor: registers, time and reset of the whole card."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .contract import abi
from .contract.params import NS_PER_CYCLE, CardParams
from .part.registers import register_port


class Supervisor(wiring.Component):
    """Identifies the card, counts its time, and resets its subsystems.

    Control bit 1 requests a reset: new DMA and frames are held back, and when the DMA in progress has ended,
    no frame is being sent, and control bit 0 is clear, the subsystems are reset for a cycle. A reset of the function
    by the host requests the same, independent of control bit 0, and includes the registers.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    registers : In(register_port("card"))
    idle : In(1)
        All subsystems are idle.
    dma_idle : In(1)
        No DMA is in flight, and no write can still be overtaken by the completion of a register read.
    dma_lost : In(1)
        Strobe: DMA was attempted that the host does not allow. Bit 2 of the status shows it until the next reset.
    stop : Out(1)
        The same, as a level: nothing that follows a lost request may reach the host.
    sending : In(1)
        A frame is being sent to the MAC.
    tables_clear : In(1)
        QP and MR table were cleared after the last reset.
    time_ns : Out(64)
    enable : Out(1)
        Packets and frames may be received and sent.
    hold : Out(1)
        A reset is pending: no DMA and no frame to the MAC may begin.
    core_reset : Out(1)
        Of every subsystem but the PCIe subsystem and the registers.
    function_reset : In(1)
        The host resets the function: requested by a rising edge.
    function_reset_done : Out(1)
        Strobe, with ``core_reset``: of the registers and the MSI-X table.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "registers": In(register_port("card")),
            "idle": In(1), "dma_idle": In(1), "sending": In(1), "tables_clear": In(1),
            "dma_lost": In(1), "function_reset": In(1), "function_reset_done": Out(1),
            "time_ns": Out(64), "enable": Out(1), "hold": Out(1), "stop": Out(1), "core_reset": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        params, registers = self.params, self.registers
        idle_q, at_rest, lost = Signal(), Signal(), Signal()
        function_reset_q, whole, requested = Signal(), Signal(), Signal()     # `whole`: includes the registers
        m.d.comb += [
            requested.eq(self.function_reset & ~function_reset_q),
            self.function_reset_done.eq(self.core_reset & whole), self.stop.eq(lost),
        ]
        quiet = self.dma_idle & ~self.sending
        m.d.sync += [
            self.time_ns.eq(self.time_ns + NS_PER_CYCLE),
            idle_q.eq(self.idle),
            at_rest.eq(self.hold & quiet),
            self.core_reset.eq(self.hold & at_rest & quiet & (whole | ~registers.control[0])),
            function_reset_q.eq(self.function_reset),
            lost.eq((lost | self.dma_lost) & ~self.core_reset),
        ]
        with m.If(registers.control[1] | requested):
            m.d.sync += self.hold.eq(1)
        with m.Elif(self.core_reset):
            m.d.sync += self.hold.eq(0)
        with m.If(requested):
            m.d.sync += whole.eq(1)
        with m.Elif(self.core_reset):
            m.d.sync += whole.eq(0)

        major, minor, patch = abi.VERSION
        m.d.comb += [
            self.enable.eq(registers.control[0] & self.tables_clear),
            registers.magic.eq(abi.MAGIC),
            registers.version.eq(major << 24 | minor << 16 | patch),
            registers.cap_tables.eq(params.qpn_width | params.mr_width << 8 | params.pte_width << 16),
            registers.cap_adamap.eq(params.window_bits | params.cache_entries << 16),
            registers.cap_misc.eq(params.knit_extents | params.msix_vectors << 8 | params.prefetch_depth_max << 16
                                  | params.extent_blocks_log2 << 24),
            registers.cap_transmit.eq(params.inline_bytes | params.pace_descriptors << 16),
            registers.status.eq(Cat(idle_q, self.tables_clear & ~self.hold & ~self.core_reset, lost)),
            registers.time_ns.eq(self.time_ns),
        ]
        return m
