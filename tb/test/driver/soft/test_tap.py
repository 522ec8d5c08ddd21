"""TAP port, with the network stack of the kernel at the other end, if this user may create interfaces."""

import contextlib
import fcntl
import os
import random
import re
import select
import socket
import struct
import time

import pytest

from weft.driver.soft import ports
from weft.driver.soft.ports import Pump, TapPort
from weft.driver.soft.rc.context import SoftContext
from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.qp import RcAttr, SoftQP
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import wire
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.rc_pair import ALL

NAME = f"wt{os.getpid()}"
SUBNET = 0x0A_00_00_00 | os.getpid() % 0xFFFF << 8     # of the interface and of the endpoint
SET_ADDRESS, SET_MASK, GET_FLAGS, SET_FLAGS, UP = 0x8916, 0x891C, 0x8913, 0x8914, 1


def interface():
    """Return a TAP interface; if this user may not have one, check the error message and skip the test."""
    try:
        return TapPort(NAME)
    except OSError as error:
        reported = str(error)
    assert re.search("may not be opened by this user|cannot be opened|cannot be had: ", reported)
    pytest.skip(reported)


def switch_on(name, ip):
    """Give an interface an address, and switch it on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, address in ((SET_ADDRESS, ip), (SET_MASK, 0xFFFF_FF00)):
            word = struct.pack("16sHH4s8x", name.encode(), socket.AF_INET, 0, address.to_bytes(4, "big"))
            fcntl.ioctl(control, request, word)
        flags = struct.unpack("16sH", fcntl.ioctl(control, GET_FLAGS, struct.pack("16sH", name.encode(), 0)))[1]
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH", name.encode(), flags | UP))


def test_kernel_reaches_the_endpoint():
    port = interface()
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


class PacketPort:
    """Kernel side of an interface, through a packet socket."""

    space = 64

    def __init__(self, name):
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(wire.ETHERTYPE_IPV4))
        self._socket.bind((name, wire.ETHERTYPE_IPV4))
        self._socket.setblocking(False)
        self.mac = int.from_bytes(self._socket.getsockname()[4], "big")
        self.fileno, self.send, self.close = self._socket.fileno, self._socket.send, self._socket.close

    def receive(self):
        frames = []
        with contextlib.suppress(BlockingIOError):
            while True:
                frames.append(self._socket.recv(1 << 16))
        return frames


def test_two_endpoints_exchange_data_through_the_kernel():
    tap_port = interface()
    data = random.Random(1).randbytes(50_000)
    switch_on(NAME, SUBNET | 1)
    ports = [tap_port, PacketPort(NAME)]
    try:
        ends = [SoftContext(mac=mac, ip=SUBNET | 2 - i) for i, mac in enumerate((MACS[0], ports[1].mac))]
        pumps = [Pump(end, port) for end, port in zip(ends, ports, strict=True)]
        cqs = [CQ(end, 16) for end in ends]
        mrs = [SoftMR(PD(end), 100_000, ALL) for end in ends]
        qps = [SoftQP(mr.pd, rc_init_attr(cq)) for mr, cq in zip(mrs, cqs, strict=True)]
        for i in range(2):
            qps[i].connect(qps[1 - i].connection, RcAttr(timeout=14))
        mrs[0].write(data)
        for number, (opcode, at) in enumerate([(WROpcode.RDMA_WRITE, 0), (WROpcode.RDMA_READ, 50_000)]):
            wr = SendWR(number, sg=[SGE(mrs[0].buf + at, 50_000, mrs[0].lkey)], opcode=opcode)
            wr.set_wr_rdma(mrs[1].rkey, mrs[1].buf)
            qps[0].post_send(wr)
        end = time.monotonic() + 60
        while len(cqs[0]) < 2 and time.monotonic() < end:
            for pump in pumps:
                pump.round(time.monotonic_ns())
        assert [wc.status for wc in cqs[0].poll(9)[1]] == [WCStatus.SUCCESS] * 2
        assert mrs[1].read(50_000) == mrs[0].read(50_000, 50_000) == data
    finally:
        for port in ports:
            port.close()


def test_failure_raises_a_sentence(monkeypatch, tmp_path):
    for name in ("", "x" * 16):
        with pytest.raises(ValueError, match="a name has 1 to 15 bytes"):
            TapPort(name)
    monkeypatch.setattr(ports, "DEVICE", str(tmp_path / "tun"))
    with pytest.raises(OSError, match="is the module tun loaded"):
        TapPort(NAME)
    (tmp_path / "tun").touch()
    with pytest.raises(OSError, match=f"the interface {NAME} cannot be had"):
        TapPort(NAME)
