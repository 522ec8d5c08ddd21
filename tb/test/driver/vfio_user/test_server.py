"""Every command of the protocol, with possible and impossible fields."""

import errno
import os
import struct

import pytest

from weft.driver.vfio_user import messages as wire
from weft.driver.vfio_user.messages import Command, Flag, Irq, IrqSet, Region, Violation, version_body
from weft.hdl.contract import abi
from weft.tb.test.driver.vfio_user.scratch_card import Bench
from weft.tb.verify.linux.client import (
    BOTH,
    QEMU,
    access_body,
    irq_body,
    map_body,
    memfd,
    unmap_body,
)

OFFSET = abi.REGISTER["reorder_distance"].offset


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_version_comes_first_and_once():
    bench = Bench(capabilities=None)
    with pytest.raises(Violation, match="first message"):
        bench.send(Command.DEVICE_RESET)
    error, body = bench.call(Command.VERSION, version_body(QEMU, minor=3))
    assert not error and wire.parse_version(body) == (0, 0, wire.negotiated(QEMU))
    with pytest.raises(Violation, match="first message"):
        bench.send(Command.VERSION, version_body(QEMU))
    with pytest.raises(Violation, match=r"version 1\.0"):
        Bench(capabilities=None).send(Command.VERSION, version_body(QEMU, major=1))


def test_replies_are_violations_and_unknown_commands_errors():
    bench = Bench()
    with pytest.raises(Violation, match="a reply arrived"):
        bench.send(Command.DMA_READ, flags=Flag.REPLY)
    for command in (0, 6, 11, 12, 14, 16, 17, 18, 19, 0xFFFF):
        assert bench.call(command, b"some bytes") == (errno.EOPNOTSUPP, b"")
    assert bench.server.refused == 10


def test_properties_of_the_function():
    bench = Bench()
    assert bench.call(Command.DEVICE_GET_INFO, bytes(16)) == (0, struct.pack("<4I", 16, 3, 9, 5))
    for index in range(9):
        size = {0: abi.BAR_BYTES, Region.CONFIG: 4096}.get(index, 0)
        asked = wire.REGION_INFO.pack(argsz=32, index=index)
        assert bench.call(Command.DEVICE_GET_REGION_INFO, asked) == (
            0, struct.pack("<4I2Q", 32, 3 if size else 0, index, 0, size, 0))
    for index in range(5):
        count = {Irq.MSIX: 8, Irq.ERR: 1}.get(index, 0)
        asked = wire.IRQ_INFO.pack(argsz=16, index=index)
        assert bench.call(Command.DEVICE_GET_IRQ_INFO, asked) == (0, struct.pack("<4I", 16, bool(count), index, count))
    for command, layout, index in ((Command.DEVICE_GET_REGION_INFO, wire.REGION_INFO, 9),
                                   (Command.DEVICE_GET_IRQ_INFO, wire.IRQ_INFO, 5)):
        assert bench.call(command, layout.pack(index=index)) == (errno.EINVAL, b"")
        assert bench.call(command, layout.pack()[:-1]) == (errno.EINVAL, b"")


def test_memory_with_and_without_descriptor():
    bench, before = Bench(), open_files()
    file = memfd(4 * wire.PAGE)
    assert bench.call(Command.DMA_MAP, map_body(0x10000, 0x4000), [os.dup(file)]) == (0, b"")
    assert bench.call(Command.DMA_MAP, map_body(0x11000, 0x1000), [os.dup(file)]) == (errno.EEXIST, b"")
    assert bench.call(Command.DMA_MAP, map_body(0xFFFC0000, 0x40000, flags=1)) == (0, b"")       # a ROM, as of QEMU
    assert bench.call(Command.DMA_MAP, map_body(0x20000, 0x1000), [os.dup(file), os.dup(file)])[0] == errno.EINVAL
    assert bench.call(Command.DMA_MAP, b"short", [os.dup(file)])[0] == errno.EINVAL
    assert len(bench.function.dma) == 2
    gone = unmap_body(0x11000, 0x1000)
    assert bench.call(Command.DMA_UNMAP, gone) == (errno.EINVAL, b"")       # part of a range
    for body in (unmap_body(0, 1 << 63), unmap_body(1 << 63, (1 << 63) - 1), unmap_body(0, 0x1000)):
        assert bench.call(Command.DMA_UNMAP, body) == (0, body)
    assert not len(bench.function.dma)
    os.close(file)
    assert open_files() == before


