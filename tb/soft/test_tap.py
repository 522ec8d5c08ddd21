"""The TAP port: the kernel's own network stack at the other end, where this user may make interfaces."""

import fcntl
import os
import select
import socket
import struct
import time

import pytest

from weft.driver.soft.ports import tap
from weft.driver.soft.ports.pump import Pump
from weft.driver.soft.ports.tap import TapPort
from weft.driver.soft.rc.context import SoftContext
from weft.tb.soft.world import MACS

NAME = f"wt{os.getpid()}"
SUBNET = 0x0A_00_00_00 | os.getpid() % 0xFFFF << 8     # of the interface and of the endpoint
SET_ADDRESS, SET_MASK, GET_FLAGS, SET_FLAGS, UP = 0x8916, 0x891C, 0x8913, 0x8914, 1


def permitted():
    """Whether this user may make interfaces here."""
    try:
        TapPort(NAME).close()
    except OSError:
        return False
    return True


def switch_on(name, ip):
    """Give an interface an address, and switch it on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, address in ((SET_ADDRESS, ip), (SET_MASK, 0xFFFF_FF00)):
            word = struct.pack("16sHH4s8x", name.encode(), socket.AF_INET, 0, address.to_bytes(4, "big"))
            fcntl.ioctl(control, request, word)
        flags = struct.unpack("16sH", fcntl.ioctl(control, GET_FLAGS, struct.pack("16sH", name.encode(), 0)))[1]
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH", name.encode(), flags | UP))


def test_the_kernel_finds_the_endpoint_and_talks_to_it():
    if not permitted():
        with pytest.raises(OSError, match=r"may not be opened by this user|cannot be opened|cannot be had: "):
            TapPort(NAME)
        return
    port = TapPort(NAME)
    soft = SoftContext(mac=MACS[0], ip=SUBNET | 2)
    pump, came = Pump(soft, port), []
    try:
        switch_on(NAME, SUBNET | 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"hello", (socket.inet_ntoa((SUBNET | 2).to_bytes(4, "big")), 4791))
            end = time.monotonic() + 20
            while not soft.counts["truncated"] + soft.counts["foreign"] and time.monotonic() < end:
                pump.round(time.monotonic_ns())
                came += select.select([port], [], [], 0.05)[0]
        assert soft.counts["truncated"] + soft.counts["foreign"], "the kernel asked for no address, or sent no packet"
        assert came and not port.lost
    finally:
        port.close()
    assert NAME not in {name for _, name in socket.if_nameindex()}


def test_what_is_wrong_is_told_in_a_sentence(monkeypatch, tmp_path):
    for name in ("", "x" * 16):
        with pytest.raises(ValueError, match="a name has 1 to 15 bytes"):
            TapPort(name)
    monkeypatch.setattr(tap, "DEVICE", str(tmp_path / "tun"))
    with pytest.raises(OSError, match="is the module tun loaded"):
        TapPort(NAME)
    (tmp_path / "tun").touch()
    with pytest.raises(OSError, match=f"the interface {NAME} cannot be had"):
        TapPort(NAME)
