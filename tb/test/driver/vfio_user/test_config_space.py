"""Configuration space: capabilities, sizes of BARs, bits that a write changes, and function-level reset."""

import pytest

from weft.driver.vfio_user.config_space import ConfigSpace
from weft.hdl.contract import abi, pci
from weft.hdl.contract.params import preset
from weft.hdl.contract.pci import card_function, configuration


class Space(ConfigSpace):
    """Configuration space that counts its resets."""

    def __init__(self, function=None):
        self.resets = 0
        super().__init__(configuration(function or card_function(preset("full"))), self._count)

    def _count(self):
        self.resets += 1
        self.reset()

    def word(self, offset, size=4):
        return int.from_bytes(self.read(offset, size), "little")

    def put(self, offset, value, size=4):
        self.write(offset, value.to_bytes(size, "little"))


def test_the_capabilities_form_two_lists():
    space = Space()
    assert space.word(0) == abi.PCI_DEVICE_ID << 16 | abi.PCI_VENDOR_ID and space.word(8) >> 8 == 0x020700
    found, at = [], space.word(0x34, 1)
    while at:
        found.append((space.word(at, 1), at))
        at = space.word(at + 1, 1)
    assert found == [(1, 0x40), (0x11, 0x60), (0x10, 0x70)]       # power management, MSI-X, PCI Express
    assert space.word(0x100) == 0x0002_0001                       # advanced error reporting, version 2, the last
    assert space.word(6, 2) & 0x10 and space.word(0x3D, 1) == 0   # a list; no interrupt pin
    assert space.word(0x62, 2) == 31 and space.word(0x64) == 0x8000 and space.word(0x68) == 0xC000
    assert space.word(0x74) & (1 << 28 | 1 << 5 | 7) == 1 << 28 | 1 << 5 | 3       # FLR, extended tags, 1024 bytes
    assert space.word(0x7C) == 3 | 16 << 4 and space.word(0x82, 2) == 3 | 16 << 4  # Gen3 x16, running at that


def test_bars_report_their_size():
    space = Space()
    assert space.word(0x10) == 4
    space.put(0x10, 0xFFFF_FFFF)
    space.put(0x14, 0xFFFF_FFFF)
    assert space.word(0x10, 8) == (1 << 64) - abi.BAR_BYTES | 4
    space.put(0x10, 0xFEBF_1234_5678_9ABC, 8)
    assert space.word(0x10, 8) == 0xFEBF_1234_5678_0004
    for at in range(0x18, 0x28, 4):
        space.put(at, 0xFFFF_FFFF)
        assert space.word(at) == 0
    space.put(0x30, 0xFFFF_F800)
    assert space.word(0x30) == 0                                  # no ROM


def test_a_write_of_ones_changes_only_what_is_writable():
    space, before = Space(), Space().read(0, 4096)
    for at in range(4096):
        if at not in (pci.EXPRESS + 9, pci.POWER_MANAGEMENT + 4):
            space.write(at, b"\xff")
    changed = {at for at in range(4096) if space.read(at, 1) != before[at:at + 1]}
    writable = {4, 5, 0x0C, 0x3C, *range(0x12, 0x18), 0x63, 0x78, 0x80, 0x98, 0xA0, *range(0x108, 0x118)}
    assert changed <= writable and changed >= {4, 5, 0x12, 0x63, 0x78}
    assert space.word(4, 2) == 0x0546 and not space.resets
    assert space.memory_space and space.bus_master


@pytest.mark.parametrize(("command", "msix", "sends"), [
    (6, 0x8000, True), (2, 0x8000, False), (6, 0xC000, False), (6, 0x4000, False), (6, 0, False)])
def test_interrupts_are_sent_if_everything_permits_it(command, msix, sends):
    space = Space()
    space.put(4, command, 2)
    space.put(0x62, msix | 31, 2)
    assert space.sends_msix is sends


def test_status_bits_are_cleared_by_ones():
    space = Space()
    space.received_master_abort()
    assert space.word(6, 2) == 0x2010
    space.put(6, 0x0000, 2)
    assert space.word(6, 2) == 0x2010
    space.put(4, 0x2000_0006)
    assert space.word(4) == 0x0010_0006


def test_only_d0_and_d3hot_exist():
    space = Space()
    for state, then in ((3, 3), (1, 3), (2, 3), (0, 0), (1, 0)):
        space.put(0x44, state, 2)
        assert space.word(0x44, 2) & 3 == then


def test_in_d3hot_only_configuration_works():
    space = Space()
    space.put(4, 6, 2)
    space.put(0x62, 0x8000, 2)
    for state in (3, 0):
        space.put(0x44, state, 2)
        assert space.memory_space is space.bus_master is space.sends_msix is (state == 0)
        assert space.word(4, 2) == 6        # no reset between them


@pytest.mark.parametrize(("offset", "size"), [(0x78, 2), (0x79, 1), (0x78, 4), (0x70, 16)])
def test_function_level_reset_by_any_write_of_its_bit(offset, size):
    space = Space()
    space.put(4, 6, 2)
    data = bytearray(space.read(offset, size))
    data[0x79 - offset] |= 0x80
    space.write(offset, bytes(data))
    assert space.resets == 1 and not space.bus_master and space.read(0, 4096) == Space().read(0, 4096)
    space.put(0x7A, 0x8000, 2)      # the status beside it
    assert space.resets == 1