def test_all_memory_is_unmapped_at_once():
    """QEMU does so for a section of 2^64 bytes, whose size no field holds."""
    bench, before = Bench(), open_files()
    for page in (0, 5, (1 << 52) - 1):
        assert bench.call(Command.DMA_MAP, map_body(page << 12, wire.PAGE), [memfd(wire.PAGE)]) == (0, b"")
    for impossible in (unmap_body(0, wire.PAGE, wire.UNMAP_ALL), unmap_body(wire.PAGE, 0, wire.UNMAP_ALL),
                       unmap_body(0, 0, wire.UNMAP_ALL | 1), unmap_body(0, 0, 1)):
        assert bench.call(Command.DMA_UNMAP, impossible) == (errno.EINVAL, b"")
    assert len(bench.function.dma) == 3
    every = unmap_body(0, 0, wire.UNMAP_ALL)
    assert bench.call(Command.DMA_UNMAP, every) == (0, every)
    assert not len(bench.function.dma) and open_files() == before


def test_eventfds_are_set_replaced_and_released():
    bench, before = Bench(), open_files()
    files = [os.eventfd(0) for _ in range(3)]
    assert bench.call(Command.DEVICE_SET_IRQS, irq_body(Irq.MSIX, 2, 3), [os.dup(file) for file in files]) == (0, b"")
    assert bench.function.interrupts.signal(Irq.MSIX, 3) and os.eventfd_read(files[1]) == 1
    assert not bench.function.interrupts.signal(Irq.MSIX, 1)
    assert bench.call(Command.DEVICE_SET_IRQS, irq_body(Irq.MSIX, 3, 1), [os.dup(files[0])]) == (0, b"")
    assert bench.function.interrupts.signal(Irq.MSIX, 3) and os.eventfd_read(files[0]) == 1
    assert bench.call(Command.DEVICE_SET_IRQS, irq_body(Irq.MSIX, 3, 1)) == (0, b"")     # no descriptor: released
    assert not bench.function.interrupts.signal(Irq.MSIX, 3) and len(bench.function.interrupts) == 2
    assert bench.call(Command.DEVICE_SET_IRQS, irq_body(Irq.ERR, 0, 1), [os.dup(files[0])]) == (0, b"")
    none = irq_body(Irq.MSIX, 0, 0, IrqSet.DATA_NONE | IrqSet.ACTION_TRIGGER)
    assert bench.call(Command.DEVICE_SET_IRQS, none) == (0, b"") and len(bench.function.interrupts) == 1
    # A full counter neither blocks the server nor is an error.
    assert bench.call(Command.DEVICE_SET_IRQS, irq_body(Irq.MSIX, 0, 1), [os.dup(files[2])]) == (0, b"")
    os.eventfd_write(files[2], (1 << 64) - 2)
    assert bench.function.interrupts.signal(Irq.MSIX, 0)
    bench.function.disconnected()
    assert open_files() == before + 3
    for file in files:
        os.close(file)


@pytest.mark.parametrize(("fields", "code"), [
    ((Irq.MSIX, 8, 1), errno.EINVAL), ((Irq.MSIX, 0, 9), errno.EINVAL), ((Irq.MSIX, 0xFFFF_FFFF, 1), errno.EINVAL),
    ((Irq.MSIX, 0, 2), errno.EINVAL), ((Irq.INTX, 0, 1), errno.EINVAL), ((7, 0, 1), errno.EINVAL),
    ((Irq.MSIX, 0, 1, IrqSet.DATA_BOOL | IrqSet.ACTION_TRIGGER), errno.EOPNOTSUPP),
    ((Irq.MSIX, 0, 1, IrqSet.DATA_EVENTFD | IrqSet.ACTION_MASK), errno.EOPNOTSUPP),
    ((Irq.MSIX, 0, 1, 0xFFFF_FFFF), errno.EOPNOTSUPP)])
def test_impossible_interrupts_are_rejected(fields, code):
    bench, before = Bench(), open_files()
    assert bench.call(Command.DEVICE_SET_IRQS, irq_body(*fields), [os.eventfd(0)]) == (code, b"")
    assert bench.call(Command.DEVICE_SET_IRQS, irq_body(*fields)[:19], [os.eventfd(0)]) == (errno.EINVAL, b"")
    assert open_files() == before and not len(bench.function.interrupts)


