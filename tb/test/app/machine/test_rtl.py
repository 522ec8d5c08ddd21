"""``weft machine`` on the RTL: registers, memory, interrupts and traffic of two machines, without QEMU."""

import pytest

from weft.driver.queue.ring import CardToHostRing, HostToCardRing
from weft.driver.vfio_user.messages import Region
from weft.hdl.contract import abi, pci
from weft.tb.app.machine.machine import Machine
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.test.app.machine.test_machine import devices, patient, ping_pong, running, served, wait_for
from weft.tb.verify.linux.client import MSIX_CONTROL, Client, guest_device

__all__ = ["patient"]       # a fixture
SLOW = 32                   # so much slower than a functional card is the simulation, at least
ENABLED, ENABLED_AND_MASKED = b"\0\x80", b"\0\xc0"
MASTER_ABORT = 1 << 13
STATUS = 6
ACCESSES = [(offset, count) for offset in (0, 1, 2, 3, 4, 6, 8, 12, abi.REGISTER["status_block"].offset)
            for count in (1, 2, 3, 4, 6, 8, 16, 64, 128)]
COMMAND = abi.COMMAND.pack(opcode=abi.CommandOpcode.SET_NETWORK)


def answers(client):
    """Return results of reads of every kind, of writes of every kind, and of reads of what they have written."""
    client.write(Region.CONFIG, 4, b"\2\0")
    found = [client.read(Region.BAR0, offset, count) for offset, count in ACCESSES]
    block = abi.REGISTER["status_block"].offset
    for offset, count in ((0, 8), (0, 4), (4, 4), (2, 4), (0, 2), (0, 16), (0, 128), (4, 8)):
        client.write(Region.BAR0, block + offset, bytes(range(0x40, 0x40 + count)))
        found.append(client.read(Region.BAR0, block, 8))
    client.write(Region.CONFIG, 4, b"\0\0")
    client.write(Region.BAR0, block, bytes(8))
    found.append(client.read(Region.BAR0, block, 8))
    client.write(Region.CONFIG, 4, b"\2\0")
    return [*found, client.read(Region.BAR0, block, 8)]


def answers_of_a_functional_card(folder):
    with served(Machine(MachineSettings(folder=str(folder), preset="test"), print)):
        client = Client(folder / "a.sock")
        found = answers(client)
        client.close()
    return found


def reads_elsewhere(client):
    """Let the card fetch a command where there is no memory."""
    device = guest_device(client)
    device.write64(abi.REGISTER["command_base"].offset, 0x7000_0000_0000)
    device.write32(abi.REGISTER["command_log2"].offset, 1 << abi.RING_ENABLE_BIT | 4)
    device.write32(abi.REGISTER["command_prod"].offset, 1)
    wait_for(lambda: int.from_bytes(client.read(Region.CONFIG, STATUS, 2), "little") & MASTER_ABORT)
    device.close()


def masked_interrupt(client):
    """Let a vector wait while the function is masked: it is pending in BAR 0, and sent when that ends."""
    device = guest_device(client)
    device.enable_interrupts(max(abi.VECTOR.values()) + 1)
    rings = command, _ = HostToCardRing(device, abi.Ring.COMMAND, 4), CardToHostRing(device, abi.Ring.RESPONSE, 4)
    for ring in rings:
        ring.enable()
    client.write(Region.CONFIG, MSIX_CONTROL, ENABLED_AND_MASKED)
    command.push(COMMAND)
    command.ring_doorbell()
    device.write32(abi.REGISTER["response_cons"].offset, 1 << abi.ARM_BIT)
    wait_for(lambda: device.read64(abi.MSIX_PBA_OFFSET))
    assert not device.wait(0) and device.read64(abi.MSIX_PBA_OFFSET).bit_count() == 1
    client.write(Region.CONFIG, MSIX_CONTROL, ENABLED)
    assert device.wait(10**11) and not device.read64(abi.MSIX_PBA_OFFSET)
    for ring in rings:
        ring.disable()
        ring.close()
    device.close()


@pytest.mark.cards
def test_machines_on_the_rtl(tmp_path):
    expected = answers_of_a_functional_card(tmp_path)
    with running(tmp_path, "--backend", "rtl") as machine:
        client = machine.client("a")
        assert answers(client) == expected
        assert client.read(Region.CONFIG, pci.MSIX, 1) == bytes([pci.ID_MSIX])
        reads_elsewhere(client)
        masked_interrupt(client)
        client.close()
        machine.until("has left")
        with devices(machine, slow=SLOW):
            assert len(ping_pong(2, 1000)) == 2
        for _ in range(2):
            machine.until("has left")
        output = machine.end()
    a, b = (next(line for line in output.splitlines() if line.startswith(f"host {host}: ") and "frames" in line)
            for host in "ab")
    assert "; 1 unsupported requests, " in a and "; 0 unsupported requests, " in b, output
    assert "unsupported request of the card: there is no memory at 0x700000000000" in output
