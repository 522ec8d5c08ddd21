"""Reads that the host rejects and entries that no driver writes: the models report them as the gateware does."""

import os

import pytest

from weft.driver.vfio_user.messages import PAGE
from weft.hdl.contract import abi
from weft.model.card.card import TimedCard
from weft.model.functional.card import FunctionalCard
from weft.model.loop import EventLoop
from weft.tb.app.machine.machine import CardLoop
from weft.tb.test.driver.vfio_user.scratch_card import Bench
from weft.tb.verify.linux.client import BOTH, memfd

MEMORY, ABSENT = 0x7F00_0000_0000, 0x7E00_0000_0000
COMMANDS, RESPONSES = MEMORY, MEMORY + PAGE
LOG2 = 4
Opcode, Status = abi.CommandOpcode, abi.CommandStatus


@pytest.fixture(params=[FunctionalCard, TimedCard])
def bench(request):
    """Card with two pages of memory, and a loop for it."""
    loop = EventLoop()
    bench = Bench(make=lambda incarnation: request.param(
        incarnation, CardLoop(loop, incarnation.run), lambda *_: None, incarnation.interrupt, preset="test", seed=1,
        checks_driver=False))
    bench.loop, bench.file = loop, memfd(2 * PAGE)
    bench.function.dma.add(MEMORY, 2 * PAGE, 0, BOTH, os.dup(bench.file))
    bench.enable()
    bench.set("control", 1)
    yield bench
    bench.function.disconnected()
    os.close(bench.file)


def start(bench, ring, base):
    bench.set(f"{ring}_base", base)
    bench.set(f"{ring}_log2", 1 << abi.RING_ENABLE_BIT | LOG2)


def command(bench, index, **fields):
    """Put a command into the ring."""
    entry = abi.sealed(abi.COMMAND.pack(phase=1 - (index >> LOG2 & 1), tag=index, **fields))
    os.pwrite(bench.file, entry, index % (1 << LOG2) * abi.BLOCK_BYTES)


def run(bench):
    bench.loop.run(bench.loop.now_ns + 100_000)


def response(bench, index):
    return abi.RESPONSE.unpack(os.pread(bench.file, abi.BLOCK_BYTES, PAGE + index * abi.BLOCK_BYTES))


def dropped(bench, reason):
    return bench.card.counters[f"drop_{reason}"]


def continues(bench):
    """The card works as before: nothing is lost, and it executes the next command."""
    assert bench.get("status") & 4 == 0 and not bench.sentences[1:], bench.sentences
    bench.set("command_log2", 0)
    bench.set("response_log2", 0)
    start(bench, "command", COMMANDS)
    start(bench, "response", RESPONSES)
    command(bench, 0, opcode=Opcode.SET_NETWORK, mac=1, ip=2)
    bench.set("command_prod", 1)
    run(bench)
    assert response(bench, 0).status is Status.OK and (bench.card.mac, bench.card.ip) == (1, 2)


@pytest.mark.parametrize("ring", ["command", "send", "retransmit", "nic_tx"])
def test_descriptors_that_cannot_be_read_are_dropped(bench, ring):
    start(bench, "response", RESPONSES)
    start(bench, ring, ABSENT)
    bench.set(f"{ring}_prod", 3)
    run(bench)
    assert dropped(bench, "dma_error") == 3 and bench.get(f"{ring}_cons") == 3
    assert bench.function.counters["unsupported_requests"] >= 1
    continues(bench)


def test_damaged_descriptors_are_dropped_and_good_ones_between_them_are_not(bench):
    start(bench, "command", COMMANDS)
    start(bench, "response", RESPONSES)
    for index in range(5):
        command(bench, index, opcode=Opcode.SET_NETWORK, mac=1, ip=index)
    os.pwrite(bench.file, b"\xff", 20)                              # of the first one
    os.pwrite(bench.file, b"\0", 2 * abi.BLOCK_BYTES)               # phase of the third one
    bench.set("command_prod", 5)
    run(bench)
    assert dropped(bench, "bad_descriptor") == 2 and bench.get("command_cons") == 5
    assert [response(bench, n).tag for n in range(3)] == [1, 3, 4] and bench.card.ip == 4
    continues(bench)


