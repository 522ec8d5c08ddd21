"""Hosts with a functional card, and applications that block in simulated time.

Each application runs in a separate thread, but only one thread runs at any moment, and only until it waits. Runs are
therefore deterministic.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from weft.driver.device.attached import ForeignMemory
from weft.driver.device.device import Buffers, Device, DmaBuffer
from weft.model.link import Link, LinkConfig, Tap
from weft.model.loop import EventLoop

from .card import FunctionalCard
from .memory import HostMemory

__all__ = ["App", "FunctionalDevice", "LinkConfig", "connected_pair", "run_apps"]
ACQUIRE_NS = 1_000     # interval of a program's attempts to take a lock


def _lost(*_frame: object) -> None:
    """Lose a frame of a card that is not connected."""


class FunctionalDevice(Device):
    """Functional card as the driver's :class:`~weft.driver.device.device.Device`.

    Parameters
    ----------
    seed
        Seed of the addresses of physical pages and of the order of reports.
    card_options
        Passed to :class:`FunctionalCard`.
    """

    memory_type: type[HostMemory] = HostMemory
    card_type: type[FunctionalCard] = FunctionalCard
    pushes = True

    def __init__(self, loop: EventLoop, *, seed: int | str = 0, **card_options: Any) -> None:
        self.loop = loop
        self.memory = self.memory_type(seed)
        self.card = self.card_type(self.memory, loop, _lost, self._interrupt, seed=seed, **card_options)
        self._buffers = Buffers()
        self._latched = False
        self._apps: dict[threading.Thread, App] = {}      # applications on this host

    @property
    def transmit(self) -> Callable[..., object]:
        """``callable(frame, time_ns)``, the receiver of the card's frames, set when the card is connected."""
        return self.card.send_frame

    @transmit.setter
    def transmit(self, receiver: Callable[..., object]) -> None:
        self.card.send_frame = receiver

    def _interrupt(self, vector: int) -> None:
        self._latched = True
        for app in self._apps.values():
            if app.sleeping is not None and app.until_woken:
                self.loop.call_in(0, app.wake, app.sleeping)

    def read32(self, offset: int) -> int:
        return self.card.read(offset) & 0xFFFF_FFFF

    def read64(self, offset: int) -> int:
        return self.card.read(offset)

    def write32(self, offset: int, value: int) -> None:
        self.card.write(offset, value & 0xFFFF_FFFF)

    def write64(self, offset: int, value: int) -> None:
        self.card.write(offset, value)

    def write_block(self, offset: int, data: bytes) -> None:
        self.card.push(offset, data)

    def alloc(self, size: int, *, align: int = 64, contiguous: bool = True, page_bytes: int = 4096) -> DmaBuffer:
        buffer = self.memory.alloc(size, align, contiguous, page_bytes)
        self._buffers.add(buffer)
        return buffer

    def free(self, buffer: DmaBuffer) -> None:
        self._buffers.remove(buffer)
        self.memory.free(buffer)

    def attach(self, memory: ForeignMemory, address: int, size: int, va: int, page_bytes: int) -> DmaBuffer:
        return self.memory.attach(memory, address, size, va, page_bytes)

    def detach(self, buffer: DmaBuffer) -> None:
        self.memory.detach(buffer)

    def pin(self, address: int, length: int) -> DmaBuffer:
        """Return the buffer that was allocated there: an application here has no other memory."""
        return self.buffer_at(address, length)

    def buffer_at(self, va: int, length: int) -> DmaBuffer:
        return self._buffers.find(va, length)

    def now_ns(self) -> float:
        return self.loop.now_ns

    def _app(self) -> "App | None":
        """Return the application of this host that calls, or None."""
        return self._apps.get(threading.current_thread())

    def acquire(self, lock: threading.Lock) -> None:
        app = self._app()
        if app is None:
            lock.acquire()
            return
        while not lock.acquire(blocking=False):
            app.sleep(ACQUIRE_NS)

    def wait(self, timeout_ns: float) -> bool:
        if not self._latched:
            app = self._app()
            if app is None:
                self.loop.run(self.loop.now_ns + timeout_ns, lambda: self._latched)
            else:
                app.sleep(timeout_ns)
        latched, self._latched = self._latched, False
        return latched


