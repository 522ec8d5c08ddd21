"""Access of a program to a PCI function: the calls of the kernel that the back end needs."""

import abc
from typing import Any

MEMORY_SPACE, BUS_MASTER = 2, 4        # bits of the command register
COMMAND = 4                            # its offset in configuration space


class PciAccess(abc.ABC):
    """Open PCI function.

    Attributes
    ----------
    bar : memoryview
        BAR 0, in single accesses of the width to which it is cast.
    memory : LinuxMemory
        Memory that the function reaches.
    """

    bar: Any
    memory: Any

    @abc.abstractmethod
    def config_read(self, offset: int, length: int) -> bytes:
        """Read configuration space."""

    @abc.abstractmethod
    def config_write(self, offset: int, data: bytes) -> None:
        """Write configuration space."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Reset the function, by a function-level reset if it has one."""

    @abc.abstractmethod
    def set_msix(self, eventfds: list[int]) -> bool:
        """Signal an eventfd for each MSI-X vector; an empty list disables them. Return false without interrupts."""

    def watch(self, eventfd: int) -> None:
        """Signal an eventfd at an uncorrectable error, or when the function will be removed, where the kernel can."""
        return

    @abc.abstractmethod
    def close(self) -> None:
        """Release the function, but not ``memory``. Requires that its bus mastering is disabled."""

    def command(self, *, enable: bool) -> None:
        """Let the function respond and be bus master, or end its bus mastering."""
        value = int.from_bytes(self.config_read(COMMAND, 2), "little")
        value = value | MEMORY_SPACE | BUS_MASTER if enable else value & ~BUS_MASTER
        self.config_write(COMMAND, value.to_bytes(2, "little"))
