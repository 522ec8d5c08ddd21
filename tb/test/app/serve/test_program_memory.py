"""Tests of programs' memory as the card accesses it: parts of files that contain the programs' data."""

import fcntl
import mmap
import os
import random

import pytest

from weft.driver.device.page_table import page_list
from weft.driver.serve.program_memory import PAGE, Pieces, SharedFile
from weft.driver.terms.errors import InUse, InvalidValue
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop


@pytest.fixture
def device():
    return FunctionalDevice(EventLoop())


def sealed(size, seals=fcntl.F_SEAL_SHRINK):
    """Return a sealed file like a program's."""
    file = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.truncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


def test_both_sides_see_what_either_writes(device):
    rng = random.Random(1)
    files = [sealed(4 * PAGE), sealed(2 * PAGE)]
    theirs = [mmap.mmap(file, 0) for file in files]
    shared = [SharedFile(device, file, size) for file, size in zip(files, (4 * PAGE, 2 * PAGE), strict=True)]
    # Three pages of the first file, one of the second, and the first page of the first again.
    whole = Pieces(0x7000_0000, [(shared[0], PAGE, 3 * PAGE), (shared[1], PAGE, PAGE), (shared[0], 0, PAGE)])
    assert whole.size == 5 * PAGE
    for _ in range(200):
        at = rng.randrange(5 * PAGE)
        data = rng.randbytes(rng.randrange(1, 5 * PAGE - at + 1))
        whole.write(at, data)
        assert whole.read(at, len(data)) == data
        seen = theirs[0][PAGE:] + theirs[1][PAGE:] + theirs[0][:PAGE]
        assert seen[at : at + len(data)] == data
        assert device.memory.read(whole.physical(at), 1) == data[:1]
        theirs[1][PAGE + at % PAGE] ^= 255
        assert whole.read(3 * PAGE + at % PAGE, 1)[0] == theirs[1][PAGE + at % PAGE]
    for file in shared:
        file.close()
    assert not device.memory._pages


LARGE = 2 << 20


@pytest.mark.parametrize(("va", "pieces", "large"), [
    (5 * LARGE + 3 * PAGE, [(0, 3 * PAGE, 2 * LARGE)], True),                 # aligned as in the file
    (5 * LARGE + 3 * PAGE, [(0, 2 * PAGE, 2 * LARGE)], False),                # not aligned
    (LARGE, [(0, 0, 2 * LARGE), (0, LARGE, LARGE)], True),
    (LARGE, [(0, 0, LARGE + PAGE), (0, LARGE + PAGE, PAGE)], False),          # two pieces in a large page
    (LARGE, [(0, 0, LARGE), (1, 0, PAGE)], False)])                           # the second file is small
def test_large_pages_where_range_and_file_lie_alike(device, va, pieces, large):
    rng = random.Random(2)
    files = [SharedFile(device, sealed(size), size) for size in (3 * LARGE + 5 * PAGE, PAGE)]
    whole = Pieces(va, [(files[number], offset, length) for number, offset, length in pieces])
    assert whole.page_bytes == (LARGE if large else PAGE)
    assert pick(whole) == whole.page_bytes
    for at in [rng.randrange(whole.size) for _ in range(20)]:
        data = rng.randbytes(min(3 * PAGE, whole.size - at))
        whole.write(at, data)
        page = page_list(whole, va + at, 1, whole.page_bytes)[0]
        assert device.memory.read(page + (va + at) % whole.page_bytes, 1) == data[:1]
    for file in files:
        file.close()
    assert not device.memory._pages


def pick(buffer):
    """Return the page size that a page list of the buffer can have."""
    try:
        page_list(buffer, buffer.va, buffer.size, LARGE)
    except ValueError:
        return PAGE
    return buffer.page_bytes


@pytest.mark.parametrize(("size", "seals"), [(PAGE, 0), *(
    (size, fcntl.F_SEAL_SHRINK) for size in (0, 100, 2 * PAGE, 1 << 50))])
def test_a_file_that_might_shrink_or_is_none_is_refused(device, size, seals):
    with pytest.raises(InvalidValue):
        SharedFile(device, sealed(PAGE, seals), size)
    with pytest.raises(InvalidValue):
        SharedFile(device, os.open(__file__, os.O_RDONLY), PAGE)
    assert not device.memory._pages


@pytest.mark.parametrize(("offset", "length"), [(1, PAGE), (0, 5), (0, 0), (PAGE, PAGE), (-PAGE, PAGE), (0, 2 * PAGE)])
def test_a_piece_that_leaves_its_file_is_refused(device, offset, length):
    file = SharedFile(device, sealed(PAGE), PAGE)
    with pytest.raises(InvalidValue):
        Pieces(0, [(file, offset, length)])


def test_a_file_stays_as_long_as_a_region_has_a_piece_of_it(device):
    file = SharedFile(device, sealed(PAGE), PAGE)
    pieces = Pieces(0, [(file, 0, PAGE)])
    pieces.use(1)
    with pytest.raises(InUse):
        file.close()
    pieces.use(-1)
    file.close()
