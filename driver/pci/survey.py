"""Survey of the cards of this machine: the first missing step of each, with the command that takes it."""

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .sysfs import SYSFS, VFIO_DRIVER, SysfsFunction, cards

DEV = Path("/dev")
LOCKED_BYTES_MIN = 64 << 20
HUGE = "mm/hugepages/hugepages-2048kB"
NO_CARD = ("no card (PCI function 1234:5746) is in this machine; after a bitstream was loaded: "
           "echo 1 > /sys/bus/pci/rescan")


@dataclass(frozen=True)
class Surveyed:
    """A card, and the sentence about what is missing to open it; empty if nothing is."""

    address: str
    driver: str | None
    group: str | None
    missing: str
    has_iommu: bool = True

    def __str__(self) -> str:
        group = "no IOMMU" if self.group is None or not self.has_iommu else f"IOMMU group {self.group}"
        way = "physical addresses, polling" if self.group is None else \
            "VFIO" if self.has_iommu else "VFIO with physical addresses"
        return f"{self.address}  driver {self.driver or 'none'}, {group}: {self.missing or f'ready, by {way}'}"


def _may_use(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def _bind(function: SysfsFunction, root: Path) -> str:
    """Return the commands that bind a function to VFIO."""
    load = "" if (root / "bus/pci/drivers" / VFIO_DRIVER).is_dir() else f"modprobe {VFIO_DRIVER}; "
    unbind = f"echo {function.address} > {function.path}/driver/unbind; " if function.driver else ""
    return (f"{load}{unbind}echo {VFIO_DRIVER} > {function.path}/driver_override; "
            f"echo {function.address} > {root}/bus/pci/drivers_probe")


def _missing_for_vfio(function: SysfsFunction, root: Path, dev: Path) -> str:
    if function.driver != VFIO_DRIVER:
        return f"it is not bound to {VFIO_DRIVER}; as root: {_bind(function, root)}"
    for other in function.neighbours:
        if other.driver not in (None, VFIO_DRIVER) and not other.is_bridge:
            return (f"{other.address} is in the same IOMMU group and bound to {other.driver}; as root: "
                    f"{_bind(other, root)}")
    if not (dev / "vfio").is_dir():
        return "there is no /dev/vfio; as root: modprobe vfio"
    for file in _files(function, dev):
        if not _may_use(file):
            return f"{file} is not yours; as root: chown {_user()} {file}"
    if not function.has_iommu:
        return "physical addresses need root; run as root" if os.geteuid() else _missing_huge_pages(root)
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit != resource.RLIM_INFINITY and limit < LOCKED_BYTES_MIN and os.geteuid():
        return (f"this process may lock {limit} bytes of memory, and {LOCKED_BYTES_MIN} or more are useful; as root: "
                f"prlimit --pid $$ --memlock=unlimited")
    return ""


def _files(function: SysfsFunction, dev: Path) -> tuple[Path, ...]:
    """Return the files through which :func:`~weft.driver.pci.device.open_access` opens a function bound to VFIO."""
    if not function.has_iommu:
        return dev / f"vfio/noiommu-{function.group}",
    name = function.vfio_device
    if name is not None and (dev / "iommu").exists():
        return dev / "iommu", dev / "vfio/devices" / name
    return dev / "vfio" / str(function.group),


def _user() -> str:
    return os.environ.get("USER") or str(os.getuid())


def _missing_without_iommu(function: SysfsFunction, root: Path) -> str:
    if function.driver is not None:
        return (f"it is bound to {function.driver}, and there is no IOMMU for VFIO; boot with intel_iommu=on or "
                f"amd_iommu=on, or as root: echo {function.address} > {function.path}/driver/unbind")
    if not _may_use(function.path / "resource0"):
        return (f"{function.path}/resource0 is not yours, and physical addresses need root; boot with intel_iommu=on "
                "or amd_iommu=on for VFIO, or run as root")
    return _missing_huge_pages(root)


def _missing_huge_pages(root: Path) -> str:
    huge = root / "kernel" / HUGE
    if not huge.is_dir() or not int((huge / "free_hugepages").read_text()):
        return f"no huge page is free for the rings; as root: echo 64 > {huge}/nr_hugepages"
    return ""


def survey(root: Path = SYSFS, dev: Path = DEV) -> Iterator[Surveyed]:
    """Yield the cards of this machine."""
    for function in cards(root):
        missing = _missing_without_iommu(function, root) if function.group is None \
            else _missing_for_vfio(function, root, dev)
        yield Surveyed(function.address, function.driver, function.group, missing,
                       function.group is None or function.has_iommu)
