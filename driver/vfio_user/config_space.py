"""Configuration space of a PCI function, as the host reads and writes it."""

from collections.abc import Callable

from weft.hdl.contract import pci
from weft.hdl.contract.layout import Layout
from weft.hdl.contract.pci import Configuration

D0, D3HOT = 0, 3
POWER_STATE = pci.POWER_MANAGEMENT, pci.POWER, "power_state"


class ConfigSpace:
    """Values of a :class:`~weft.hdl.contract.pci.Configuration`, with the effects of writes.

    Parameters
    ----------
    configuration : Configuration
    function_level_reset : callable()
        Called when the host initiates one. It must call :meth:`reset`.
    """

    def __init__(self, configuration: Configuration, function_level_reset: Callable[[], object]) -> None:
        self._initial, self._writable, self._clearable = configuration
        self._function_level_reset = function_level_reset
        self._values = bytearray(self._initial)

    def __len__(self) -> int:
        return len(self._values)

    def reset(self) -> None:
        """Return to the values after a reset."""
        self._values[:] = self._initial

    def read(self, offset: int, count: int) -> bytes:
        return bytes(self._values[offset : offset + count])

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes. Bits that are neither writable nor cleared by 1 keep their values."""
        power = self.field(*POWER_STATE)
        for at, byte in enumerate(data, offset):
            writable = self._writable[at]
            self._values[at] = (self._values[at] & ~writable | byte & writable) & ~(byte & self._clearable[at])
        if self.field(*POWER_STATE) not in (D0, D3HOT):
            self._set(*POWER_STATE, power)     # not supported: the write is ignored
        bit = 8 * pci.EXPRESS + pci.EXPRESS_CAPABILITY.offset_of("initiate_function_level_reset")
        if offset <= bit // 8 < offset + len(data) and data[bit // 8 - offset] >> bit % 8 & 1:
            self._function_level_reset()

    def field(self, capability: int, layout: Layout, name: str) -> int:
        """Return a field of a structure at an offset."""
        first, field = 8 * capability + layout.offset_of(name), layout.by_name[name]
        end = -(-(first + field.width) // 8)
        word = int.from_bytes(self._values[first // 8 : end], "little")
        return word >> first % 8 & (1 << field.width) - 1

    def _set(self, capability: int, layout: Layout, name: str, value: int) -> None:
        first, width = 8 * capability + layout.offset_of(name), layout.by_name[name].width
        at, end = first // 8, -(-(first + width) // 8)
        mask = (1 << width) - 1 << first % 8
        word = int.from_bytes(self._values[at:end], "little") & ~mask | value << first % 8
        self._values[at:end] = word.to_bytes(end - at, "little")

    def _in_d0(self, name: str) -> bool:
        """Return a bit of the command register; in D3hot it has no effect, as no request but those of configuration."""
        return bool(self.field(0, pci.HEADER, name)) and self.field(*POWER_STATE) == D0

    @property
    def memory_space(self) -> bool:
        """The function responds to accesses of its BARs."""
        return self._in_d0("memory_space")

    @property
    def bus_master(self) -> bool:
        """The function may access memory."""
        return self._in_d0("bus_master")

    @property
    def sends_msix(self) -> bool:
        """The function may send interrupts: MSI-X is enabled and not masked, and it may access memory."""
        msix = pci.MSIX, pci.MSIX_CAPABILITY
        return self.bus_master and bool(self.field(*msix, "enable")) and not self.field(*msix, "function_mask")

    def received_master_abort(self) -> None:
        """Record that a request of the function was completed as an Unsupported Request."""
        self._set(0, pci.HEADER, "received_master_abort", 1)
