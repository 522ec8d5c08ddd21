"""Signals of eventfds that a client shares: none blocks, and none is lost."""

import os

import pytest

from weft.driver.vfio_user import interrupts as module
from weft.driver.vfio_user.interrupts import EventSignal, Interrupts, WriteSignal, event_signal

FULL = (1 << 64) - 2


@pytest.fixture
def file():
    file = os.eventfd(0)
    yield file
    os.close(file)


@pytest.fixture(params=[EventSignal, WriteSignal])
def signal(request):
    signal = request.param()
    yield signal
    signal.close()


def test_signals_are_counted_and_a_full_counter_stays(signal, file):
    for _ in range(20):
        signal(file)
    assert os.eventfd_read(file) == 20
    os.eventfd_write(file, FULL)
    signal(file)
    assert os.eventfd_read(file) >= FULL


def test_a_client_that_makes_its_eventfd_block_stops_nothing(file, monkeypatch):
    """The client sets the flag again directly after the server would have cleared it."""
    monkeypatch.setattr(os, "set_blocking", lambda *_: None)
    os.eventfd_write(file, FULL)
    interrupts = Interrupts({2: 1})
    interrupts.assign(2, 0, 1, [os.dup(file)])
    assert interrupts.signal(2, 0) and os.get_blocking(file)        # a write would wait for ever
    interrupts.close()


def test_a_kernel_without_asynchronous_input(monkeypatch):
    monkeypatch.setattr(module.platform, "machine", lambda: "unknown")
    assert isinstance(event_signal(), WriteSignal)


def test_contexts_of_the_kernel_are_released():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        EventSignal().close()
    assert len(os.listdir("/proc/self/fd")) == before
