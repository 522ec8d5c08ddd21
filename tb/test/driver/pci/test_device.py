"""Back end for hardware over a kernel that the test plays: VFIO group, iommufd, and sysfs without an IOMMU."""

import errno
import os
import threading
import time

import pytest

from weft.driver.device.health import ALL_ONES, GONE, fatal_reason
from weft.driver.linux import iommufd, vfio
from weft.driver.linux.libc import PAGE
from weft.driver.pci import device as module
from weft.driver.pci import resource_access, vfio_access
from weft.driver.pci.device import PciDevice, open_access
from weft.driver.pci.resource_access import ResourceAccess
from weft.driver.pci.sysfs import SysfsFunction
from weft.driver.pci.vfio_access import VfioAccess, open_group, open_iommufd
from weft.driver.terms.errors import InvalidValue, PyverbsRDMAError
from weft.driver.terms.program_mapping import MappingMethod
from weft.tb.test.driver.linux.test_mappers import shape, values_of_the_compiler
from weft.tb.test.driver.pci.fake_sysfs import FakeKernel, FakeTree
from weft.tb.test.system import need

ADDRESS = "0000:03:00.0"
MS = 1_000_000


def open_files():
    return len(os.listdir("/proc/self/fd"))


def through_group(kernel, folder):
    for name in ("vfio", "7"):
        (folder / name).write_bytes(b"")
    return open_group(ADDRESS, "7", ioctl=kernel, container=str(folder / "vfio"), groups=f"{folder}/")


def through_iommufd(kernel, folder):
    folder = folder / "devices"
    folder.mkdir(exist_ok=True)
    (folder / "iommu").write_bytes(b"")
    if not (folder / "vfio0").exists():
        (folder / "vfio0").symlink_to(kernel.path)

    class Mapper(iommufd.IommufdMapper):
        def __init__(self, file, *, ioctl=kernel):
            super().__init__(file, ioctl=ioctl)

    original, vfio_access.IommufdMapper = vfio_access.IommufdMapper, Mapper
    try:
        return open_iommufd("vfio0", ioctl=kernel, devices=f"{folder}/", path=str(folder / "iommu"))
    finally:
        vfio_access.IommufdMapper = original


WAYS = pytest.mark.parametrize("way", [through_group, through_iommufd])


def test_numbers_and_structures_match_the_kernel_header(tmp_path):
    need("cc")
    numbers = {
        "VFIO_GROUP_GET_DEVICE_FD": vfio_access.GROUP_GET_DEVICE_FD,
        "VFIO_DEVICE_GET_REGION_INFO": vfio_access.DEVICE_GET_REGION_INFO,
        "VFIO_DEVICE_SET_IRQS": vfio_access.DEVICE_SET_IRQS, "VFIO_DEVICE_RESET": vfio_access.DEVICE_RESET,
        "VFIO_PCI_BAR0_REGION_INDEX": vfio_access.REGION_BAR0,
        "VFIO_PCI_CONFIG_REGION_INDEX": vfio_access.REGION_CONFIG,
        "VFIO_PCI_MSIX_IRQ_INDEX": vfio_access.IRQ_MSIX, "VFIO_PCI_ERR_IRQ_INDEX": vfio_access.IRQ_ERR,
        "VFIO_PCI_REQ_IRQ_INDEX": vfio_access.IRQ_REQ, "VFIO_REGION_INFO_FLAG_MMAP": vfio_access.REGION_MMAP,
        "VFIO_IRQ_SET_DATA_NONE": vfio_access.DATA_NONE, "VFIO_IRQ_SET_DATA_EVENTFD": vfio_access.DATA_EVENTFD,
        "VFIO_IRQ_SET_ACTION_TRIGGER": vfio_access.ACTION_TRIGGER}
    layouts = [vfio_access.REGION_INFO, vfio_access.IRQ_SET]
    wanted = list(numbers.values()) + [number for layout in layouts for number in shape(layout)]
    assert values_of_the_compiler("linux/vfio.h", numbers, layouts, tmp_path) == wanted
    # Headers older than Linux 6.6 lack these; the numbers are those of include/uapi/linux/vfio.h.
    assert (vfio_access.DEVICE_BIND_IOMMUFD, vfio_access.DEVICE_ATTACH_IOMMUFD_PT) == (0x3B76, 0x3B77)
    assert shape(vfio_access.BIND_IOMMUFD) == [16, 0, 4, 8, 12]
    assert shape(vfio_access.ATTACH_IOMMUFD_PT) == [12, 0, 4, 8]


