"""PCI function by VFIO (include/uapi/linux/vfio.h): a group with its container, or a character device with iommufd."""

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterable
from typing import Any

from weft.hdl.contract.layout import Field, Layout

from ..linux.iommufd import IommufdMapper
from ..linux.memory import LinuxMemory
from ..linux.region import Region, u_dma_bufs
from ..linux.vfio import BASE, open_container
from ..terms.errors import PyverbsRDMAError
from .access import PciAccess

GROUP_GET_DEVICE_FD = BASE + 6
DEVICE_GET_REGION_INFO, DEVICE_SET_IRQS, DEVICE_RESET = BASE + 8, BASE + 10, BASE + 11
DEVICE_BIND_IOMMUFD, DEVICE_ATTACH_IOMMUFD_PT = BASE + 18, BASE + 19
REGION_BAR0, REGION_CONFIG = 0, 7
IRQ_MSIX, IRQ_ERR, IRQ_REQ = 2, 3, 4
REGION_MMAP = 4                                   # VFIO_REGION_INFO_FLAG_MMAP
DATA_NONE, DATA_EVENTFD, ACTION_TRIGGER = 1, 4, 32
DEVICES = "/dev/vfio/devices/"


def _layout(name: str, size_bytes: int, *fields: tuple[str, int]) -> Layout:
    return Layout(name, "", [Field(*each) for each in fields], size_bytes=size_bytes)


REGION_INFO = _layout("vfio_region_info", 32, ("argsz", 32), ("flags", 32), ("index", 32), ("cap_offset", 32),
                      ("size", 64), ("offset", 64))
IRQ_SET = _layout("vfio_irq_set", 20, ("argsz", 32), ("flags", 32), ("index", 32), ("start", 32), ("count", 32))
BIND_IOMMUFD = _layout("vfio_device_bind_iommufd", 16, ("argsz", 32), ("flags", 32), ("iommufd", 32), ("out_devid", 32))
ATTACH_IOMMUFD_PT = _layout("vfio_device_attach_iommufd_pt", 12, ("argsz", 32), ("flags", 32), ("pt_id", 32))
Ioctl = Callable[..., Any]


class VfioAccess(PciAccess):
    """PCI function with an IOMMU: it uses virtual addresses of this process. Or one of VFIO's no-IOMMU mode.

    Parameters
    ----------
    device : int
        Descriptor of the function; the object owns it, and ``files``.
    mapper
        Of :mod:`weft.driver.linux.vfio` or ``iommufd``.
    files : list of int
    regions : iterable of Region
        Contiguous memory for a function without an IOMMU.
    """

    def __init__(self, device: int, mapper: Any, files: list[int], *, regions: Iterable[Region] = (),
                 ioctl: Ioctl = fcntl.ioctl) -> None:
        self._device, self._files, self._ioctl = device, files, ioctl
        region = self._region(REGION_BAR0)
        if not region.flags & REGION_MMAP:
            raise PyverbsRDMAError("VFIO does not map BAR 0 of the function", errno.ENODEV)
        self._config = self._region(REGION_CONFIG).offset
        self._mapping = mmap.mmap(device, region.size, offset=region.offset)
        self.bar, self.memory = memoryview(self._mapping), LinuxMemory(mapper, regions)

    def _region(self, index: int) -> Any:
        argument = bytearray(REGION_INFO.pack(argsz=REGION_INFO.size_bytes, index=index))
        try:
            self._ioctl(self._device, DEVICE_GET_REGION_INFO, argument)
        except OSError as error:
            raise PyverbsRDMAError(f"VFIO does not describe region {index} of the function: {error.strerror}",
                                   error.errno) from None
        return REGION_INFO.unpack(bytes(argument))

    def config_read(self, offset: int, length: int) -> bytes:
        return os.pread(self._device, length, self._config + offset)

    def config_write(self, offset: int, data: bytes) -> None:
        os.pwrite(self._device, data, self._config + offset)

    def reset(self) -> None:
        try:
            self._ioctl(self._device, DEVICE_RESET)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTTY):      # without a function-level reset, which is optional
                raise PyverbsRDMAError(f"the function does not come out of its reset: {error.strerror}",
                                       error.errno) from None

    def _set_irqs(self, index: int, files: list[int]) -> None:
        data = b"".join(file.to_bytes(4, "little") for file in files)
        flags = ACTION_TRIGGER | (DATA_EVENTFD if files else DATA_NONE)
        self._ioctl(self._device, DEVICE_SET_IRQS, IRQ_SET.pack(
            argsz=IRQ_SET.size_bytes + len(data), flags=flags, index=index, count=len(files)) + data)

    def set_msix(self, eventfds: list[int]) -> bool:
        try:
            self._set_irqs(IRQ_MSIX, eventfds)
        except OSError as error:
            raise PyverbsRDMAError(f"VFIO sets up no {len(eventfds)} MSI-X vectors: {error.strerror}",
                                   error.errno) from None
        return True

    def watch(self, eventfd: int) -> None:
        for index in (IRQ_ERR, IRQ_REQ):
            with contextlib.suppress(OSError):      # not every function and kernel has them
                self._set_irqs(index, [eventfd])

    def close(self) -> None:
        self.bar.release()
        self._mapping.close()
        for file in (self._device, *self._files):
            os.close(file)


