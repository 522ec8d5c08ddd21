"""DMA mappings by VFIO, IOMMU type 1 version 2 (include/uapi/linux/vfio.h): the card uses virtual addresses."""

import errno
import fcntl
import os

from weft.hdl.contract.layout import Field, Layout

from ..terms.errors import PyverbsRDMAError
from ..terms.program_mapping import MappingMethod, ProgramMapping
from .libc import PAGE
from .mapper import PhysicalMapper, refused

CONTAINER, GROUPS = "/dev/vfio/vfio", "/dev/vfio/"
BASE = ord(";") << 8 | 100
GET_API_VERSION, CHECK_EXTENSION, SET_IOMMU = BASE, BASE + 1, BASE + 2
GROUP_GET_STATUS, GROUP_SET_CONTAINER = BASE + 3, BASE + 4
MAP_DMA, UNMAP_DMA = BASE + 13, BASE + 14
TYPE1V2, NO_IOMMU = 3, 8
GROUP_VIABLE = 1
READ, WRITE = 1, 2
DMA_MAP = Layout("vfio_iommu_type1_dma_map", "", [
    Field("argsz", 32), Field("flags", 32), Field("vaddr", 64), Field("iova", 64), Field("size", 64)], size_bytes=32)
DMA_UNMAP = Layout("vfio_iommu_type1_dma_unmap", "", [
    Field("argsz", 32), Field("flags", 32), Field("iova", 64), Field("size", 64)], size_bytes=24)
GROUP_STATUS = Layout("vfio_group_status", "", [Field("argsz", 32), Field("flags", 32)], size_bytes=8)


class VfioMapper:
    """VFIO container with an IOMMU. The kernel pins mapped memory.

    Parameters
    ----------
    container : int
        File descriptor.
    ioctl : callable(fd, request, argument)
    """

    contiguous = True

    def __init__(self, container, *, ioctl=fcntl.ioctl):
        self.container, self._ioctl = container, ioctl

    def map(self, va, length):
        """Map a range for the card: see :meth:`weft.driver.linux.mapper.PhysicalMapper.map`."""
        argument = DMA_MAP.pack(argsz=DMA_MAP.size_bytes, flags=READ | WRITE, vaddr=va, iova=va, size=length)
        try:
            self._ioctl(self.container, MAP_DMA, argument)
        except OSError as error:
            raise refused("VFIO", va, length, error) from None
        return list(range(va, va + length, PAGE))

    def unmap(self, va, length):
        """Unmap a range: see :meth:`weft.driver.linux.mapper.PhysicalMapper.unmap`."""
        self._ioctl(self.container, UNMAP_DMA, DMA_UNMAP.pack(argsz=DMA_UNMAP.size_bytes, iova=va, size=length))

    @property
    def for_programs(self):
        """:class:`~weft.driver.terms.program_mapping.ProgramMapping` of this card."""
        return ProgramMapping(MappingMethod.VFIO, self.container)

    def close(self):
        """Close the container, which removes all mappings."""
        os.close(self.container)


class NoIommuMapper(PhysicalMapper):
    """Physical addresses of a card whose VFIO container has no IOMMU.

    Parameters
    ----------
    container : int
        File descriptor.
    """

    def __init__(self, container):
        super().__init__()
        self._container = container

    def close(self):
        """Close the container."""
        os.close(self._container)


def open_container(group, *, iommu=True, ioctl=fcntl.ioctl, container=CONTAINER, groups=GROUPS):
    """Return (mapper, file descriptor of the group) for the IOMMU group of a card.

    Without ``iommu`` it is a group of VFIO's no-IOMMU mode, which needs CAP_SYS_RAWIO.

    Raises
    ------
    PyverbsRDMAError
        The message names the missing requirement.
    """
    files = []

    def step(sentence, function, *arguments):
        try:
            return function(*arguments)
        except OSError as error:
            raise PyverbsRDMAError(f"{sentence}: {error.strerror}", error.errno) from None

    def need(condition, sentence, code=errno.ENODEV):
        if not condition:
            raise PyverbsRDMAError(sentence, code)

    try:
        files.append(step(f"there is no VFIO: {container}", os.open, container, os.O_RDWR))
        need(ioctl(files[0], GET_API_VERSION) == 0, "the kernel has another version of VFIO")
        need(ioctl(files[0], CHECK_EXTENSION, TYPE1V2 if iommu else NO_IOMMU),
             "VFIO has no IOMMU of type 1 version 2 here" if iommu else "VFIO has no no-IOMMU mode here")
        path = f"{groups}{'' if iommu else 'noiommu-'}{group}"
        files.append(step(f"the card's IOMMU group cannot be opened, {path}: is it bound to vfio-pci, and yours?",
                          os.open, path, os.O_RDWR))
        status = bytearray(GROUP_STATUS.pack(argsz=GROUP_STATUS.size_bytes))
        step(f"the IOMMU group {group} reports no status", ioctl, files[1], GROUP_GET_STATUS, status)
        need(GROUP_STATUS.unpack(bytes(status)).flags & GROUP_VIABLE,
             f"the IOMMU group {group} has devices that are not bound to vfio-pci", errno.EBUSY)
        step(f"the IOMMU group {group} is in use", ioctl, files[1], GROUP_SET_CONTAINER,
             files[0].to_bytes(4, "little"))
        step("VFIO gives no IOMMU to this process", ioctl, files[0], SET_IOMMU, TYPE1V2 if iommu else NO_IOMMU)
    except BaseException:
        for file in files:
            os.close(file)
        raise
    return VfioMapper(files[0], ioctl=ioctl) if iommu else NoIommuMapper(files[0]), files[1]