@WAYS
def test_registers_interrupts_memory_and_close(way, tmp_path):
    kernel, before = FakeKernel(tmp_path), open_files()
    device = PciDevice(way(kernel, tmp_path))
    assert kernel.calls[vfio_access.DEVICE_RESET] == 1 and kernel.config(4, 2) == b"\6\0"
    if way is through_group:
        assert kernel.opened == ADDRESS.encode() + b"\0"
    else:
        assert kernel.calls[vfio_access.DEVICE_BIND_IOMMUFD] == kernel.calls[vfio_access.DEVICE_ATTACH_IOMMUFD_PT] == 1
    device.write32(8, 0x1_2345_6789)
    device.write64(16, 0x0123_4567_89AB_CDEF)
    device.write_block(64, bytes(range(64)))
    assert kernel.registers()[8:24] == bytes.fromhex("89674523 00000000 efcdab89 67452301")
    assert kernel.registers()[64:128] == bytes(range(64)) and not device.pushes
    assert device.read32(20) == 0x0123_4567 and device.read64(8) == 0x2345_6789

    for _ in range(2):          # the driver calls it at every open
        device.enable_interrupts(4)
    events = [kernel.eventfds[vfio_access.IRQ_MSIX, number] for number in range(4)]
    assert len(set(events)) == 4 and {(3, 0), (4, 0)} < set(kernel.eventfds)
    assert not device.wait(MS)
    for event in events:
        os.eventfd_write(event, 3)
        assert device.wait(10**12) and not device.wait(0)
        threading.Timer(0.01, os.eventfd_write, (event, 1)).start()
        assert device.wait(10**12)
    device.enable_interrupts(2)
    assert not device.wait(0)

    buffer = device.alloc(5 * PAGE)
    data = bytearray(b"program" * 1000)
    import ctypes
    pin = device.pin(ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data))
    assert pin.read(0, 7) == b"program" and device.buffer_at(buffer.va + 1, 10) is buffer
    request = vfio.MAP_DMA if way is through_group else iommufd.IOAS_MAP
    assert kernel.calls[request] == 2
    with pytest.raises(InvalidValue, match="ranges of memory are in use"):
        device.close()
    assert kernel.config(4, 2) == b"\2\0" and (2, 0) not in kernel.eventfds      # harmless already
    device.unpin(pin)
    device.free(buffer)
    device.close()
    device.close()
    assert open_files() == before


@pytest.mark.parametrize("kind", [vfio_access.IRQ_ERR, vfio_access.IRQ_REQ])
def test_error_and_removal_are_fatal(kind, tmp_path):
    kernel, before = FakeKernel(tmp_path), open_files()
    device = PciDevice(through_group(kernel, tmp_path))
    device.enable_interrupts(3)
    assert fatal_reason(device) != GONE
    os.eventfd_write(kernel.eventfds[kind, 0], 1)
    start = time.monotonic()
    assert device.wait(10**12) and time.monotonic() - start < 10
    assert kernel.config(4, 2) == b"\2\0"       # the driver frees memory of a card that is gone; this one is there
    assert device.read32(0x24) == ALL_ONES and device.read64(0) == (1 << 64) - 1 and fatal_reason(device) == GONE
    device.write32(8, 5)
    device.write64(16, 5)
    assert kernel.registers()[8:24] == bytes(16)
    device.close()
    assert kernel.calls[vfio_access.DEVICE_RESET] == 1 and open_files() == before


