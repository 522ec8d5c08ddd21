"""VFIO and iommufd: structures and numbers against the kernel's headers, and errors of every step."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.driver.linux import iommufd, vfio
from weft.driver.linux.libc import HUGE_2M, MADV_DOFORK, MADV_DONTFORK, MAP_HUGETLB, PAGE
from weft.driver.terms.errors import PyverbsRDMAError
from weft.tb.test.driver.linux.process_memory import FakeIommu
from weft.tb.test.system import need

PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
%s
int main(void) {
%s
    return 0;
}
"""
VFIO_NUMBERS = {
    "VFIO_GET_API_VERSION": vfio.GET_API_VERSION, "VFIO_CHECK_EXTENSION": vfio.CHECK_EXTENSION,
    "VFIO_SET_IOMMU": vfio.SET_IOMMU, "VFIO_GROUP_GET_STATUS": vfio.GROUP_GET_STATUS,
    "VFIO_GROUP_SET_CONTAINER": vfio.GROUP_SET_CONTAINER, "VFIO_IOMMU_MAP_DMA": vfio.MAP_DMA,
    "VFIO_IOMMU_UNMAP_DMA": vfio.UNMAP_DMA, "VFIO_TYPE1v2_IOMMU": vfio.TYPE1V2,
    "VFIO_GROUP_FLAGS_VIABLE": vfio.GROUP_VIABLE, "VFIO_DMA_MAP_FLAG_READ": vfio.READ,
    "VFIO_DMA_MAP_FLAG_WRITE": vfio.WRITE, "MADV_DONTFORK": MADV_DONTFORK, "MADV_DOFORK": MADV_DOFORK,
    "MAP_HUGETLB": MAP_HUGETLB, "(21 << MAP_HUGE_SHIFT)": HUGE_2M}
IOMMUFD_NUMBERS = {
    "IOMMU_DESTROY": iommufd.DESTROY, "IOMMU_IOAS_ALLOC": iommufd.IOAS_ALLOC, "IOMMU_IOAS_MAP": iommufd.IOAS_MAP,
    "IOMMU_IOAS_UNMAP": iommufd.IOAS_UNMAP, "IOMMU_IOAS_MAP_FIXED_IOVA": iommufd.FIXED_IOVA,
    "IOMMU_IOAS_MAP_WRITEABLE": iommufd.WRITEABLE, "IOMMU_IOAS_MAP_READABLE": iommufd.READABLE}


def shape(layout):
    """Return the size of a structure, then the offset of each of its fields."""
    return [layout.size_bytes, *(layout.offset_of(field.name) // 8 for field in layout.fields
                                 if not field.name.startswith("_"))]


def values_of_the_compiler(header, numbers, layouts, folder):
    """Return the values of constants, then the :func:`shape` of each structure, as a C compiler computes them."""
    lines = [f'printf("%llu\\n", (unsigned long long)({name}));' for name in numbers]
    for layout in layouts:
        lines.append(f'printf("%zu\\n", sizeof(struct {layout.name}));')
        lines += [f'printf("%zu\\n", offsetof(struct {layout.name}, {field.name}));' for field in layout.fields
                  if not field.name.startswith("_")]
    (folder / "told.c").write_text(PROGRAM % (f"#include <{header}>", "\n".join(lines)))
    subprocess.run(["cc", "-D_GNU_SOURCE", "-o", folder / "told", folder / "told.c"], check=True)
    return [int(line) for line in subprocess.run([folder / "told"], capture_output=True, check=True).stdout.split()]


def test_vfio_matches_the_kernel_header(tmp_path):
    need("cc")
    layouts = [vfio.DMA_MAP, vfio.DMA_UNMAP, vfio.GROUP_STATUS]
    wanted = list(VFIO_NUMBERS.values()) + [number for layout in layouts for number in shape(layout)]
    header = "linux/vfio.h>\n#include <linux/mman.h"
    assert values_of_the_compiler(header, VFIO_NUMBERS, layouts, tmp_path) == wanted


