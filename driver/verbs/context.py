"""Context: a program's handle of an open card."""

import collections
import contextlib
import threading
import time
from operator import attrgetter

from ..device.capabilities import IncompatibleCard
from ..device.health import DeviceFatal
from ..queue.command import CommandError, CommandTimeout
from ..terms.checks import instance
from ..terms.closing import Closing
from ..terms.errors import InvalidValue, PyverbsUserError
from .card import Card
from .config import ContextConfig
from .device_list import open_card
from .ending import abandon_all, end_all, end_mine
from .queries import Queries

TURN_S = 1e-5           # time for which the progress thread releases the lock, so that other threads can take it
IDLE_NS = 1_000_000     # longest wait of the progress thread
__all__ = ["Context", "ContextConfig", "DeviceFatal", "IncompatibleCard"]

_OF_CARD = ("device", "mac", "ip", "config", "capabilities", "engine", "knitting", "mrs", "kept", "mr_indices",
            "pte_ranges", "key_tags", "local_keys", "lending", "new_pd", "send_raw", "statistics", "reset")
_OF_ENGINE = ("lock", "commands", "qps", "rings", "counts", "neighbours", "raw_frame_handlers", "transmitting",
              "host_qpns")


class Context(Queries, Closing):
    """Open device.

    All contexts that a program opens by the same ``name`` of :func:`~weft.driver.verbs.device_list.get_device_list`
    share a card. With a ``device`` of the program, the card belongs to this context alone.

    Parameters
    ----------
    device : Device or None
    name : str or None
    mac, ip : int
        Addresses of the card, with ``device``.
    config : ContextConfig or None

    Attributes
    ----------
    card : Card
        ``device, mac, ip, config, capabilities, engine, knitting, mrs, statistics(), send_raw()`` and ``reset()`` of
        the context are those of the card; ``commands, qps, rings, counts, neighbours, raw_frame_handlers, host_qpns``
        are those of its engine.
    pds, cqs, channels : dict
        Objects of the context as keys, oldest first.
    async_events : deque of AsyncEvent

    Raises
    ------
    IncompatibleCard
        If magic or major version differ.
    InvalidValue
        If a setting is invalid, or another context uses the device.
    PyverbsUserError
        If neither ``device`` nor ``name`` is given.
    """

    def __init__(self, device=None, *, name=None, mac=None, ip=None, config=None, attr=None):
        if device is None and name is None:
            raise PyverbsUserError("Device name must be provided")
        if name is not None:
            instance("name", name, str, bytes)
        self._name = name
        self.card = open_card(name) if device is None else Card(device, mac=mac, ip=ip, config=config)
        self.pds, self.cqs, self.channels = {}, {}, {}
        self.async_events = collections.deque()
        self.card.contexts[self] = None
        self._thread = None

    @property
    def open(self):
        return self in self.card.contexts

    @property
    def name(self):
        return self._name

    def check_open(self):
        """Raise InvalidValue if the context is closed."""
        if not self.open:
            raise InvalidValue("the context is closed")

    # ------------------------------------------------------------------------------------ progress

    def progress(self):
        """Do one round of all work of the driver, without waiting; return true if something happened."""
        card = self.card
        engine = card.engine
        if self in card.contexts and engine.rests():
            return False
        lock = engine.lock
        if not lock.acquire(False):
            lock.wait()
        try:
            if self not in card.contexts:
                self.check_open()
            return engine.round()
        finally:
            lock.release()

    def wait(self, timeout_ns):
        """Wait: see :meth:`~weft.driver.engine.card_engine.CardEngine.wait`."""
        with self.lock:
            self.check_open()
            return self.engine.wait(timeout_ns)

    def run_until(self, condition, timeout_ns=None):
        """Make progress until a condition holds: see :meth:`~weft.driver.engine.card_engine.CardEngine.run_until`."""
        self.check_open()
        self.engine.run_until(condition, timeout_ns)

    def serve(self, timeout_ns):
        """Answer the peers for ``timeout_ns``; enough for a program that only lets peers access its memory."""
        deadline = self.device.now_ns() + timeout_ns
        while (left := deadline - self.device.now_ns()) > 0:
            if not self.progress():
                self.wait(left)

    def start_progress(self):
        """Start a thread that makes progress until the context is closed.

        The peers get answers then, whatever the program does. Simulated devices do not need the thread: for them, call
        :meth:`serve` in a separate thread.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_going, name=f"progress of {self.name}", daemon=True)
            self._thread.start()

    def _keep_going(self):
        with contextlib.suppress(DeviceFatal):      # threads that wait for the card get the exception, too
            while self.open:
                with self.lock:
                    if self.open and not self.engine.progress():
                        self.engine.wait(IDLE_NS)
                if self.lock.wanted:
                    time.sleep(TURN_S)

    def get_async_event(self, timeout_ns=None):
        """Wait for an :class:`~weft.driver.verbs.events.AsyncEvent` and return it.

        Raises
        ------
        TimedOut
        """
        with self.lock:
            self.engine.listeners += 1
            try:
                self.run_until(lambda: self.async_events, timeout_ns)
            finally:
                self.engine.listeners -= 1
            return self.async_events.popleft()

    # ------------------------------------------------------------------------------------------ end

    def close(self):
        """Destroy all objects of the context: QPs first, then MRs and PDs, then CQs and channels, each oldest first.

        The last context of a card stops the card and frees its memory. A card that does not answer any more is reset
        instead.

        Raises
        ------
        TimeoutError
            If the card does not come out of reset: it may still use all of its memory, and nothing is freed.
        CommandError, CommandTimeout
            If a card that other contexts use does not answer. The call may be repeated.
        """
        with self.lock:
            if self.open:
                self._close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _close(self):
        if len(self.card.contexts) > 1:
            end_mine(self)
        else:
            try:
                end_all(self)
            except (CommandError, CommandTimeout, DeviceFatal, TimeoutError):
                abandon_all(self)
            self.card.stop()
        del self.card.contexts[self]


for _name in _OF_CARD:
    setattr(Context, _name, property(attrgetter("card." + _name)))
for _name in _OF_ENGINE:
    setattr(Context, _name, property(attrgetter("card.engine." + _name)))