@WAYS
@pytest.mark.parametrize("request_", [vfio_access.DEVICE_SET_IRQS, vfio_access.DEVICE_RESET])
def test_a_failed_end_releases_everything(way, request_, tmp_path):
    kernel, before = FakeKernel(tmp_path), open_files()
    device = PciDevice(way(kernel, tmp_path))
    device.enable_interrupts(2)
    kernel.refused[request_] = errno.EIO
    with pytest.raises(PyverbsRDMAError):
        device.close()
    assert kernel.config(4, 2) == b"\2\0" and open_files() == before
    device.close()


@WAYS
@pytest.mark.parametrize(("request_", "code", "sentence"), [
    (vfio_access.DEVICE_GET_REGION_INFO, errno.EIO, "does not describe region 0"),
    (vfio_access.DEVICE_RESET, errno.EIO, "does not come out of its reset"),
    (vfio_access.DEVICE_RESET, errno.EINVAL, None), (vfio_access.DEVICE_RESET, errno.ENOTTY, None)])
def test_each_failing_step_is_a_sentence_and_leaves_nothing(way, request_, code, sentence, tmp_path):
    kernel, before = FakeKernel(tmp_path), open_files()
    kernel.refused[request_] = code
    if sentence is None:        # a function without that reset
        PciDevice(way(kernel, tmp_path)).close()
    else:
        with pytest.raises(PyverbsRDMAError, match=sentence) as failed:
            PciDevice(way(kernel, tmp_path))
        assert failed.value.error_code == code
    assert open_files() == before


@pytest.mark.parametrize(("way", "request_", "sentence"), [
    (through_group, vfio_access.GROUP_GET_DEVICE_FD, f"does not open the function {ADDRESS}"),
    (through_group, vfio.SET_IOMMU, "no IOMMU to this process"),
    (through_iommufd, vfio_access.DEVICE_BIND_IOMMUFD, "iommufd does not take the function"),
    (through_iommufd, vfio_access.DEVICE_ATTACH_IOMMUFD_PT, "iommufd does not take the function"),
    (through_iommufd, iommufd.IOAS_ALLOC, "gives no address space")])
def test_each_refused_step_of_the_kernel(way, request_, sentence, tmp_path):
    kernel, before = FakeKernel(tmp_path), open_files()
    kernel.refused[request_] = errno.EBUSY
    with pytest.raises(PyverbsRDMAError, match=sentence):
        way(kernel, tmp_path)
    assert open_files() == before


def test_too_few_vectors_and_no_mapping(tmp_path):
    kernel = FakeKernel(tmp_path)
    device = PciDevice(through_group(kernel, tmp_path))
    kernel.refused[vfio_access.DEVICE_SET_IRQS] = errno.EINVAL
    with pytest.raises(PyverbsRDMAError, match="no 4 MSI-X vectors"):
        device.enable_interrupts(4)
    device.close()
    with pytest.raises(PyverbsRDMAError, match="does not map BAR 0"):
        through_group(FakeKernel(tmp_path, flags=0), tmp_path)


def identity(va, length):
    return list(range(va, va + length, PAGE))


def test_a_function_without_an_iommu(tmp_path, monkeypatch):
    monkeypatch.setattr(resource_access, "u_dma_bufs", list)
    tree, before = FakeTree(tmp_path), open_files()
    path = tree.function(ADDRESS)
    from weft.driver.linux.mapper import PhysicalMapper
    mapper = PhysicalMapper(identity)
    device = PciDevice(ResourceAccess(SysfsFunction(ADDRESS, tree.sys), mapper))
    assert (path / "enable").read_text() == (path / "reset").read_text() == "1"
    assert (path / "config").read_bytes()[4:6] == b"\6\0"
    device.write32(8, 7)
    assert (path / "resource0").read_bytes()[8] == 7
    device.enable_interrupts(4)
    start = time.monotonic()
    assert device.wait(10**12) and time.monotonic() - start < 5      # it polls
    buffer = device.alloc(PAGE)
    assert buffer.physical() == buffer.va
    device.free(buffer)
    device.close()
    assert (path / "config").read_bytes()[4:6] == b"\2\0" and (path / "enable").read_text() == "0"
    assert open_files() == before
    (path / "resource0").unlink()
    with pytest.raises(PyverbsRDMAError, match=r"without an IOMMU: No such file.*`weft devices` names"):
        ResourceAccess(SysfsFunction(ADDRESS, tree.sys))
    assert open_files() == before


