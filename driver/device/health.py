"""Is the card still there, and is it to be trusted?"""

import errno

from ..terms.errors import PyverbsRDMAError
from .capabilities import read_register

ALL_ONES = (1 << 32) - 1
CONTROL_ENABLE, STATUS_DMA_LOST = 1, 4

GONE = "the card is gone: its registers read all ones"
RESET = "the card was reset, and not by its driver"
DMA_LOST = "the card was to read or write memory while the host did not let it be bus master"


class DeviceFatal(PyverbsRDMAError):
    """The card is of no use any more; at the best, a reset makes it so again."""

    code = errno.EIO


def fatal_reason(device):
    """What speaks against an enabled card, a sentence, or None. Reads registers."""
    status = read_register(device, "status")
    if status == ALL_ONES:
        return GONE
    if not read_register(device, "control") & CONTROL_ENABLE:
        return RESET
    return DMA_LOST if status & STATUS_DMA_LOST else None


class SilenceWatch:
    """Looks after a card that nothing was heard of: what can tell of an error is cut off by it.

    Parameters
    ----------
    device : Device
    patience_ns : int
        Silence after which the card's status is read, a register once in so long.
    """

    def __init__(self, device, patience_ns):
        self._device, self._patience_ns = device, patience_ns
        self.due = device.now_ns() + patience_ns

    def heard(self, now):
        """The card said something."""
        self.due = now + self._patience_ns

    def look(self):
        """What speaks against the card, if it is time to ask; otherwise None."""
        now = self._device.now_ns()
        if now < self.due:
            return None
        self.heard(now)
        return fatal_reason(self._device)
