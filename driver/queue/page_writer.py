"""Writer of a card's page table."""

from collections.abc import Callable, Sequence

from weft.hdl.contract import abi

from ..device.device import Device, DmaBuffer
from ..device.health import DeviceFatal
from ..device.page_table import pack_ptes
from .command import CommandQueue, CommandTimeout

PTES_PER_COMMAND = 512


class PageWriter:
    """Writer of page-table entries from a staging buffer, which it keeps.

    Parameters
    ----------
    device : Device
    commands : CommandQueue
    kept : list
        Gets callables that run after a reset of the card.
    """

    def __init__(self, device: Device, commands: CommandQueue, kept: list[Callable[[], object]]) -> None:
        self._device, self._commands, self._kept = device, commands, kept
        self._spare: DmaBuffer | None = self._new()

    def _new(self) -> DmaBuffer:
        return self._device.alloc(PTES_PER_COMMAND * abi.PTE_BYTES, align=abi.PAGE_4K)

    def write(self, pte_index: int, pages: Sequence[int]) -> None:
        """Write the entries of page addresses from an index on.

        Raises
        ------
        CommandError, CommandTimeout, DeviceFatal
        """
        staging, self._spare = self._spare or self._new(), None      # another thread may write during the wait
        try:
            for first in range(0, len(pages), PTES_PER_COMMAND):
                part = pages[first : first + PTES_PER_COMMAND]
                staging.write(0, pack_ptes(part))
                self._commands.call(abi.CommandOpcode.PAGE_TABLE_WRITE, pte_index=pte_index + first, count=len(part),
                                    address=staging.physical(0))
        except (CommandTimeout, DeviceFatal):      # the card may still read the buffer
            self._kept.append(lambda: self._device.free(staging))
            raise
        except BaseException:
            self._give_back(staging)
            raise
        self._give_back(staging)

    def _give_back(self, staging: DmaBuffer) -> None:
        if self._spare is None:
            self._spare = staging
        else:
            self._device.free(staging)

    def close(self) -> None:
        """Free the buffer."""
        if self._spare is not None:
            self._device.free(self._spare)