def test_impossible_producer_indices_are_ignored(bench):
    start(bench, "command", COMMANDS)
    start(bench, "response", RESPONSES)
    command(bench, 0, opcode=Opcode.SET_NETWORK, mac=1, ip=2)
    bench.set("command_prod", 1)
    run(bench)
    for wrong in (0, 20):       # backwards; more than the ring has
        bench.set("command_prod", wrong)
        run(bench)
    assert dropped(bench, "bad_descriptor") == 2 and bench.get("command_cons") == 1
    continues(bench)


def test_impossible_consumer_indices_are_ignored_and_arm_nothing(bench):
    start(bench, "command", COMMANDS)
    start(bench, "response", RESPONSES)
    bench.set("response_cons", 1 << abi.ARM_BIT | 1)        # beyond the entries
    bench.set("response_log2", LOG2)
    bench.set("response_cons", 1 << abi.ARM_BIT)            # of a ring that is not enabled
    start(bench, "response", RESPONSES)
    vectors = []
    bench.function.raise_vector = vectors.append
    command(bench, 0, opcode=Opcode.SET_NETWORK, mac=1, ip=2)
    bench.set("command_prod", 1)
    run(bench)
    bench.set("response_cons", 2)                           # backwards or too far, for a ring with one entry
    bench.set("response_cons", 31)
    run(bench)
    assert dropped(bench, "bad_descriptor") == 3 and bench.get("response_prod") == 1 and not vectors
    continues(bench)


@pytest.mark.parametrize("ring", abi.PUSH_RINGS)
def test_descriptors_that_are_pushed_at_the_wrong_time_are_dropped(bench, ring):
    page, cons = abi.PUSH_BASE + abi.PUSH_RINGS.index(ring) * abi.PUSH_PAGE_BYTES, f"{ring.name.lower()}_cons"

    def push(window, data=bytes(abi.BLOCK_BYTES)):
        bench.function.region_write(0, page + window * abi.BLOCK_BYTES, data)
        run(bench)

    push(0)                                 # the ring is not enabled
    start(bench, ring.name.lower(), COMMANDS)
    push(2)                                 # neither the next descriptor nor the newest
    assert dropped(bench, "bad_descriptor") == 2 and bench.get(cons) == 0
    push(abi.PUSH_WINDOWS - 1)              # the newest
    assert dropped(bench, "bad_descriptor") == 2
    push(0)                                 # the next, with a wrong phase
    assert dropped(bench, "bad_descriptor") == 3 and bench.get(cons) == 1
    continues(bench)


def test_lines_of_a_page_list_that_can_be_read_are_written(bench):
    start(bench, "command", COMMANDS)
    start(bench, "response", RESPONSES)
    line = abi.BLOCK_BYTES // abi.PTE_BYTES
    entries = [page * PAGE | abi.pte_damage(page * PAGE) for page in range(1, line + 1)]
    entries[2] ^= 1
    os.pwrite(bench.file, b"".join(entry.to_bytes(abi.PTE_BYTES, "little") for entry in entries), 2 * PAGE - 64)
    command(bench, 0, opcode=Opcode.PAGE_TABLE_WRITE, pte_index=5, count=2 * line, address=MEMORY + 2 * PAGE - 64)
    bench.set("command_prod", 1)
    run(bench)
    assert response(bench, 0).status is Status.DMA_ERROR
    assert bench.card.tables.ptes == {5 + n: (n + 1) * PAGE for n in range(line) if n != 2}
    continues(bench)


def test_a_page_list_that_cannot_be_read_is_reported(bench):
    start(bench, "command", COMMANDS)
    start(bench, "response", RESPONSES)
    command(bench, 0, opcode=Opcode.PAGE_TABLE_WRITE, pte_index=0, count=4, address=ABSENT)
    bench.set("command_prod", 1)
    run(bench)
    assert response(bench, 0).status is Status.DMA_ERROR
    continues(bench)


def test_a_frame_that_cannot_be_read_is_dropped(bench):
    start(bench, "nic_tx", COMMANDS)
    os.pwrite(bench.file, abi.sealed(abi.NIC_TX.pack(phase=1, address=ABSENT, length=100)), 0)
    bench.set("nic_tx_prod", 1)
    run(bench)
    assert dropped(bench, "dma_error") == 1 and bench.get("nic_tx_cons") == 1
    assert not bench.card.counters["tx_raw_frames"]
    continues(bench)
