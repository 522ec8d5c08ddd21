"""Server for the clients of perftest, with a client that sends what perftest 4.5 sends."""

import contextlib
import random
import socket
import time

import pytest

from weft.driver.protocol import arp
from weft.driver.soft.ports import Pump, QemuSocketPort
from weft.driver.soft.rc.context import SoftContext
from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.qp import RcAttr, SoftConnection, SoftQP
from weft.driver.soft.serve.perftest import GREETING_BYTES, KEYS_BYTES, Handshake, Keys
from weft.driver.soft.serve.server import SoftServer
from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.judge.growth import sizes
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.rc_pair import ALL, IPS

SEED = drawn_seed("perftest")
GREETING = b"5.94".ljust(16, b"\0") + (4096).to_bytes(4, "big") + (64).to_bytes(4, "big") + b"3\0"
KEYS = Keys(4, 17, 0x123456, 0x2D0, 0x7F05_0000_1000, 0x0A00_000B)
# Output of ib_write_bw of Debian 12.
TEXT = (b"0000:0004:000011:123456:000002d0:00007f0500001000:" + b"00:" * 10 + b"ff:ff:0a:00:00:0b:00000000:\0")


def test_keys_have_the_text_form_of_perftest():
    assert KEYS.pack() == TEXT and len(TEXT) == KEYS_BYTES and Keys.unpack(TEXT) == KEYS
    for wrong in (TEXT.replace(b"ff:ff", b"fe:80"), b"0000:0001:", b"x" * 108, TEXT.replace(b":000011:", b":1000011:"),
                  TEXT.replace(b":0004:000011:", b":0fff:000011:"), TEXT.replace(b":123456:", b":-23456:")):
        with pytest.raises(ValueError):
            Keys.unpack(wrong)


def test_handshake_is_correct_for_any_stream_split():
    own, seen = Keys(4, 16, 5, 6, 7, 0x0A00_000A), []
    for size in (1, 5, 26, 60, 1000):
        def connect(peer, pmtu):
            seen.append((peer, pmtu))
            return own
        handshake, answer, sent = Handshake(connect), b"", GREETING + 3 * TEXT
        for at in range(0, len(sent), size):
            answer += handshake.feed(sent[at:at + size])
        assert answer == GREETING + 3 * own.pack()
        assert handshake.feed(b"\x00\x01\x02\x03\x04\x05\x06\x07") == b"\x00\x01\x02\x03\x04\x05\x06\x07"
    assert seen == [(KEYS, 3)] * 5, "more than one QP for a client"


def test_random_client_text_is_bounded_and_raises_value_errors_only():
    rng = random.Random(SEED)
    refused = answered = 0
    for _ in range(300):
        text = bytearray(GREETING + 3 * TEXT)
        for _ in range(rng.randrange(6)):
            text[rng.randrange(len(text))] = rng.choice(b"0123456789abcdef:\0-_ x")
        text += rng.randbytes(rng.randrange(200))
        handshake = Handshake(lambda peer, pmtu: KEYS)
        try:
            while text:
                answered += bool(handshake.feed(bytes(text[:50])))
                assert len(handshake._part) <= KEYS_BYTES + 50 and len(handshake._greeting) <= GREETING_BYTES
                del text[:50]
        except ValueError:
            refused += 1
    assert refused and answered, SEED


@contextlib.contextmanager
def served():
    """Provide a server, and the other end of its link."""
    ends = socket.socketpair()
    server = SoftServer(QemuSocketPort(ends[0]), mac=MACS[0], ip=IPS[0], tcp_port=0)
    yield server, ends[1]
    server.close()
    for end in ends:
        end.close()


def test_hostile_clients_and_unknown_hosts_change_nothing():
    """Clients that do not read responses or that send invalid data, and hosts that send ARP requests."""
    with served() as (server, wire):
        port = QemuSocketPort(wire)

        def until(condition):
            end = time.monotonic() + 60
            while not condition():
                server.step()
                port.receive()
                assert time.monotonic() < end
        for _ in range(3):
            server.step()
        before = sizes(server)
        for n in range(200):
            port.send(arp.question(0x02_0000_0001_00 + n, 0x0A01_0000 + n, IPS[0]))
        with socket.create_connection(("127.0.0.1", server.tcp_port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(GREETING + TEXT)
            until(lambda: server._qp is not None)
            client.setblocking(False)
            try:
                while server._client is not None:
                    with contextlib.suppress(BlockingIOError):
                        client.send(b"x" * 65_536)
                    server.step()
            except OSError:
                until(lambda: server._client is None)
        assert server.served == 1
        for text in (GREETING + TEXT.replace(b":123456:", b":-23456:"), b"\xff" * 200):
            with socket.create_connection(("127.0.0.1", server.tcp_port)) as client:
                client.sendall(text)
                until(lambda: server._client is not None)
                client.shutdown(socket.SHUT_WR)
                until(lambda: server._client is None)
        assert sizes(server) == before, {k: v for k, v in sizes(server).items() if v != before[k]}


def test_client_writes_sends_and_disconnects():
    ends = socket.socketpair()
    server = SoftServer(QemuSocketPort(ends[0]), mac=MACS[0], ip=IPS[0], tcp_port=0)
    soft = SoftContext(mac=MACS[1], ip=IPS[1])
    pump, cq = Pump(soft, QemuSocketPort(ends[1])), CQ(soft, 16)
    mr = SoftMR(PD(soft), 70_000, ALL)
    qp = SoftQP(mr.pd, rc_init_attr(cq))
    mr.write(bytes(range(250)) * 280)

    def until(condition):
        end = time.monotonic() + 60
        while not condition():
            pump.round(time.monotonic_ns())
            server.step()
            assert time.monotonic() < end

    with socket.create_connection(("127.0.0.1", server.tcp_port)) as client:
        client.setblocking(False)
        text = b""

        def received(count):
            nonlocal text
            with contextlib.suppress(BlockingIOError):
                text += client.recv(4096)
            return len(text) >= count
        mine = Keys(4, qp.qp_num, qp.psn, mr.rkey, mr.buf, IPS[1])
        client.sendall(GREETING + mine.pack())
        until(lambda: received(len(GREETING) + KEYS_BYTES))
        there = Keys.unpack(text[len(GREETING):])
        qp.connect(SoftConnection(there.qpn, there.psn, MACS[0], IPS[0]), RcAttr(path_mtu=MTU.MTU_1024, timeout=17))
        for n, opcode in enumerate((WROpcode.RDMA_WRITE, WROpcode.SEND, WROpcode.RDMA_READ)):
            wr = SendWR(n, sg=[SGE(mr.buf, 65_536, mr.lkey)], opcode=opcode)
            wr.set_wr_rdma(there.rkey, there.va)
            qp.post_send(wr)
        until(lambda: len(cq) == 3)
        assert {wc.status for wc in cq.poll(9)[1]} == {WCStatus.SUCCESS}
        assert mr.read(65_536) == (bytes(range(250)) * 280)[:65_536]
    until(lambda: server.served == 1)
    with socket.create_connection(("127.0.0.1", server.tcp_port)) as client:
        client.sendall(GREETING + b"abcd:nonsense".ljust(KEYS_BYTES))
        until(lambda: server._client is not None)
        until(lambda: server._client is None)
    server.close()
    for end in ends:
        end.close()
