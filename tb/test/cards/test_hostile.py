"""Tests of bad input from the wire and from the host: dropped, counted, reported, and the cards continue."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.judge.dma_guard import DmaGuard
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


def run(cases):
    """Run a bench with two RTL cards; with Verilator only: Icarus takes a hundred times longer."""
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name(cases))


def test_bad_frames_are_dropped_during_transfers():
    run("hostile_wire_cases.py")


def test_rejected_work_requests_complete_with_the_correct_error():
    run("hostile_verbs_cases.py")


def test_bad_descriptors_doorbells_commands_and_nodes_are_rejected():
    run("hostile_host_cases.py")


def test_flood_and_random_damage_are_accounted_for_frame_by_frame():
    run("hostile_flood_cases.py")


# ------------------------------------------------------------------------ the guard itself

class _Memory:
    def __init__(self):
        self.dma_watchers, self.page_list = [], b""

    def read(self, address, length):
        return self.page_list[:length]


class _Buffer:
    def __init__(self, address, size):
        self.address, self.size = address, size

    def physical(self, offset=0):
        return self.address + offset


@pytest.fixture
def guarded():
    """Return (guard, write(address, length), command(opcode, **fields)) of a fake host."""
    memory = _Memory()
    answered = []
    context = SimpleNamespace(
        rings={ring: SimpleNamespace(buffer=_Buffer(0x10000 * (ring + 1), 4096)) for ring in abi.Ring},
        engine=SimpleNamespace(nic=SimpleNamespace(rx_slots=_Buffer(0x200000, 8192)), status=_Buffer(0x300040, 64)),
        commands=SimpleNamespace(call=lambda opcode, **fields: answered.append(opcode), submit=None))
    guard = DmaGuard(SimpleNamespace(memory=memory), context)

    def write(address, length):
        for watcher in memory.dma_watchers:
            watcher(address, length)

    def command(opcode, pages=(), **fields):
        memory.page_list = b"".join(abi.PTE.pack(page=page // abi.PAGE_4K) for page in pages)
        context.commands.call(opcode, **fields)
        assert answered.pop() is opcode

    return guard, write, command


def test_guard_lets_rings_slots_and_status_pass(guarded):
    guard, write, _ = guarded
    write(guard._areas["META_REPORT"][0].start, 64)
    write(0x200000 + 4090, 20)
    write(0x300040, 64)
    guard.check()
    assert guard.writes == {"META_REPORT": 1, "frames": 1, "status block": 1}


@pytest.mark.parametrize(("address", "length"), [
    (0x10000, 64),          # the card only reads the SEND ring
    (0x200000 + 8191, 2),   # beyond the end
    (0x300030, 32),         # begins before the region
    (0x300080, 4),
    (0, 1),
])
def test_guard_detects_a_write_outside(guarded, address, length):
    guard, write, _ = guarded
    write(address, length)
    with pytest.raises(AssertionError, match="outside"):
        guard.check()


def test_guard_checks_an_mr_by_byte_and_lifetime(guarded):
    guard, write, command = guarded
    pages = [0x700000, 0x500000]
    command(abi.CommandOpcode.PAGE_TABLE_WRITE, pages, pte_index=5, count=2, address=0)
    command(abi.CommandOpcode.MR_CREATE, mr_index=3, va=0x9000_0FF0, length=32, page_2m=0, pte_index=5,
            access=int(abi.AccessFlag.REMOTE_WRITE))
    write(0x700FF0, 16)
    write(0x500000, 16)
    guard.check()
    for address, length in ((0x700FEF, 1), (0x500010, 1)):
        write(address, length)
        assert guard.violations.pop(), hex(address)
    command(abi.CommandOpcode.MR_DESTROY, mr_index=3)
    write(0x700FF0, 1)
    assert guard.violations


def test_guard_forbids_an_mr_that_may_not_be_written(guarded):
    guard, write, command = guarded
    command(abi.CommandOpcode.PAGE_TABLE_WRITE, [0x700000], pte_index=0, count=1, address=0)
    command(abi.CommandOpcode.MR_CREATE, mr_index=0, va=0x9000_0000, length=4096, page_2m=0, pte_index=0,
            access=int(abi.AccessFlag.LOCAL_WRITE))
    write(0x700000, 4)
    assert guard.violations
