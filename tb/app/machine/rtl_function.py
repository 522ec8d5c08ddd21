"""PCI function of a card as RTL: accesses of the client go through the simulated PCIe link."""

from collections.abc import Callable
from typing import Any

from cocotb.task import resume
from cocotb.triggers import Timer

from weft.driver.vfio_user.dma import LINE
from weft.driver.vfio_user.messages import Irq
from weft.driver.vfio_user.simulated_function import SimulatedFunction
from weft.hdl.contract import abi, pci
from weft.hdl.contract.pci import PciFunction
from weft.tb.app.machine.guest_host import INTERRUPTS
from weft.tb.sim.pair.two_hosts import Side
from weft.tb.sim.pcie.host import PAYLOAD_CODE
from weft.tb.sim.pcie.outage import begin_again

READ_LIMIT_NS = 50_000         # completion time-out of a register read
SETTLE_NS = 2_000              # reads that a reset aborted are answered by then, except those that wait for memory
PAYLOAD_CODE_MAX, READ_CODE_MAX = PAYLOAD_CODE[1024], PAYLOAD_CODE[4096]
ENTRY_DWORDS = 4


class RtlFunction(SimulatedFunction):
    """Function of a side of :class:`~weft.tb.sim.pair.two_hosts.TwoCards` with a host that is a
    :class:`~weft.tb.app.machine.guest_host.GuestHost`.

    It is used from a bridge thread: simulated time advances during each access until the card has completed it.
    Accesses that no processor makes, of more than 64 bytes, do not reach the card.

    Parameters
    ----------
    description, report
        As in :class:`SimulatedFunction`.
    side : Side
    """

    def __init__(self, description: PciFunction, side: Side, report: Callable[[str], object]) -> None:
        super().__init__(description, report)
        self._host: Any = side.host
        self._block = side.hard_block
        self._host.serve(self)
        self._begin()

    # --------------------------------------------------------------------------------------- accesses

    def _bar_read(self, offset: int, count: int) -> bytes:
        data = self._read(offset, count) if count <= LINE else None
        if data is None:
            return self._refused_read(count)
        if offset < abi.MSIX_PBA_OFFSET:
            return data
        waiting = self.pending >> 8 * (offset - abi.MSIX_PBA_OFFSET) & (1 << 8 * count) - 1
        return (int.from_bytes(data, "little") | waiting).to_bytes(count, "little")

    @resume
    async def _read(self, offset: int, count: int) -> bytes | None:
        """Return the bytes of a read, or None if the card rejects it."""
        self._host.touch()
        try:
            return bytes(await self._host.bar.read(offset, count, timeout=READ_LIMIT_NS))
        except Exception as error:      # the model has no class of exceptions for it
            if str(error) == "Timeout":
                self.report(f"the card does not complete a read of {count} bytes at {offset:#x}")
            return None

    def _bar_write(self, offset: int, data: bytes) -> None:
        if len(data) <= LINE:
            self._write(offset, data)
        else:
            self._refuse()

    @resume
    async def _write(self, offset: int, data: bytes) -> None:
        self._host.touch()
        await self._host.bar.write(offset, data)

    def _refuse(self) -> None:
        self.counters["host_refused"] += 1

    def raise_vector(self, vector: int) -> None:
        """Signal a vector that the card sends; a masked one is pending in the card, one without eventfd here."""
        if vector < self._vectors and not self.interrupts.signal(Irq.MSIX, vector):
            self.pending |= 1 << vector

    # ------------------------------------------------------------------------- configuration, resets

    @resume
    async def _begin(self) -> None:
        await self._write_table()
        self._apply()

    async def _write_table(self) -> None:
        """Fill the card's MSI-X table. The client keeps its own, and does not send it."""
        for vector in range(self._vectors):
            at = abi.MSIX_TABLE_OFFSET + 4 * ENTRY_DWORDS * vector
            for place, word in enumerate((INTERRUPTS, 0, vector, 0)):
                await self._host.bar.write_dword(at + 4 * place, word)

    @resume
    async def _configured(self) -> None:
        self._apply()

    def _apply(self) -> None:
        """Drive the card's configuration ports as the client has configured the function."""
        config, function = self.config, self._block.functions[0]
        express, msix = (pci.EXPRESS, pci.EXPRESS_CAPABILITY), (pci.MSIX, pci.MSIX_CAPABILITY)
        capability = function.pcie_cap
        if not function.bus_master_enable:      # later it might reject tags of requests in flight
            capability.extended_tag_field_enable = bool(config.field(*express, "extended_tag_enable"))
        payload = min(config.field(*express, "max_payload_size"), PAYLOAD_CODE_MAX)
        self._host.max_payload_size = capability.max_payload_size = payload
        capability.max_read_request_size = min(config.field(*express, "max_read_request_size"), READ_CODE_MAX)
        function.bus_master_enable = config.bus_master
        function.msix_cap.msix_enable = bool(config.field(*msix, "enable"))
        function.msix_cap.msix_function_mask = bool(config.field(*msix, "function_mask"))
        self._block.configured()
        self._host.touch()

    @resume
    async def _renew(self) -> None:
        """Reset the function, and wait for the host's answers to the reads that this aborts."""
        try:
            await begin_again(self._host)
        except AssertionError as error:
            self.report(str(error))
        await Timer(SETTLE_NS, "ns")
        while self._host.reading:
            await Timer(SETTLE_NS, "ns")
        await self._write_table()
        self._apply()
