"""Memory of a client: every range against a model, and files that a client damages."""

import contextlib
import errno
import fcntl
import os
import random

import pytest

from weft.driver.vfio_user import dma
from weft.driver.vfio_user.dma import DmaError, DmaMap, Unmapped
from weft.driver.vfio_user.messages import PAGE, READABLE, WRITEABLE
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.linux.client import BOTH, memfd

PAGES = 64


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(params=[True, False], ids=["sealed", "not sealed"])
def arena(request):
    """Descriptor of shared memory, which the test keeps."""
    file = memfd(PAGES * PAGE, sealed=request.param)
    yield file
    os.close(file)


def outcome_of(call, *arguments):
    """Return the error code of a call, or 0. A file that is the last argument is closed if it is not taken."""
    try:
        call(*arguments)
    except DmaError as error:
        if len(arguments) == 5 and arguments[-1] is not None:
            os.close(arguments[-1])
        return error.errno
    return 0


def test_random_ranges_agree_with_a_model(arena):
    """The model has the page of the file, and the flags, of each mapped page."""
    seed = drawn_seed()
    print(f"run again: WEFT_SEED={seed} pytest tb/test/driver/vfio_user/test_dma.py -k random")
    rng, before = random.Random(seed), open_files()
    space, model, outcomes = DmaMap(), {}, set()
    for _ in range(3000):
        at, count = rng.randrange(PAGES), rng.choice([1, 1, 2, 5])
        pages = range(at, at + count)
        if rng.random() < 0.4:
            offset, flags = rng.randrange(PAGES + 4 - count), rng.choice([READABLE, WRITEABLE, BOTH])
            shared = rng.random() < 0.9
            code = outcome_of(space.add, at * PAGE, count * PAGE, offset * PAGE, flags,
                              os.dup(arena) if shared else None)
            outcomes.add(code)
            overlaps = any(page in model for page in pages)
            assert code == (errno.EEXIST if overlaps else errno.EINVAL if shared and offset + count > PAGES else 0)
            if code:
                continue
            model.update({page: (page - at + offset if shared else None, flags, pages) for page in pages})
        elif rng.random() < 0.3:
            touched = {each for page in pages if page in model for each in [model[page][2]]}
            before_it, part = len(space), any(each.start < at or each.stop > at + count for each in touched)
            assert outcome_of(space.remove, at * PAGE, count * PAGE) == part * errno.EINVAL
            outcomes.add("part" if part else "removed" if touched else "nothing removed")
            if not part:
                assert before_it - len(space) == len(touched)
                model = {page: each for page, each in model.items() if each[2] not in touched}
        else:
            address = at * PAGE + rng.randrange(PAGE)
            data = rng.randbytes(rng.choice([1, 8, 9, 64, 65, 3000, 9000]))
            touched = range(address // PAGE, (address + len(data) - 1) // PAGE + 1)
            for flag in (READABLE, WRITEABLE):
                good = all(model.get(page, (None, 0))[0] is not None and model[page][1] & flag for page in touched)
                outcomes.add((flag, good, len(touched) > 1))
                if not good:
                    with pytest.raises(Unmapped):
                        space.read(address, len(data)) if flag == READABLE else space.write(address, data)
                    continue
                if flag == WRITEABLE:
                    space.write(address, data)
                there = b"".join(os.pread(arena, PAGE, model[page][0] * PAGE) for page in touched)
                there = there[address % PAGE:][:len(data)]
                if flag == READABLE:
                    assert space.read(address, len(data)) == there
                elif len({model[page][0] for page in touched}) == len(touched):     # no page of the file twice
                    assert there == data
        assert len(space) == len({each for _, _, each in model.values()})
    assert outcomes >= {0, "removed", "nothing removed", "part", errno.EEXIST, errno.EINVAL}
    assert outcomes >= {(flag, good, several) for flag in (READABLE, WRITEABLE) for good in (False, True)
                        for several in (False, True)}
    space.clear()
    assert not len(space) and not space.files and open_files() == before


def test_each_file_is_kept_once(arena):
    space, before = DmaMap(), open_files()
    for page in range(PAGES):
        space.add(page * PAGE, PAGE, (PAGES - 1 - page) * PAGE, BOTH, os.dup(arena))
    assert space.files == 1 and open_files() == before + 1
    assert space.remove(0, 1 << 64) == PAGES and open_files() == before


def test_limits(arena, monkeypatch):
    before, space = open_files(), DmaMap()
    space.limit = 3
    for page in range(3):
        space.add(page * PAGE, PAGE, 0, BOTH, os.dup(arena))
    assert outcome_of(space.add, 9 * PAGE, PAGE, 0, BOTH, os.dup(arena)) == errno.ENOSPC
    space.clear()
    monkeypatch.setattr(dma, "SHARED_FILES_MAX", 2)
    for page in range(2):
        space.add(page * PAGE, PAGE, 0, BOTH, memfd(PAGE))
    assert outcome_of(space.add, 2 * PAGE, PAGE, 0, BOTH, memfd(PAGE)) == errno.ENOSPC
    space.clear()
    monkeypatch.setattr(dma, "FILE_BYTES_MAX", PAGE)
    assert outcome_of(space.add, 0, PAGE, 0, BOTH, memfd(2 * PAGE)) == errno.EINVAL
    assert open_files() == before


@pytest.mark.parametrize("values", [
    (0, 0, 0, 3), (1, PAGE, 0, 3), (0, PAGE + 1, 0, 3), (0, PAGE, 1, 3), (0, PAGE, 0, 0), (0, PAGE, 0, 4),
    (0, PAGE, PAGES * PAGE, 3), ((1 << 64) - PAGE, 2 * PAGE, 0, 3), (0, PAGE, (1 << 64) - PAGE, 3)])
def test_impossible_ranges_are_rejected(arena, values):
    space, before = DmaMap(), open_files()
    assert outcome_of(space.add, *values, os.dup(arena)) == errno.EINVAL
    assert not len(space) and open_files() == before
    space.add((1 << 64) - PAGE, PAGE, (PAGES - 1) * PAGE, BOTH, os.dup(arena))
    space.write((1 << 64) - 8, b"the last")
    assert os.pread(arena, 8, PAGES * PAGE - 8) == b"the last"
    with pytest.raises(Unmapped):
        space.read((1 << 64) - 4, 8)
    space.clear()


def test_files_that_may_block_or_end_the_server_are_rejected(tmp_path):
    before, space = open_files(), DmaMap()
    ordinary = tmp_path / "file"
    ordinary.write_bytes(bytes(PAGE))
    made = [*os.pipe(), os.open("/dev/zero", os.O_RDWR), os.open(tmp_path, os.O_RDONLY), os.eventfd(0)]
    readonly = memfd(PAGE)
    made.append(os.open(f"/proc/self/fd/{readonly}", os.O_RDONLY))
    os.close(readonly)
    made.append(os.open(ordinary, os.O_RDWR))
    with contextlib.suppress(OSError):
        fcntl.fcntl(made[-1], dma._GET_SEALS)
        os.close(made.pop())                # the folder is in shared memory
    for file in made:
        assert outcome_of(space.add, 0, PAGE, 0, BOTH, file) == errno.EINVAL
    assert open_files() == before


def test_file_that_shrinks_is_no_memory_any_more():
    file, space = memfd(2 * PAGE, sealed=False), DmaMap()
    space.add(0, 2 * PAGE, 0, BOTH, os.dup(file))
    os.truncate(file, PAGE + 4)
    space.write(PAGE, b"here")
    assert space.read(PAGE, 4) == b"here"
    for call in (lambda: space.read(PAGE, 8), lambda: space.write(PAGE, bytes(8)), lambda: space.read(PAGE - 8, 16)):
        with pytest.raises(Unmapped, match="ends before"):
            call()
    assert os.fstat(file).st_size == PAGE + 4      # and a write does not make it longer
    space.clear()
    os.close(file)


def test_file_that_shrinks_before_it_is_sealed_is_rejected(monkeypatch):
    before, space, file, original = open_files(), DmaMap(), memfd(4 * PAGE, sealed=False), fcntl.fcntl

    def shrunk(of, command, *arguments):
        if command == dma._GET_SEALS:
            os.truncate(of, PAGE)
            original(of, 1033, dma._SEAL_SHRINK)        # F_ADD_SEALS
        return original(of, command, *arguments)

    monkeypatch.setattr(fcntl, "fcntl", shrunk)
    assert outcome_of(space.add, 0, 4 * PAGE, 0, BOTH, file) == errno.EINVAL
    assert not len(space) and open_files() == before


def test_first_word_of_a_line_is_written_last(monkeypatch):
    stored, store = [], dma.SharedFile._store
    monkeypatch.setattr(dma.SharedFile, "_store", lambda self, at, data: stored.append((at, len(data))) or store(
        self, at, data))
    file, space = memfd(PAGE), DmaMap()
    space.add(0, PAGE, 0, BOTH, file)
    space.write(64, bytes(range(64)))
    assert stored == [(72, 56), (64, 8)] and space.read(64, 64) == bytes(range(64))
    space.clear()
