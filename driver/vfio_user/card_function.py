"""Simulated card as a PCI function: BAR 0 in front of its registers, host memory and interrupts by the client."""

import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from weft.hdl.contract import abi
from weft.hdl.contract.pci import PciFunction

from ..device.attached import MemoryFault
from .dma import Unmapped
from .simulated_function import ALL_ONES, SimulatedFunction

CONTROL_RESET, STATUS_DMA_LOST = 2, 4
DWORD, QWORD = 4, 8
REGISTER_AT = {register.offset: register for register in abi.REGISTERS}
LOG2_OFFSETS = {register.offset for register in abi.REGISTERS if register.name.endswith("_log2") and
                register.offset >= abi.RING_BASE}
READ_BYTES_MAX = 1 << 16       # of one access of a card: a descriptor, a list of pages, a packet


class CardModel(Protocol):
    """Card below its PCIe side, as :class:`weft.model.functional.card.FunctionalCard`."""

    counters: Counter[str]

    def read(self, offset: int) -> int:
        """Return the value of a register."""

    def write(self, offset: int, value: int) -> None:
        """Write a register."""

    def push(self, offset: int, data: bytes) -> None:
        """Write a whole descriptor window."""

    def receive(self, frame: Any) -> None:
        """Process a frame of the line."""


class UnsupportedRequest(MemoryFault):
    """The host rejects a read of the card."""


class DmaLost(Exception):
    """The card was to access memory while the host did not let it."""


class Incarnation:
    """Card between two resets of the function, with its access to the host.

    A card whose DMA is lost stops until it is reset, with bit 2 of the register ``status`` set; so does a model of a
    card that raises an exception, instead of the process.

    Parameters
    ----------
    function : CardFunction
    """

    def __init__(self, function: "CardFunction") -> None:
        self._function = function
        self.ended = self.lost = False

    def run(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a function of the card, unless the card has stopped. An exception stops it."""
        if self.ended:
            return
        try:
            call(*arguments)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.stop(f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})")

    def stop(self, reason: str) -> None:
        """Stop the card until a reset."""
        self.ended = self.lost = True
        self._function.report(f"the card stops until it is reset: {reason}")

    def read(self, address: int, length: int) -> bytes:
        """Read host memory.

        Raises
        ------
        UnsupportedRequest
            If part of it is not memory of the client; the card reports that.
        DmaLost
        """
        if not self._may_access():
            raise DmaLost("bus mastering is disabled")
        try:
            if length > READ_BYTES_MAX:
                raise Unmapped(f"a read of {length} bytes")
            return self._function.dma.read(address, length)
        except Unmapped as error:
            self._function.unsupported(str(error))
            raise UnsupportedRequest(str(error)) from None

    def read_ahead(self, address: int, length: int, _most: int) -> bytes:
        """Read host memory, and nothing ahead. Raises as :meth:`read`."""
        return self.read(address, length)

    def write(self, address: int, data: bytes) -> None:
        """Write host memory. A write is posted: one that fails vanishes."""
        if self._may_access():
            try:
                self._function.dma.write(address, data)
            except Unmapped as error:
                self._function.unsupported(str(error))

    def _may_access(self) -> bool:
        self.lost = self.lost or not self._function.config.bus_master
        return not self.lost

    def interrupt(self, vector: int) -> None:
        """Raise an MSI-X vector."""
        if not self.ended:
            self._function.raise_vector(vector)


class CardFunction(SimulatedFunction):
    """PCI function of a model of a card.

    Accesses of the BAR are served as by :class:`weft.hdl.pcie.cq.RegisterShim`: reads and writes of 4 or 8 aligned
    bytes, reads of part of a double word, and writes of up to 64 bytes into the push windows. Others are counted as
    ``host_refused``: a read returns ones, a write vanishes.

    Parameters
    ----------
    description, report
        As in :class:`SimulatedFunction`.
    make : callable(incarnation) -> CardModel
        Returns a card that uses ``read``, ``write`` and ``interrupt`` of the incarnation, and that runs all its
        scheduled calls by its ``run``.
    """

    def __init__(self, description: PciFunction, make: Callable[[Incarnation], CardModel],
                 report: Callable[[str], object] = lambda sentence: None) -> None:
        super().__init__(description, report)
        self._make = make
        self._make_card()

    def _make_card(self) -> None:
        self.incarnation = Incarnation(self)
        self.card = self._make(self.incarnation)

    def _renew(self) -> None:
        self.incarnation.ended = True
        self._make_card()

    # ----------------------------------------------------------------------------------------- registers

    def _refuse(self) -> None:
        self.card.counters["host_refused"] += 1

    def _bar_read(self, offset: int, count: int) -> bytes:
        inside = offset % DWORD
        aligned = count == QWORD and not offset % QWORD
        if not (aligned or inside + count <= DWORD):
            return self._refused_read(count)
        dwords = range(offset - inside, offset + count, DWORD)
        data = b"".join((self._dword(at) & 0xFFFF_FFFF).to_bytes(DWORD, "little") for at in dwords)
        return data[inside : inside + count]

    def _dword(self, offset: int) -> int:
        """Return four bytes of the BAR. Offsets without a register read as zero."""
        if offset >= abi.MSIX_TABLE_OFFSET:
            return self.pending >> 8 * (offset - abi.MSIX_PBA_OFFSET) if offset >= abi.MSIX_PBA_OFFSET else 0
        wide = REGISTER_AT.get(offset - offset % QWORD)
        if wide is not None and wide.width == 8 * QWORD:
            return self.card.read(wide.offset) >> 8 * (offset % QWORD)
        value = self.card.read(offset)
        return value | STATUS_DMA_LOST if offset == abi.REGISTER["status"].offset and self.incarnation.lost else value

    def _bar_write(self, offset: int, data: bytes) -> None:
        count = len(data)
        if abi.PUSH_BASE <= offset < abi.PUSH_END and offset % DWORD + count <= abi.BLOCK_BYTES:
            if count == abi.BLOCK_BYTES and not offset % count:
                self.incarnation.run(self.card.push, offset, data)
            else:
                self.incarnation.run(self.card.write, offset, 0)
        elif count not in (DWORD, QWORD) or offset % count:
            self._refuse()
        elif offset < abi.MSIX_TABLE_OFFSET:
            self._register_write(offset, data)

    def _register_write(self, offset: int, data: bytes) -> None:
        """Write one or two registers, or half of a 64-bit one, of which a doorbell ignores it."""
        wide, value = REGISTER_AT.get(offset - offset % QWORD), int.from_bytes(data, "little")
        if wide is None or wide.width < 8 * QWORD:
            for at in range(0, len(data), DWORD):
                self._write(offset + at, value >> 8 * at & 0xFFFF_FFFF)
        elif len(data) == QWORD:
            self._write(offset, value)
        elif wide.access is abi.Access.RW:
            shift = 8 * (offset % QWORD)
            self._write(wide.offset, self.card.read(wide.offset) & ~(0xFFFF_FFFF << shift) | value << shift)

    def _write(self, offset: int, value: int) -> None:
        if offset == abi.REGISTER["control"].offset and value & CONTROL_RESET:
            if self.incarnation.ended:
                self._make_card()
            self.incarnation.lost = False
        elif offset in LOG2_OFFSETS:
            value = value & ~ALL_ONES | min(value & ALL_ONES, abi.RING_LOG2_MAX)
        self.incarnation.run(self.card.write, offset, value)

    # ------------------------------------------------------------------------------------------ card

    def receive(self, frame: Any) -> None:
        """Give a frame of the line to the card."""
        self.incarnation.run(self.card.receive, frame)