def test_iommufd_matches_the_kernel_header(tmp_path):
    """Headers older than Linux 6.2 lack iommufd; the numbers are those of include/uapi/linux/iommufd.h."""
    layouts = [iommufd.ALLOC, iommufd.MAP, iommufd.UNMAP, iommufd.DESTROYED]
    assert [shape(layout) for layout in layouts] == [
        [12, 0, 4, 8], [40, 0, 4, 8, 16, 24, 32], [24, 0, 4, 8, 16], [8, 0, 4]]
    assert list(IOMMUFD_NUMBERS.values()) == [0x3B80, 0x3B81, 0x3B85, 0x3B86, 1, 2, 4]
    if Path("/usr/include/linux/iommufd.h").exists() and shutil.which("cc"):
        wanted = list(IOMMUFD_NUMBERS.values()) + [number for layout in layouts for number in shape(layout)]
        assert values_of_the_compiler("linux/iommufd.h", IOMMUFD_NUMBERS, layouts, tmp_path) == wanted


def test_mappings_of_iommufd():
    kernel, file = FakeIommu(), os.open("/dev/null", os.O_RDWR)
    mapper = iommufd.IommufdMapper(file, ioctl=kernel)
    assert mapper.ioas_id == 7
    assert mapper.map(5 * PAGE, 2 * PAGE) == [5 * PAGE, 6 * PAGE] and kernel.mapped == {5 * PAGE: 2 * PAGE}
    with pytest.raises(PyverbsRDMAError, match="part of it is mapped already"):
        mapper.map(6 * PAGE, PAGE)
    mapper.unmap(5 * PAGE, 2 * PAGE)
    mapper.close()
    assert not kernel.mapped and kernel.calls[iommufd.DESTROY] == 1
    kernel.refuse = errno.EPERM
    with pytest.raises(PyverbsRDMAError, match="no address space"):
        iommufd.IommufdMapper(file, ioctl=kernel)


def test_missing_iommufd_or_vfio_raises_a_sentence(tmp_path):
    with pytest.raises(PyverbsRDMAError, match="there is no iommufd"):
        iommufd.IommufdMapper.open(tmp_path / "iommu")
    with pytest.raises(PyverbsRDMAError, match="there is no VFIO"):
        vfio.open_container(3, container=str(tmp_path / "vfio"))


class FakeVfio:
    """Stand-in for /dev/vfio with given answers, which rejects the request ``refused``."""

    def __init__(self, answers, refused=None):
        self.answers, self.refused, self.asked = answers, refused, []

    def __call__(self, file, request, argument=0):
        self.asked.append(request)
        if request == self.refused:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        if request == vfio.GROUP_GET_STATUS:
            argument[:] = vfio.GROUP_STATUS.pack(argsz=8, flags=self.answers[request])
            return 0
        return self.answers.get(request, 0)


GOOD = {vfio.CHECK_EXTENSION: 1, vfio.GROUP_GET_STATUS: 1}


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("answers", "refused", "sentence"), [
    ({vfio.GET_API_VERSION: 1}, None, "another version"),
    ({vfio.CHECK_EXTENSION: 0}, None, "no IOMMU of type 1"),
    ({vfio.GROUP_GET_STATUS: 0}, None, "not bound to vfio-pci"),
    ({}, vfio.GROUP_GET_STATUS, "reports no status"),
    ({}, vfio.GROUP_SET_CONTAINER, "is in use"),
    ({}, vfio.SET_IOMMU, "gives no IOMMU"),
    (None, None, "cannot be opened")])
def test_each_failed_step_raises_a_sentence(tmp_path, answers, refused, sentence):
    (tmp_path / "vfio").write_text("")
    if answers is not None:
        (tmp_path / "3").write_text("")
    kernel, before = FakeVfio(GOOD | (answers or {}), refused), open_files()
    with pytest.raises(PyverbsRDMAError, match=sentence):
        vfio.open_container(3, ioctl=kernel, container=str(tmp_path / "vfio"), groups=f"{tmp_path}/")
    assert open_files() == before


def test_the_steps_to_a_container(tmp_path):
    for name in ("vfio", "3"):
        (tmp_path / name).write_text("")
    kernel = FakeVfio(GOOD)
    mapper, group = vfio.open_container(3, ioctl=kernel, container=str(tmp_path / "vfio"), groups=f"{tmp_path}/")
    assert kernel.asked == [vfio.GET_API_VERSION, vfio.CHECK_EXTENSION, vfio.GROUP_GET_STATUS,
                            vfio.GROUP_SET_CONTAINER, vfio.SET_IOMMU]
    os.close(group)
    mapper.close()
