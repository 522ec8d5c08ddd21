"""What concerns the whole card: its registers, its time, and the reset of its rooms."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .contract import abi
from .contract.params import NS_PER_CYCLE, CardParams
from .part.registers import register_port


class Supervisor(wiring.Component):
    """Answers what the card is, counts its time, and resets its rooms.

    Control bit 1 asks for a reset: what may go on for long is held back, and when the DMA that was begun has ended,
    and no frame is amid the MAC, and control bit 0 is clear, the rooms are reset for a cycle. A reset of the function
    by the host asks for the same, whatever control bit 0 says, and takes the registers with it.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    registers : In(register_port("card"))
    idle : In(1)
        Nothing is under way in any room.
    dma_idle : In(1)
        No DMA is in flight, and no write can still be overtaken by the answer to a register read.
    dma_lost : In(1)
        Strobe: DMA was attempted that the host does not allow. Bit 2 of the status says so until the next reset.
    stop : Out(1)
        The same: nothing that follows what was lost may reach the host.
    sending : In(1)
        The MAC is amid a frame.
    tables_clear : In(1)
        QP and MR table were cleared after the last reset.
    time_ns : Out(64)
    enable : Out(1)
        Packets and frames may come and go.
    hold : Out(1)
        A reset is coming: no DMA and no frame to the MAC may begin.
    core_reset : Out(1)
        Of every room but the PCIe room and the registers.
    function_reset : In(1)
        The host resets the function: a rising edge asks.
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
        function_reset_q, whole, asked = Signal(), Signal(), Signal()     # `whole`: the registers, too
        m.d.comb += [
            asked.eq(self.function_reset & ~function_reset_q),
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
        with m.If(registers.control[1] | asked):
            m.d.sync += self.hold.eq(1)
        with m.Elif(self.core_reset):
            m.d.sync += self.hold.eq(0)
        with m.If(asked):
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
            registers.cap_transmit.eq(params.inline_bytes),
            registers.status.eq(Cat(idle_q, self.tables_clear & ~self.hold & ~self.core_reset, lost)),
            registers.time_ns.eq(self.time_ns),
        ]
        return m
