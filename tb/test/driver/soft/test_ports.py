"""Ports: frames arrive whole and in order; frames for which a port has no space are counted, or held back."""

import random
import socket
import struct

import pytest

from weft.driver.soft.ports import FRAME_MAX, MemoryPort, Pump, QemuSocketPort, SimpleNicPort
from weft.driver.soft.rc.context import ARP_ANSWERS, SoftContext
from weft.driver.terms.enums import WROpcode
from weft.driver.verbs.context import Context
from weft.model.functional.host import connected_pair
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.rc_pair import IPS, RcPair


@pytest.fixture
def sockets():
    pair = socket.socketpair()
    yield pair
    for end in pair:
        end.close()


def test_memory_port_holds_its_depth_and_counts_drops():
    port = MemoryPort(lambda frame: None, depth=3)
    for n in range(5):
        port.arrive(bytes([n]))
    assert list(port.receive()) == [b"\0", b"\1", b"\2"] and port.lost == 2 and not port.receive()


def test_pump_sends_no_more_than_the_port_takes():
    class Talker:
        left = 10

        def process(self, now):
            return now + 5

        def take_frames(self, most):
            count = min(most, self.left)
            self.left -= count
            return [b"x"] * count

    sent = []
    port = MemoryPort(sent.append, space=0)
    pump = Pump(Talker(), port)
    assert pump.round(7) == 12 and not sent
    port.space = 4
    pump.round(8)
    assert len(sent) == 10


def test_simple_nic_port_takes_its_frames_and_counts_others():
    loop, devices, _ = connected_pair(seed=1)
    contexts = [Context(device, mac=2 + i, ip=10 + i) for i, device in enumerate(devices)]
    ports = [SimpleNicPort(context, lambda frame, _: frame[12:14] == b"\x89\x15", depth=5) for context in contexts]
    other = []
    contexts[1].raw_frame_handlers.append(lambda frame, entry: other.append(frame))
    frames = [(3).to_bytes(6, "big") + (2).to_bytes(6, "big") + kind + bytes([n]) * 50
              for n in range(8) for kind in (b"\x89\x15", b"\x88\xb5")]
    assert ports[0].space == 64
    for frame in frames:
        ports[0].send(frame)
    assert ports[0].space == 64 - len(frames)
    contexts[1].run_until(lambda: len(other) == len(frames), 10**8)
    assert list(ports[1].receive()) == frames[:10:2] and ports[1].lost == 3
    ports[1].close()
    ports[0].send(frames[0])
    contexts[1].run_until(lambda: len(other) > len(frames), 10**8)
    assert not ports[1].receive()


def test_simple_nic_port_has_no_space_with_a_full_ring():
    _, devices, _ = connected_pair(seed=1)
    context = Context(devices[0], mac=2, ip=10)
    port = SimpleNicPort(context, lambda frame, entry: True)
    sent = 0
    while port.space:
        port.send(bytes(60))
        sent += 1
    assert sent == 64 and not context.engine.nic.queue
    context.run_until(lambda: port.space == 64, 10**8)


def test_qemu_socket_reassembles_frames_for_any_stream_split(sockets):
    rng = random.Random(1)
    port, stream = QemuSocketPort(sockets[0]), sockets[1]
    frames = [rng.randbytes(rng.choice([0, 14, 60, 1514, 4170])) for _ in range(100)]
    data = b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)
    got = []
    while data:
        size = rng.randrange(1, 3000)
        stream.sendall(data[:size])
        data = data[size:]
        got += port.receive()
    assert got == frames and not port.closed
    for frame in frames[:5]:
        port.send(frame)
    stream.settimeout(5)
    wanted = b"".join(struct.pack(">I", len(frame)) + frame for frame in frames[:5])
    assert b"".join(stream.recv(1) for _ in range(len(wanted))) == wanted


def test_qemu_socket_stops_when_its_peer_does_not_read(sockets):
    port, sent = QemuSocketPort(sockets[0], depth=10_000), 0
    while port.space:
        port.send(bytes(4096))
        sent += 1
    assert len(port._waiting) < 10_000 + 4100 and sent > 3
    sockets[1].setblocking(False)
    read = 0
    while read < sent * 4100:
        read += len(sockets[1].recv(1 << 20))
        assert not port.receive()
    assert port.space and not port._waiting


@pytest.mark.parametrize("data", [struct.pack(">I", FRAME_MAX), b"\xff" * 10])
def test_qemu_socket_closes_on_an_invalid_frame(sockets, data):
    port = QemuSocketPort(sockets[0])
    sockets[1].sendall(data)
    assert not port.receive() and port.closed and not port.space


def test_qemu_socket_notices_the_end(sockets):
    port = QemuSocketPort(sockets[0])
    sockets[1].sendall(struct.pack(">I", 3) + b"end")
    sockets[1].close()
    assert port.receive() == [b"end"] and port.closed
    port.send(b"nobody")
    assert not port.space


def test_two_hosts_over_a_qemu_socket(sockets):
    """A stream replaces the links between the hosts of the pair."""
    pair = RcPair()
    data = random.Random(2).randbytes(60_000)
    pair.mr[0].write(data)
    pumps = [Pump(end, QemuSocketPort(stream)) for end, stream in zip(pair.ends, sockets, strict=True)]
    pair.post(0, WROpcode.RDMA_WRITE, length=60_000)
    for now in range(10_000):
        for pump in pumps:
            pump.round(now)
        if len(pair.cq[0]):
            break
    assert pair.mr[1].read(60_000) == data and not pair.frames


def test_arp_is_answered():
    from scapy.all import ARP, Ether
    end = SoftContext(mac=MACS[0], ip=IPS[0])
    ask = Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:0b") / ARP(
        hwsrc="02:00:00:00:00:0b", psrc="10.0.0.11", pdst="10.0.0.10")
    end.receive(bytes(ask), 0)
    [frame] = end.take_frames()
    reply = Ether(frame)
    assert (reply.dst, reply.src, reply[ARP].op) == ("02:00:00:00:00:0b", "02:00:00:00:00:0a", 2)
    assert (reply[ARP].hwsrc, reply[ARP].psrc) == ("02:00:00:00:00:0a", "10.0.0.10")
    assert (reply[ARP].hwdst, reply[ARP].pdst) == ("02:00:00:00:00:0b", "10.0.0.11")
    others = [bytes(Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(pdst="10.0.0.12")), bytes(ask)[:41], frame,
              bytes(Ether(dst="02:00:00:00:00:0c") / ARP(pdst="10.0.0.10"))]
    for other in others:
        end.receive(other, 0)
    assert not end.take_frames() and end.counts["arp_ignored"] == len(others)
    for _ in range(ARP_ANSWERS + 4):
        end.receive(bytes(ask), 0)
    assert end.counts["arp_dropped"] == 4 and len(end.take_frames(5)) == 5 and len(end.take_frames()) == 11
