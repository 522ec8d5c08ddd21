"""Tests of buffers and time of all back ends, as the driver's interface declares them."""

import ctypes
import mmap
import random
from types import SimpleNamespace
from typing import get_type_hints

import pytest

from weft.driver.device.device import Device
from weft.driver.linux.memory import LinuxBuffer
from weft.model.card.host import TimedDevice
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.sim.pcie.host_memory import HostBuffer, HostMemory

PAGE, VA = 4096, 0x7000_0000


class Foreign:
    """Memory of another process."""

    def __init__(self):
        self.data = bytearray(4 * PAGE)

    def read(self, address, length):
        return bytes(self.data[address : address + length])

    def write(self, address, data):
        self.data[address : address + len(data)] = data


def rtl():
    nowhere = SimpleNamespace(register_region=lambda *_: None)
    buffer = HostMemory(SimpleNamespace(mem_pool=nowhere, mem_address_space=nowhere), random.Random(1)).alloc(
        2 * PAGE, 64, True, PAGE)
    return HostBuffer(buffer.memory, buffer.va, PAGE, buffer.frames, PAGE, 128)


def linux():
    memory = mmap.mmap(-1, 2 * PAGE)
    va = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    buffer = LinuxBuffer(va, 2 * PAGE, {va // PAGE: PAGE, va // PAGE + 1: 5 * PAGE})
    buffer.memory = memory      # as long as the buffer
    return buffer


BUFFERS = {"functional": lambda: FunctionalDevice(EventLoop()).alloc(2 * PAGE),
           "attached": lambda: FunctionalDevice(EventLoop()).attach(Foreign(), PAGE, 2 * PAGE, VA, PAGE),
           "timed": lambda: TimedDevice(EventLoop()).alloc(2 * PAGE), "rtl": rtl, "linux": linux}


@pytest.mark.parametrize("back_end", BUFFERS)
def test_views_of_all_back_ends_behave_alike(back_end):
    buffer = BUFFERS[back_end]()
    buffer.write(100, bytes(range(32)))
    view = buffer.view(100, 32)
    assert len(view) == 32 and bytes(view) == bytes(range(32)) and (view[0], view[7], view[-1]) == (0, 7, 31)
    buffer.write(107, b"x")
    assert view[7] == ord("x") and bytes(view)[7:8] == b"x"
    with pytest.raises(IndexError):
        view[32]
    for at, length in ((buffer.size, 1), (buffer.size - 8, 16), (-4, 8)):
        with pytest.raises(ValueError):
            buffer.view(at, length)


def test_time_is_declared_with_its_fractions():
    device = FunctionalDevice(EventLoop())
    device.wait(0.5)
    assert device.now_ns() == 0.5
    assert {get_type_hints(kind.now_ns)["return"] for kind in (Device, FunctionalDevice)} == {float}
    assert get_type_hints(Device.wait)["timeout_ns"] is float
