"""Hosts with a functional card, and applications that block in simulated time.

Each application runs in a separate thread, but only one thread runs at any moment, and only until it waits. Runs are
therefore deterministic.
"""

import threading

from weft.driver.device.buffers import Buffers
from weft.driver.device.device import Device
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop

from .card import FunctionalCard
from .memory import HostMemory

ACQUIRE_NS = 1_000     # interval of a program's attempts to take a lock


class FunctionalDevice(Device):
    """Functional card as the driver's :class:`~weft.driver.device.device.Device`.

    Parameters
    ----------
    loop : EventLoop
    seed : hashable
        Seed of the addresses of physical pages and of the order of reports.
    card_options
        Passed to :class:`FunctionalCard`.
    """

    memory_type, card_type = HostMemory, FunctionalCard
    pushes = True

    def __init__(self, loop, *, seed=0, **card_options):
        self.loop = loop
        self.memory = self.memory_type(seed)
        self.transmit = None     # set when the card is connected
        self.card = self.card_type(self.memory, loop, lambda *sent: self.transmit(*sent), self._interrupt,
                                   seed=seed, **card_options)
        self._buffers = Buffers()
        self._latched = False
        self._apps = {}          # thread -> App of an application on this host

    def _interrupt(self, vector):
        self._latched = True
        for app in self._apps.values():
            if app.sleeping is not None and app.until_woken:
                self.loop.call_in(0, app.wake, app.sleeping)

    def read32(self, offset):
        return self.card.read(offset) & 0xFFFF_FFFF

    def read64(self, offset):
        return self.card.read(offset)

    def write32(self, offset, value):
        self.card.write(offset, value & 0xFFFF_FFFF)

    def write64(self, offset, value):
        self.card.write(offset, value)

    def write_block(self, offset, data):
        self.card.push(offset, data)

    def alloc(self, size, *, align=64, contiguous=True, page_bytes=4096):
        buffer = self.memory.alloc(size, align, contiguous, page_bytes)
        self._buffers.add(buffer)
        return buffer

    def free(self, buffer):
        self._buffers.remove(buffer)
        self.memory.free(buffer)

    def attach(self, memory, address, size, va, page_bytes):
        return self.memory.attach(memory, address, size, va, page_bytes)

    def detach(self, buffer):
        self.memory.free(buffer)

    def pin(self, address, length):
        """Return the buffer that was allocated there: an application here has no other memory."""
        return self.buffer_at(address, length)

    def buffer_at(self, va, length):
        return self._buffers.find(va, length)

    def now_ns(self):
        return self.loop.now_ns

    def _app(self):
        """Return the application of this host that calls, or None."""
        return self._apps.get(threading.current_thread())

    def acquire(self, lock):
        app = self._app()
        if app is None:
            lock.acquire()
            return
        while not lock.acquire(blocking=False):
            app.sleep(ACQUIRE_NS)

    def wait(self, timeout_ns):
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
    sleeping : int or None
        Number of the current sleep.
    """

    def __init__(self, device, function):
        self.device, self.result, self.error, self.done = device, None, None, False
        self.ended = lambda: None
        self._function = function
        self.sleeping, self.until_woken, self._sleeps = None, True, 0
        self._go, self._back = threading.Lock(), threading.Lock()      # pass control to the application, and back
        self._go.acquire()
        self._back.acquire()
        self.thread = threading.Thread(target=self._run, daemon=True)
        device._apps[self.thread] = self
        self.thread.start()

    def _run(self):
        self._go.acquire()
        try:
            self.result = self._function()
        except BaseException as error:  # raised again by run_apps
            self.error = error
        self.done = True
        self.ended()
        self._back.release()

    def resume(self):
        """Let the application run until it waits."""
        self._go.release()
        self._back.acquire()

    def sleep(self, timeout_ns, until_woken=True):
        """Suspend the calling application for ``timeout_ns``, or until an interrupt if ``until_woken``."""
        self.until_woken = until_woken
        self._sleeps += 1
        self.sleeping = self._sleeps
        self.device.loop.call_in(timeout_ns, self.wake, self.sleeping)
        self._back.release()
        self._go.acquire()

    def wake(self, sleep):
        """End the sleep with this number unless it has ended."""
        if self.sleeping == sleep:
            self.sleeping = None
            self.resume()


def run_apps(loop, apps, limit_ns):
    """Run ``(device, function)`` applications until all have ended; return their results.

    Raises
    ------
    TimeoutError
        If one has not ended after ``limit_ns`` of simulated time.
    """
    apps = [App(device, function) for device, function in apps]
    for app in apps:
        loop.call_in(0, app.resume)
    until, left, ended = loop.now_ns + limit_ns, set(apps), []
    for app in apps:
        app.ended = lambda app=app: ended.append(app)
    while left and not any(app.error for app in apps) and loop.run(until, ended.__len__):
        left.difference_update(ended)
        ended.clear()
    for app in apps:
        del app.device._apps[app.thread]
        app.sleeping = None
    for app in apps:
        if app.error:
            raise app.error
    if not all(a.done for a in apps):
        raise TimeoutError(f"applications still run after {limit_ns} simulated ns")
    return [a.result for a in apps]


def connected_pair(*, seed=0, forward=None, backward=None, device_type=FunctionalDevice, taps=lambda way: (),
                   **card_options):
    """Return (loop, devices, links) of two hosts with connected cards; ``links[i]`` carries the frames of host i.

    ``taps(way)`` returns the taps of the link ``"a_to_b"`` or ``"b_to_a"``.
    """
    loop = EventLoop()
    devices = [device_type(loop, seed=f"{seed}/{side}", **card_options) for side in "ab"]
    configs = (forward or LinkConfig(), backward or forward or LinkConfig())
    links = [Link(loop, peer.card.receive, config, f"{seed}/{way}", *taps(way))
             for peer, config, way in zip(devices[::-1], configs, ("a_to_b", "b_to_a"), strict=True)]
    for device, link in zip(devices, links, strict=True):
        device.transmit = link.send
    return loop, devices, links