def open_group(address: str, group: str, *, iommu: bool = True, ioctl: Ioctl = fcntl.ioctl,
               **places: str) -> VfioAccess:
    """Open a function through its IOMMU group, or that of VFIO's no-IOMMU mode.

    Raises
    ------
    PyverbsRDMAError
        The message names the missing requirement.
    """
    mapper, group_file = open_container(group, iommu=iommu, ioctl=ioctl, **places)
    files = [group_file]
    try:
        try:
            device = ioctl(group_file, GROUP_GET_DEVICE_FD, bytearray(address.encode() + b"\0"))
        except OSError as error:
            raise PyverbsRDMAError(f"VFIO does not open the function {address}: {error.strerror}",
                                   error.errno) from None
        files.append(device)
        return VfioAccess(device, mapper, [group_file], regions=() if iommu else u_dma_bufs(), ioctl=ioctl)
    except BaseException:
        for file in files[::-1]:
            os.close(file)
        mapper.close()
        raise


def open_iommufd(name: str, *, ioctl: Ioctl = fcntl.ioctl, devices: str = DEVICES, **places: str) -> VfioAccess:
    """Open a function through its character device ``name`` and iommufd.

    Raises
    ------
    PyverbsRDMAError
        The message names the missing requirement.
    """
    try:
        device = os.open(f"{devices}{name}", os.O_RDWR)
    except OSError as error:
        raise PyverbsRDMAError(f"{devices}{name} cannot be opened: {error.strerror}", error.errno) from None
    mapper: Any = None
    try:
        mapper = IommufdMapper.open(**places)
        bind = bytearray(BIND_IOMMUFD.pack(argsz=BIND_IOMMUFD.size_bytes, iommufd=mapper.file))
        attach = bytearray(ATTACH_IOMMUFD_PT.pack(argsz=ATTACH_IOMMUFD_PT.size_bytes, pt_id=mapper.ioas_id))
        try:
            ioctl(device, DEVICE_BIND_IOMMUFD, bind)
            ioctl(device, DEVICE_ATTACH_IOMMUFD_PT, attach)
        except OSError as error:
            raise PyverbsRDMAError(f"iommufd does not take the function: {error.strerror}", error.errno) from None
        return VfioAccess(device, mapper, [], ioctl=ioctl)
    except BaseException:
        os.close(device)            # first: an address space with a device cannot be destroyed
        if mapper is not None:
            mapper.close()
        raise