def test_a_group_without_an_iommu_has_interrupts_and_physical_addresses(tmp_path, monkeypatch):
    monkeypatch.setattr(vfio_access, "u_dma_bufs", list)
    kernel, before = FakeKernel(tmp_path), open_files()
    for name in ("vfio", "noiommu-7"):
        (tmp_path / name).write_bytes(b"")
    device = PciDevice(open_group(ADDRESS, "7", iommu=False, ioctl=kernel, container=str(tmp_path / "vfio"),
                                  groups=f"{tmp_path}/"))
    assert kernel.calls[vfio.SET_IOMMU] == 1 and device.for_programs.method is MappingMethod.LOCKED
    monkeypatch.setattr(device._memory.mapper, "_pages", identity)
    device.enable_interrupts(2)
    os.eventfd_write(kernel.eventfds[vfio_access.IRQ_MSIX, 1], 1)
    assert device.wait(10**12) and not device.wait(0) and not device.polls
    buffer = device.alloc(PAGE)
    assert buffer.physical() == buffer.va and not kernel.calls[vfio.MAP_DMA]
    device.free(buffer)
    device.close()
    assert open_files() == before


def test_the_first_possible_way_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(resource_access, "u_dma_bufs", list)
    taken = []
    monkeypatch.setattr(module, "open_group", lambda *given, **more: taken.append(given + tuple(more.items())))
    monkeypatch.setattr(module, "open_iommufd", lambda *given: taken.append(given))
    tree = FakeTree(tmp_path)
    path = tree.function(ADDRESS, driver="vfio-pci", group=7)
    open_access(ADDRESS, tree.sys, tree.dev / "iommu")
    (path / "vfio-dev/vfio3").mkdir(parents=True)
    open_access(ADDRESS, tree.sys, tree.dev / "iommu")          # a kernel without iommufd
    (tree.dev / "iommu").write_bytes(b"")
    open_access(ADDRESS, tree.sys, tree.dev / "iommu")
    assert taken == [(ADDRESS, "7"), (ADDRESS, "7"), ("vfio3",)]
    (path / "iommu_group/name").write_text("vfio-noiommu\n")
    open_access(ADDRESS, tree.sys, tree.dev / "iommu")
    assert taken[3:] == [(ADDRESS, "7", ("iommu", False))]
    tree.function("0000:04:00.0")
    access = open_access("0000:04:00.0", tree.sys, tree.dev / "iommu")
    assert isinstance(access, ResourceAccess) and not isinstance(access, VfioAccess)
    access.close()
    access.memory.close()


def test_a_function_that_is_no_card_is_not_touched(tmp_path):
    tree, before = FakeTree(tmp_path), open_files()
    path = tree.function(ADDRESS, device=0x1111)
    with pytest.raises(PyverbsRDMAError, match="is not a card; `weft devices`") as failed:
        open_access(ADDRESS, tree.sys, tree.dev / "iommu")
    assert failed.value.error_code == errno.ENODEV and open_files() == before
    assert (path / "enable").read_text() == "0" and (path / "reset").read_text() == ""


@pytest.mark.parametrize("broken", ["resource0", "config", "u-dma-buf"])
def test_a_function_that_cannot_be_opened_is_disabled_again(broken, tmp_path, monkeypatch):
    tree, before = FakeTree(tmp_path), open_files()
    path = tree.function(ADDRESS)
    if broken != "u-dma-buf":
        (path / broken).unlink()

    def refused():
        raise PyverbsRDMAError("/dev/udmabuf0 cannot be opened", errno.EACCES)

    monkeypatch.setattr(resource_access, "u_dma_bufs", refused if broken == "u-dma-buf" else list)
    with pytest.raises(PyverbsRDMAError, match="cannot be opened"):
        ResourceAccess(SysfsFunction(ADDRESS, tree.sys))
    assert open_files() == before and (path / "enable").read_text() == "0"
