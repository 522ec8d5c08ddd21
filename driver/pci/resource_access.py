"""PCI function without an IOMMU: BAR 0 and configuration space by sysfs, physical addresses by pagemap. It polls."""

import contextlib
import errno
import mmap
import os
from typing import Any

from ..linux.mapper import PhysicalMapper
from ..linux.memory import LinuxMemory
from ..linux.region import u_dma_bufs
from ..terms.errors import PyverbsRDMAError
from .access import PciAccess
from .sysfs import SysfsFunction


class ResourceAccess(PciAccess):
    """PCI function that no kernel driver is bound to.

    Physical addresses need root. Nothing keeps the function from other memory than that of this process.

    Parameters
    ----------
    function : SysfsFunction
    mapper
        Of :mod:`weft.driver.linux.mapper`.

    Raises
    ------
    PyverbsRDMAError
        The message names the missing requirement.
    """

    def __init__(self, function: SysfsFunction, mapper: Any = None) -> None:
        self._path = function.path
        with contextlib.ExitStack() as back:
            try:
                (self._path / "enable").write_text("1")
                back.callback(self._disable)
                self._mapping = self._map_bar()
                back.callback(self._mapping.close)
                self._config = self._open("config")
                back.callback(os.close, self._config)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise PyverbsRDMAError(f"the function {function.address} cannot be opened without an IOMMU: {reason}; "
                                       "`weft devices` names the missing step",
                                       getattr(error, "errno", None) or errno.ENODEV) from None
            self.memory = LinuxMemory(mapper or PhysicalMapper(), u_dma_bufs())
            self.bar = memoryview(self._mapping)
            back.pop_all()

    def _open(self, name: str) -> int:
        return os.open(self._path / name, os.O_RDWR | os.O_SYNC)

    def _map_bar(self) -> mmap.mmap:
        file = self._open("resource0")
        try:
            return mmap.mmap(file, os.fstat(file).st_size)
        finally:
            os.close(file)

    def _disable(self) -> None:
        with contextlib.suppress(OSError):
            (self._path / "enable").write_text("0")

    def config_read(self, offset: int, length: int) -> bytes:
        return os.pread(self._config, length, offset)

    def config_write(self, offset: int, data: bytes) -> None:
        os.pwrite(self._config, data, offset)

    def reset(self) -> None:
        try:
            if (self._path / "reset").exists():         # a function-level reset is optional
                (self._path / "reset").write_text("1")
        except OSError as error:
            raise PyverbsRDMAError(f"the function does not come out of its reset: {error.strerror}",
                                   error.errno) from None

    def set_msix(self, eventfds: list[int]) -> bool:
        return False

    def close(self) -> None:
        self.bar.release()
        self._mapping.close()
        os.close(self._config)
        self._disable()
