"""Functional card whose host memory is the memory of this process, at the addresses that a mapper returned."""

import ctypes
import errno
from collections import Counter

from weft.driver.linux.iommufd import ALLOC, IOAS_ALLOC, IOAS_MAP, IOAS_UNMAP, MAP, UNMAP
from weft.driver.linux.libc import PAGE
from weft.driver.linux.memory import LinuxMemory
from weft.driver.linux.vfio import DMA_MAP, DMA_UNMAP, MAP_DMA, UNMAP_DMA
from weft.model.functional.host import FunctionalDevice
from weft.model.functional.memory import AccessError


class FakeIommu:
    """Stand-in for the mappings of the kernel's VFIO and iommufd.

    A mapped range cannot be mapped again, and is unmapped exactly as it was mapped.

    Attributes
    ----------
    mapped : dict of int to int
        Length by IOVA.
    calls : Counter
    """

    def __init__(self):
        self.mapped, self.calls, self.refuse = {}, Counter(), None

    def __call__(self, file, request, argument):
        self.calls[request] += 1
        if self.refuse is not None:
            raise OSError(self.refuse, "refused")
        if request == IOAS_ALLOC:
            argument[:] = ALLOC.pack(size=ALLOC.size_bytes, out_ioas_id=7)
        elif request in (MAP_DMA, IOAS_MAP):
            fields = (DMA_MAP if request == MAP_DMA else MAP).unpack(argument)
            length, va = (fields.size, fields.vaddr) if request == MAP_DMA else (fields.length, fields.user_va)
            assert va == fields.iova and not va % PAGE and not length % PAGE and length
            if any(start < fields.iova + length and fields.iova < start + size for start, size in self.mapped.items()):
                raise OSError(errno.EEXIST, "File exists")
            self.mapped[fields.iova] = length
        elif request in (UNMAP_DMA, IOAS_UNMAP):
            fields = (DMA_UNMAP if request == UNMAP_DMA else UNMAP).unpack(argument)
            length = fields.size if request == UNMAP_DMA else fields.length
            assert self.mapped.pop(fields.iova) == length


class Recorder:
    """Mapper that records the virtual address of each page that the card can access."""

    def __init__(self, mapper):
        self._mapper, self.contiguous, self.close = mapper, mapper.contiguous, mapper.close
        self.places, self._pages = {}, {}

    def map(self, va, length):
        pages = self._mapper.map(va, length)
        self._pages[va] = pages
        self.places.update({page: va + number * PAGE for number, page in enumerate(pages)})
        return pages

    def unmap(self, va, length):
        for page in self._pages.pop(va):
            del self.places[page]
        self._mapper.unmap(va, length)


class ProcessMemory:
    """Host memory of a functional card, in this process.

    Attributes
    ----------
    linux : LinuxMemory
    """

    def __init__(self, mapper, regions=()):
        self._recorder = Recorder(mapper)
        self.linux = LinuxMemory(self._recorder, regions)
        self._fixed = {region.physical + at: region.va + at for region in regions for at in range(0, region.size, PAGE)}

    def _walk(self, address, length):
        while length:
            page = address // PAGE * PAGE
            va = self._recorder.places.get(page) or self._fixed.get(page)
            if va is None:
                raise AccessError(f"access to {address:#x}, which is not mapped")
            count = min(length, page + PAGE - address)
            yield va + address - page, count
            address, length = address + count, length - count

    def read(self, address, length):
        return b"".join(ctypes.string_at(va, count) for va, count in self._walk(address, length))

    def read_ahead(self, address, length, _most):
        return self.read(address, length)

    def write(self, address, data):
        done = 0
        for va, count in self._walk(address, len(data)):
            ctypes.memmove(va, bytes(data[done : done + count]), count)
            done += count


class ProcessDevice(FunctionalDevice):
    """Functional card in this process.

    Parameters
    ----------
    loop : EventLoop
    memory : ProcessMemory
    """

    def __init__(self, loop, memory, **options):
        self.memory_type = lambda seed: memory
        super().__init__(loop, **options)

    def alloc(self, size, **options):
        return self.memory.linux.alloc(size, **options)

    def free(self, buffer):
        self.memory.linux.free(buffer)

    def pin(self, address, length):
        return self.memory.linux.pin(address, length)

    def unpin(self, buffer):
        self.memory.linux.unpin(buffer)

    def map(self, fd, offset, size):
        return self.memory.linux.map(fd, offset, size)

    def buffer_at(self, va, length):
        return self.memory.linux.buffer_at(va, length)
