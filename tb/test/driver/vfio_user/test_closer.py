"""Descriptors of a client whose closing waits: the server continues, and that client is not served meanwhile."""

import os
import socket
import threading
import time

import pytest

from weft.driver.vfio_user import closer as module
from weft.driver.vfio_user.closer import WAITING_MAX, Closer
from weft.driver.vfio_user.endpoint import Endpoint
from weft.driver.vfio_user.messages import Command, Flag, Message, version_body
from weft.tb.test.driver.vfio_user.scratch_card import Bench
from weft.tb.verify.linux.client import QEMU


@pytest.fixture
def held(monkeypatch):
    """Event that all closing waits for."""
    event, close = threading.Event(), os.close

    class Slow:
        @staticmethod
        def close(file):
            event.wait()
            close(file)

    monkeypatch.setattr(module, "os", Slow)
    yield event
    event.set()


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def opened(count):
    return [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]


def test_descriptors_are_closed_later(held):
    closer, files = Closer(), opened(5)
    given = list(files)
    closer.close(given)
    assert not given and closer.waiting == 5 and not closer.full
    held.set()
    wait_for(lambda: not closer.waiting)
    for file in files:
        with pytest.raises(OSError):
            os.fstat(file)
    closer.close(opened(1))         # by another thread
    wait_for(lambda: not closer.waiting)


def test_a_client_with_descriptors_that_cannot_be_closed_is_not_served(held, tmp_path):
    sentences, clients = [], []
    endpoint = Endpoint(tmp_path / "s", Bench(capabilities=None).function, sentences.append)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        clients.append(client := socket.socket(socket.AF_UNIX))
        client.setblocking(False)
        client.connect(str(tmp_path / "s"))
        while endpoint.turn():
            pass
        if not endpoint.connected:
            break
        client.send(Message(1, Command.VERSION, body=version_body(QEMU)).pack())
        for _ in range(WAITING_MAX // 4):
            files = opened(8)
            data = Message(2, Command.DMA_MAP, Flag.NO_REPLY, body=b"").pack()
            socket.send_fds(client, [data], files)
            for file in files:
                os.close(file)
            while endpoint.turn() and endpoint.connected:
                pass
            if not endpoint.connected:
                break
    assert "cannot be closed" in sentences[-1] and not endpoint.connected and not endpoint.reads
    assert len(os.listdir("/proc/self/fd")) - before <= WAITING_MAX + 16 + 3
    held.set()
    wait_for(lambda: endpoint.reads)
    while not endpoint.turn():
        pass
    assert endpoint.connected           # the client that waited
    endpoint.close()
    for client in clients:
        client.close()