class App:
    """Application of one host in a separate thread, which alternates with the event loop. A host may have several.

    Attributes
    ----------
    sleeping
        Number of the current sleep.
    """

    def __init__(self, device: FunctionalDevice, function: Callable[[], Any]) -> None:
        self.device, self.done = device, False
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended: Callable[[], object] = lambda: None
        self._function = function
        self.sleeping: int | None = None
        self.until_woken, self._sleeps = True, 0
        self._go, self._back = threading.Lock(), threading.Lock()      # pass control to the application, and back
        self._go.acquire()
        self._back.acquire()
        self.thread = threading.Thread(target=self._run, daemon=True)
        device._apps[self.thread] = self
        self.thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self.result = self._function()
        except BaseException as error:  # raised again by run_apps
            self.error = error
        self.done = True
        self.ended()
        self._back.release()

    def resume(self) -> None:
        """Let the application run until it waits."""
        self._go.release()
        self._back.acquire()

    def sleep(self, timeout_ns: float, until_woken: bool = True) -> None:
        """Suspend the calling application for ``timeout_ns``, or until an interrupt if ``until_woken``."""
        self.until_woken = until_woken
        self._sleeps += 1
        self.sleeping = self._sleeps
        self.device.loop.call_in(timeout_ns, self.wake, self.sleeping)
        self._back.release()
        self._go.acquire()

    def wake(self, sleep: int) -> None:
        """End the sleep with this number unless it has ended."""
        if self.sleeping == sleep:
            self.sleeping = None
            self.resume()


def run_apps(loop: EventLoop, apps: Iterable[tuple[FunctionalDevice, Callable[[], Any]]], limit_ns: float) -> list[Any]:
    """Run ``(device, function)`` applications until all have ended; return their results.

    Raises
    ------
    TimeoutError
        If one has not ended after ``limit_ns`` of simulated time.
    """
    running = [App(device, function) for device, function in apps]
    for app in running:
        loop.call_in(0, app.resume)
    until, left = loop.now_ns + limit_ns, set(running)
    ended: list[App] = []
    for app in running:
        app.ended = partial(ended.append, app)
    while left and not any(app.error for app in running) and loop.run(until, ended.__len__):
        left.difference_update(ended)
        ended.clear()
    for app in running:
        del app.device._apps[app.thread]
        app.sleeping = None
    for app in running:
        if app.error:
            raise app.error
    if not all(app.done for app in running):
        raise TimeoutError(f"applications still run after {limit_ns} simulated ns")
    return [app.result for app in running]


def connected_pair(*, seed: int | str = 0, forward: LinkConfig | None = None, backward: LinkConfig | None = None,
                   device_type: type[FunctionalDevice] = FunctionalDevice,
                   taps: Callable[[str], Iterable[Tap | None]] = lambda direction: (),
                   **card_options: Any) -> tuple[EventLoop, list[FunctionalDevice], list[Link]]:
    """Return (loop, devices, links) of two hosts with connected cards; ``links[i]`` carries the frames of host i.

    ``taps(direction)`` returns the taps of the link ``"a_to_b"`` or ``"b_to_a"``.
    """
    loop = EventLoop()
    devices = [device_type(loop, seed=f"{seed}/{side}", **card_options) for side in "ab"]
    configs = (forward or LinkConfig(), backward or forward or LinkConfig())
    links = [Link(loop, peer.card.receive, config, f"{seed}/{direction}", *taps(direction))
             for peer, config, direction in zip(devices[::-1], configs, ("a_to_b", "b_to_a"), strict=True)]
    for device, link in zip(devices, links, strict=True):
        device.transmit = link.send
    return loop, devices, links
