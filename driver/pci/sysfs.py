"""PCI functions of this machine, from sysfs (Documentation/ABI/testing/sysfs-bus-pci)."""

import errno
import re
from collections.abc import Iterator
from pathlib import Path

from weft.hdl.contract import abi

from ..terms.errors import InvalidValue, PyverbsRDMAError

SYSFS = Path("/sys")
VFIO_DRIVER = "vfio-pci"
NO_IOMMU = "vfio-noiommu"        # name of the groups of VFIO's no-IOMMU mode
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]")


class SysfsFunction:
    """PCI function in sysfs.

    Parameters
    ----------
    address : str
        Domain, bus, device and function: ``0000:00:03.0``.
    root : Path
        Mount point of sysfs.

    Raises
    ------
    InvalidValue
        If the text is not an address.
    PyverbsRDMAError
        ENODEV if there is no such function.
    """

    def __init__(self, address: str, root: Path = SYSFS) -> None:
        if not ADDRESS.fullmatch(address):
            raise InvalidValue(f"{address!r} is not an address of a PCI function, as 0000:00:03.0 is one")
        self.address, self.root = address, root
        self.path = root / "bus/pci/devices" / address
        if not self.path.is_dir():
            raise PyverbsRDMAError(f"there is no PCI function {address}; `weft devices` lists the cards", errno.ENODEV)

    def _hex(self, name: str) -> int:
        return int((self.path / name).read_text(), 16)

    def _link(self, name: str) -> str | None:
        path = self.path / name
        return path.resolve().name if path.exists() else None

    @property
    def is_card(self) -> bool:
        """The function has the IDs of the card."""
        return (self._hex("vendor"), self._hex("device")) == (abi.PCI_VENDOR_ID, abi.PCI_DEVICE_ID)

    @property
    def driver(self) -> str | None:
        """Name of the kernel driver that it is bound to, or None."""
        return self._link("driver")

    @property
    def group(self) -> str | None:
        """Number of its IOMMU group, or None without an IOMMU."""
        return self._link("iommu_group")

    @property
    def has_iommu(self) -> bool:
        """It has an IOMMU group, and not only for VFIO's no-IOMMU mode."""
        name = self.path / "iommu_group/name"
        return self.group is not None and not (name.exists() and name.read_text().strip() == NO_IOMMU)

    @property
    def neighbours(self) -> list["SysfsFunction"]:
        """Other PCI functions of its IOMMU group, which may have devices of other buses, too."""
        folder = self.path / "iommu_group/devices"
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        return [SysfsFunction(name, self.root) for name in names if name != self.address and ADDRESS.fullmatch(name)]

    @property
    def is_bridge(self) -> bool:
        """The function is a PCI bridge, which may share a group with functions that are bound to VFIO."""
        return self._hex("class") >> 8 == 0x0604

    @property
    def vfio_device(self) -> str | None:
        """Name of its character device for iommufd, or None."""
        folder = self.path / "vfio-dev"
        return next((path.name for path in sorted(folder.iterdir())), None) if folder.is_dir() else None


def cards(root: Path = SYSFS) -> Iterator[SysfsFunction]:
    """Yield the cards of this machine, by address."""
    folder = root / "bus/pci/devices"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if ADDRESS.fullmatch(path.name) and (function := SysfsFunction(path.name, root)).is_card:
            yield function
