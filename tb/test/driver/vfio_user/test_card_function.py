"""A card as a PCI function: accesses of every size and alignment, DMA that the host forbids, interrupts, failures."""

import os

import pytest

from weft.driver.vfio_user.messages import PAGE, Irq
from weft.driver.vfio_user.simulated_function import REPORTS_MAX
from weft.hdl.contract import abi, pci
from weft.tb.test.driver.vfio_user.scratch_card import FAIL, RAISE, READ, WRITE, Bench
from weft.tb.verify.linux.client import BOTH, memfd

WIDE, NARROW = abi.REGISTER["nic_rx_buffer"].offset, abi.REGISTER["reorder_distance"].offset
ADDRESS = 0x7F00_0000_0000
LOST = 4


@pytest.fixture
def bench():
    """Function with a page of memory, which may access it."""
    bench = Bench()
    bench.file = memfd(PAGE)
    bench.function.dma.add(ADDRESS, PAGE, 0, BOTH, os.dup(bench.file))
    bench.enable()
    yield bench
    bench.function.disconnected()
    os.close(bench.file)


def test_reads_of_every_size_and_alignment(bench):
    image = bytes(range(0x10, 0x20))
    for at in range(0, 16, 8):
        bench.card.registers[NARROW + at] = int.from_bytes(image[at:at + 4], "little")
        bench.card.registers[NARROW + at + 4] = int.from_bytes(image[at + 4:at + 8], "little")
    refused = 0
    for offset in range(8):
        for count in range(1, 9):
            data = bench.function.region_read(0, NARROW + offset, count)
            if offset % 4 + count <= 4 or count == 8 and not offset:
                assert data == image[offset:offset + count]
            else:
                refused += 1
                assert data == b"\xff" * count
    assert bench.card.counters["host_refused"] == refused > 20
    assert bench.function.region_read(0, 0, 4096) == b"\xff" * 4096


def test_writes_of_every_size_and_alignment(bench):
    for offset in range(8):
        for count in range(1, 9):
            bench.card.registers.clear()
            before, data = bench.card.counters["host_refused"], bytes(range(1, count + 1))
            bench.function.region_write(0, NARROW + offset, data)
            if (count, offset % 4) == (4, 0):
                assert bench.card.registers == {NARROW + offset: 0x04030201}
            elif (count, offset) == (8, 0):
                assert bench.card.registers == {NARROW: 0x04030201, NARROW + 4: 0x08070605}
            else:
                assert not bench.card.registers and bench.card.counters["host_refused"] == before + 1


def test_halves_of_wide_registers(bench):
    bench.function.region_write(0, WIDE, bytes(range(1, 9)))
    bench.function.region_write(0, WIDE + 4, b"abcd")
    assert bench.card.registers[WIDE].to_bytes(8, "little") == b"\1\2\3\4abcd"
    bench.function.region_write(0, WIDE, b"efgh")
    assert bench.function.region_read(0, WIDE, 8) == b"efghabcd"
    assert bench.function.region_read(0, WIDE + 4, 4) == b"abcd" and bench.function.region_read(0, WIDE + 6, 1) == b"c"
    doorbell = abi.REGISTER["link_doorbell"].offset
    for half in (0, 4):
        bench.function.region_write(0, doorbell + half, b"1234")
    assert doorbell not in bench.card.registers
    bench.function.region_write(0, doorbell, b"12345678")
    assert bench.card.registers[doorbell] == int.from_bytes(b"12345678", "little")


def test_push_windows_take_whole_descriptors_and_doorbells(bench):
    base, whole = abi.PUSH_BASE + 3 * 64, bytes(range(64))
    bench.function.region_write(0, base, whole)
    assert bench.card.pushes == [(base, whole)] and not bench.card.registers
    for offset, count in ((0, 8), (8, 8), (1, 3), (32, 32), (4, 60)):
        bench.card.registers.clear()
        bench.function.region_write(0, base + offset, bytes(count))
        assert bench.card.registers == {base + offset: 0}
    assert len(bench.card.pushes) == 1 and not bench.card.counters["host_refused"]


def test_ring_sizes_have_a_limit(bench):
    offset = abi.REGISTER["send_log2"].offset
    bench.function.region_write(0, offset, (1 << 31 | 255).to_bytes(4, "little"))
    assert bench.card.registers[offset] == 1 << 31 | abi.RING_LOG2_MAX


def test_memory_space_disabled(bench):
    bench.enable(4)
    bench.function.region_write(0, NARROW, b"1234")
    assert bench.function.region_read(0, NARROW, 4) == b"\xff" * 4 and not bench.card.registers


