"""Tree of sysfs and /dev with PCI functions, and the answers of a kernel's VFIO."""

import errno
import os
from collections import Counter

from weft.driver.linux import vfio
from weft.driver.pci import vfio_access
from weft.hdl.contract import abi

CONFIG_OFFSET = 1 << 20


class FakeTree:
    """``sys`` and ``dev`` below a folder."""

    def __init__(self, folder):
        self.sys, self.dev = folder / "sys", folder / "dev"
        (self.sys / "bus/pci/devices").mkdir(parents=True)
        (self.sys / "bus/pci/drivers").mkdir()
        self.dev.mkdir()

    def driver(self, name):
        """Return the folder of a kernel driver."""
        path = self.sys / "bus/pci/drivers" / name
        path.mkdir(exist_ok=True)
        return path

    def function(self, address, *, device=abi.PCI_DEVICE_ID, driver=None, group=None, kind=0x020700):
        """Add a function, and return its folder."""
        path = self.sys / "devices/pci0000:00" / address
        path.mkdir(parents=True)
        for name, value in (("vendor", abi.PCI_VENDOR_ID), ("device", device), ("class", kind)):
            (path / name).write_text(f"{value:#06x}\n")
        for name, size in (("resource0", abi.BAR_BYTES), ("config", 4096)):
            (path / name).write_bytes(bytes(size))
        (path / "enable").write_text("0")
        (path / "reset").write_text("")
        (self.sys / "bus/pci/devices" / address).symlink_to(path)
        if driver is not None:
            (path / "driver").symlink_to(self.driver(driver))
        if group is not None:
            members = self.sys / "kernel/iommu_groups" / str(group) / "devices"
            members.mkdir(parents=True, exist_ok=True)
            (members / address).symlink_to(path)
            (path / "iommu_group").symlink_to(members.parent)
        return path

    def huge_pages(self, free):
        folder = self.sys / "kernel/mm/hugepages/hugepages-2048kB"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "free_hugepages").write_text(f"{free}\n")

    def vfio(self, *names):
        """Make files below /dev/vfio."""
        for name in names:
            path = self.dev / "vfio" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")


class FakeKernel:
    """Answers to the ioctls of VFIO and iommufd. The device is a file: BAR 0, then configuration space.

    Attributes
    ----------
    calls : Counter
        Number of calls by request.
    eventfds : dict of (kind, number) to descriptor
        As set; the numbers of the caller's descriptors.
    refused : dict of request to errno
    """

    def __init__(self, folder, *, flags=vfio_access.REGION_MMAP):
        self.path, self.flags = folder / "function", flags
        self.path.write_bytes(bytes(CONFIG_OFFSET + 4096))
        self.calls, self.eventfds, self.refused, self.opened = Counter(), {}, {}, None

    def __call__(self, file, request, argument=0):
        self.calls[request] += 1
        if request in self.refused:
            raise OSError(self.refused[request], os.strerror(self.refused[request]))
        if request == vfio.CHECK_EXTENSION:
            return 1
        if request == vfio.GROUP_GET_STATUS:
            argument[:] = vfio.GROUP_STATUS.pack(argsz=8, flags=vfio.GROUP_VIABLE)
        elif request == vfio_access.GROUP_GET_DEVICE_FD:
            self.opened = bytes(argument)
            return os.open(self.path, os.O_RDWR)
        elif request == vfio_access.DEVICE_GET_REGION_INFO:
            index = vfio_access.REGION_INFO.unpack(argument).index
            size, offset = {0: (abi.BAR_BYTES, 0), 7: (4096, CONFIG_OFFSET)}[index]
            argument[:] = vfio_access.REGION_INFO.pack(argsz=32, index=index, flags=self.flags, size=size,
                                                       offset=offset)
        elif request == vfio_access.DEVICE_SET_IRQS:
            self._set_irqs(argument)
        return 0

    def _set_irqs(self, argument):
        wanted, data = vfio_access.IRQ_SET.unpack(argument), argument[vfio_access.IRQ_SET.size_bytes:]
        if wanted.argsz != len(argument) or len(data) != 4 * wanted.count:
            raise OSError(errno.EINVAL, "Invalid argument")
        if wanted.count == 0:
            self.eventfds = {key: file for key, file in self.eventfds.items() if key[0] != wanted.index}
        for number in range(wanted.count):
            self.eventfds[wanted.index, wanted.start + number] = int.from_bytes(data[4 * number:][:4], "little")

    def config(self, offset, length):
        with self.path.open("rb") as file:
            return os.pread(file.fileno(), length, CONFIG_OFFSET + offset)

    def registers(self):
        return self.path.read_bytes()[:abi.BAR_BYTES]
