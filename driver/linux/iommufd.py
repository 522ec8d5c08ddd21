"""DMA mappings by iommufd (include/uapi/linux/iommufd.h): the card uses virtual addresses."""

import fcntl
import os

from weft.hdl.contract.layout import Field, Layout

from ..terms.errors import PyverbsRDMAError
from ..terms.program_mapping import MappingMethod, ProgramMapping
from .libc import PAGE
from .mapper import refused

PATH = "/dev/iommu"
_BASE = ord(";") << 8 | 0x80
DESTROY, IOAS_ALLOC, IOAS_MAP, IOAS_UNMAP = _BASE, _BASE + 1, _BASE + 5, _BASE + 6
FIXED_IOVA, WRITEABLE, READABLE = 1, 2, 4
ALLOC = Layout("iommu_ioas_alloc", "", [Field("size", 32), Field("flags", 32), Field("out_ioas_id", 32)], size_bytes=12)
MAP = Layout("iommu_ioas_map", "", [
    Field("size", 32), Field("flags", 32), Field("ioas_id", 32), Field("_reserved", 32), Field("user_va", 64),
    Field("length", 64), Field("iova", 64)], size_bytes=40)
UNMAP = Layout("iommu_ioas_unmap", "", [
    Field("size", 32), Field("ioas_id", 32), Field("iova", 64), Field("length", 64)], size_bytes=24)
DESTROYED = Layout("iommu_destroy", "", [Field("size", 32), Field("id", 32)], size_bytes=8)


class IommufdMapper:
    """Address space of iommufd. The kernel pins mapped memory.

    Parameters
    ----------
    file : int
        Descriptor of /dev/iommu.
    ioctl : callable(fd, request, argument)

    Attributes
    ----------
    ioas_id : int
        Address space that a device is attached to.

    Raises
    ------
    PyverbsRDMAError
    """

    contiguous = True

    def __init__(self, file, *, ioctl=fcntl.ioctl):
        self.file, self._ioctl = file, ioctl
        argument = bytearray(ALLOC.pack(size=ALLOC.size_bytes))
        try:
            ioctl(file, IOAS_ALLOC, argument)
        except OSError as error:
            raise PyverbsRDMAError(f"iommufd gives no address space: {error.strerror}", error.errno) from None
        self.ioas_id = ALLOC.unpack(bytes(argument)).out_ioas_id

    @classmethod
    def open(cls, path=PATH):
        """Open iommufd and create an address space."""
        try:
            file = os.open(path, os.O_RDWR)
        except OSError as error:
            raise PyverbsRDMAError(f"there is no iommufd: {path}: {error.strerror}", error.errno) from None
        try:
            return cls(file)
        except BaseException:
            os.close(file)
            raise

    def map(self, va, length):
        """Map a range for the card: see :meth:`weft.driver.linux.mapper.PhysicalMapper.map`."""
        argument = MAP.pack(size=MAP.size_bytes, flags=FIXED_IOVA | WRITEABLE | READABLE, ioas_id=self.ioas_id,
                            user_va=va, length=length, iova=va)
        try:
            self._ioctl(self.file, IOAS_MAP, argument)
        except OSError as error:
            raise refused("iommufd", va, length, error) from None
        return list(range(va, va + length, PAGE))

    def unmap(self, va, length):
        """Unmap a range: see :meth:`weft.driver.linux.mapper.PhysicalMapper.unmap`."""
        self._ioctl(self.file, IOAS_UNMAP, UNMAP.pack(size=UNMAP.size_bytes, ioas_id=self.ioas_id, iova=va,
                                                      length=length))

    @property
    def for_programs(self):
        """:class:`~weft.driver.terms.program_mapping.ProgramMapping` of this card."""
        return ProgramMapping(MappingMethod.IOMMUFD, self.file, self.ioas_id)

    def close(self):
        """Destroy the address space."""
        self._ioctl(self.file, DESTROY, DESTROYED.pack(size=DESTROYED.size_bytes, id=self.ioas_id))
        os.close(self.file)
