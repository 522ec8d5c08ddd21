"""Health of the card: detection of a removed, reset or failed card."""

import errno

from ..terms.errors import PyverbsRDMAError
from .capabilities import read_register
from .device import Device

ALL_ONES = (1 << 32) - 1
CONTROL_ENABLE, STATUS_DMA_LOST = 1, 4

GONE = "the card is gone: its registers read all ones"
RESET = "the card was reset, and not by its driver"
DMA_LOST = "the card was to read or write memory while the host did not let it be bus master"


class DeviceFatal(PyverbsRDMAError):
    """The card is unusable. A reset may make it usable again."""

    code = errno.EIO


def fatal_reason(device: Device) -> str | None:
    """Return the reason for which an enabled card is unusable, or None. Reads registers."""
    status = read_register(device, "status")
    if status == ALL_ONES:
        return GONE
    if not read_register(device, "control") & CONTROL_ENABLE:
        return RESET
    return DMA_LOST if status & STATUS_DMA_LOST else None


class Watchdog:
    """Watchdog for a card without reports: a failed card may be unable to report its failure.

    Parameters
    ----------
    device : Device
    timeout_ns : int
        Time without reports after which the card's status is read, and interval of the reads.
    """

    def __init__(self, device: Device, timeout_ns: int) -> None:
        self._device, self._timeout_ns = device, timeout_ns
        self.due = device.now_ns() + timeout_ns

    def received(self, now: float) -> None:
        """Restart the time-out after a report of the card."""
        self.due = now + self._timeout_ns

    def look(self) -> str | None:
        """Return the reason for which the card is unusable, if the time-out expired, else None."""
        now = self._device.now_ns()
        if now < self.due:
            return None
        self.received(now)
        return fatal_reason(self._device)