def test_only_eventfds_are_signalled():
    bench, before = Bench(), open_files()
    read, write = os.pipe()
    for file in (read, write, os.open(os.devnull, os.O_RDWR)):
        assert bench.call(Command.DEVICE_SET_IRQS, irq_body(Irq.MSIX, 0, 1), [file])[0] == errno.EINVAL
    assert open_files() == before


def test_accesses_with_and_without_reply():
    bench = Bench()
    bench.enable()
    body = access_body(Region.BAR0, OFFSET, 4, b"abcd")
    assert bench.call(Command.REGION_WRITE, body) == (0, body[:16])
    assert bench.call(Command.REGION_READ, body[:16]) == (0, body)
    posted = access_body(Region.BAR0, OFFSET, 4, b"efgh")
    assert bench.send(Command.REGION_WRITE, posted, flags=Flag.NO_REPLY) is None
    assert bench.call(Command.REGION_READ, body[:16]) == (0, posted)
    assert bench.call(Command.REGION_READ, access_body(Region.CONFIG, 0, 4096))[1][16:18] == b"\x34\x12"
    assert bench.call(Command.DEVICE_RESET) == (0, b"") and bench.function.counters["resets"] == 1
    assert bench.call(Command.DEVICE_RESET, b"0")[0] == errno.EINVAL


@pytest.mark.parametrize(("region", "offset", "count"), [
    (1, 0, 4), (6, 0, 4), (8, 0, 4), (9, 0, 4), (0xFFFF_FFFF, 0, 4), (0, abi.BAR_BYTES, 4), (0, abi.BAR_BYTES - 3, 4),
    (0, (1 << 64) - 4, 4), (0, 0, 0), (0, 0, 0xFFFF_FFFF), (7, 4093, 4)])
def test_accesses_outside_of_regions_are_rejected(region, offset, count):
    bench = Bench()
    assert bench.call(Command.REGION_READ, access_body(region, offset, count)) == (errno.EINVAL, b"")
    data = bytes(min(count, 4))
    assert bench.call(Command.REGION_WRITE, access_body(region, offset, count, data)) == (errno.EINVAL, b"")
    assert bench.send(Command.REGION_WRITE, access_body(region, offset, count, data), flags=Flag.NO_REPLY) is None
    assert bench.call(Command.REGION_WRITE, access_body(Region.BAR0, OFFSET, 4, b"abc"))[0] == errno.EINVAL
    assert bench.call(Command.REGION_READ, bytes(15))[0] == errno.EINVAL
    assert bench.server.refused == 5 and not bench.card.registers


def multi(*writes, count=None):
    body = wire.WRITE_MULTI.pack(wr_cnt=len(writes) if count is None else count)
    return body + b"".join(access_body(region, offset, size, data.ljust(8, b"\0"))
                           for region, offset, size, data in writes)


def test_batched_writes_are_executed_in_order():
    bench = Bench()
    bench.enable()
    writes = [(0, OFFSET, 4, n.to_bytes(4, "little")) for n in range(200)]
    assert bench.send(Command.REGION_WRITE_MULTI, multi(*writes), flags=Flag.NO_REPLY) is None
    assert bench.card.registers == {OFFSET: 199}
    bad = multi((0, OFFSET, 4, b"\1"), (0, OFFSET, 9, b""), (0, OFFSET, 4, b"\2"))
    assert bench.call(Command.REGION_WRITE_MULTI, bad) == (errno.EINVAL, b"")
    assert bench.card.registers == {OFFSET: 1}
    for body in (b"", multi(*writes, count=201), multi(*writes, count=1 << 63), multi(*writes)[:-1]):
        assert bench.call(Command.REGION_WRITE_MULTI, body) == (errno.EINVAL, b"")
    without = Bench(capabilities={})
    assert without.call(Command.REGION_WRITE_MULTI, multi(*writes)) == (errno.EOPNOTSUPP, b"")


def test_the_client_limits_the_length_of_an_access():
    bench = Bench(capabilities={"max_data_xfer_size": 64, "max_dma_maps": 1})
    assert bench.call(Command.REGION_READ, access_body(Region.CONFIG, 0, 64))[0] == 0
    assert bench.call(Command.REGION_READ, access_body(Region.CONFIG, 0, 65))[0] == errno.EINVAL
    assert bench.call(Command.DMA_MAP, map_body(0, wire.PAGE, flags=BOTH))[0] == 0
    assert bench.call(Command.DMA_MAP, map_body(wire.PAGE, wire.PAGE))[0] == errno.ENOSPC