def test_dma_reaches_mapped_memory_only(bench):
    os.pwrite(bench.file, b"original", 16)
    assert bench.dma(READ, ADDRESS + 16) == int.from_bytes(b"original", "little")
    bench.dma(WRITE, ADDRESS + 24, int.from_bytes(b"by card!", "little"))
    assert os.pread(bench.file, 16, 16) == b"originalby card!"
    assert not bench.function.counters["unsupported_requests"] and not bench.get("status") & LOST
    # A write is posted: it vanishes, and the card continues.
    bench.dma(WRITE, ADDRESS + PAGE)
    bench.dma(WRITE, ADDRESS + PAGE - 4)
    assert bench.function.counters["unsupported_requests"] == 2
    assert os.pread(bench.file, 4, PAGE - 4) == bytes(4)
    assert bench.function.config.read(7, 1)[0] & 0x20              # Received Master Abort
    assert bench.dma(READ, ADDRESS + 16) == int.from_bytes(b"original", "little")
    # A read ends with an error, and a model of a card stops until a reset by register.
    bench.dma(READ, 0)
    assert bench.function.counters["unsupported_requests"] == 3 and bench.get("status") & LOST
    assert any("no memory at 0x0" in sentence for sentence in bench.sentences)
    bench.set("reorder_distance", 5)
    assert bench.get("reorder_distance") == 0
    bench.set("control", 2)
    bench.set("control", 0)
    assert not bench.get("status") & LOST
    assert bench.dma(READ, ADDRESS + 16) == int.from_bytes(b"original", "little")


@pytest.mark.parametrize("command", [READ, WRITE])
def test_dma_without_bus_mastering_is_lost_until_a_reset(bench, command):
    bench.enable(2)
    bench.dma(command, ADDRESS, 5)
    assert bench.get("status") & LOST and not bench.function.counters["unsupported_requests"]
    bench.enable(6)
    bench.dma(WRITE, ADDRESS, 5)
    assert os.pread(bench.file, 8, 0) == bytes(8)
    bench.set("control", 2)
    bench.set("control", 0)
    bench.dma(WRITE, ADDRESS, 5)
    assert os.pread(bench.file, 8, 0)[0] == 5 and not bench.get("status") & LOST


def test_vectors_wait_until_they_may_be_sent(bench):
    event, function = os.eventfd(0, os.EFD_NONBLOCK), bench.function
    control, msix = pci.MSIX + 2, lambda value: function.region_write(7, pci.MSIX + 2, value.to_bytes(2, "little"))

    def pending():
        return int.from_bytes(function.region_read(0, abi.MSIX_PBA_OFFSET, 8), "little")

    def sent():
        try:
            return os.eventfd_read(event)
        except BlockingIOError:
            return 0

    bench.set("nic_rx_slot_log2", RAISE << 8 | 3)
    assert pending() == 8 and function.region_read(7, control, 2) == b"\7\0"
    function.interrupts.assign(Irq.MSIX, 3, 1, [os.dup(event)])
    assert pending() == 8 and not sent()
    msix(0xC000)                            # enabled, and masked as a whole
    assert pending() == 8 and not sent()
    msix(0x8000)
    assert pending() == 0 and sent() == 1
    bench.set("nic_rx_slot_log2", RAISE << 8 | 3)
    assert sent() == 1
    bench.enable(2)
    bench.set("nic_rx_slot_log2", RAISE << 8 | 3)
    bench.set("nic_rx_slot_log2", RAISE << 8 | 200)      # no such vector
    assert pending() == 8 and not sent()
    bench.function.region_write(7, 4, b"\6")
    assert pending() == 0 and sent() == 1
    bench.set("nic_rx_slot_log2", RAISE << 8 | 2)        # without an eventfd
    assert pending() == 4
    function.reset()
    bench.enable()
    assert pending() == 0
    os.close(event)


def test_failed_card_stops_and_a_reset_makes_another(bench):
    bench.set("reorder_distance", 7)
    first = bench.card
    bench.set("nic_rx_slot_log2", FAIL)
    assert "no driver writes" in bench.sentences[-1] and bench.get("status") & LOST
    bench.function.receive(b"frame")                     # a stopped card takes none
    assert len(bench.sentences) == 1
    bench.function.region_write(7, pci.EXPRESS + 9, b"\x80")
    bench.enable()
    assert bench.card is not first and not bench.get("status") & LOST and bench.get("reorder_distance") == 0
    stale = first.incarnation
    stale.interrupt(0)
    assert not bench.function.pending
    ran = []
    stale.run(ran.append, 1)
    bench.function.incarnation.run(ran.append, 2)
    assert ran == [2]


def test_reports_have_a_limit(bench):
    for _ in range(3 * REPORTS_MAX):
        bench.set("nic_rx_slot_log2", FAIL)
        bench.set("control", 2)
    assert len(bench.sentences) == REPORTS_MAX
