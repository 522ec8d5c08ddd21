"""The lock of a card: one thread at a time is in its driver, and none that waits for the card."""

import contextlib
import threading
from threading import get_ident


class CardLock:
    """Reentrant. Whoever waits for the card gives it up whole, however often it was taken.

    Parameters
    ----------
    device : Device
        Its ``acquire`` waits for a lock that another thread has.
    """

    __slots__ = ("_depth", "_device", "_lock", "_owner", "_wanted")

    def __init__(self, device):
        self._device, self._lock = device, threading.Lock()
        self._owner, self._depth = None, 0
        self._wanted = 0

    @property
    def wanted(self):
        """Another thread waits for it."""
        return self._wanted > 0

    def _take(self, depth):
        if not self._lock.acquire(blocking=False):
            self._wanted += 1
            self._device.acquire(self._lock)
            self._wanted -= 1
        self._owner, self._depth = get_ident(), depth

    def _leave(self):
        depth, self._owner, self._depth = self._depth, None, 0
        self._lock.release()
        return depth

    def __enter__(self):
        me = get_ident()
        if self._owner == me:
            self._depth += 1
        elif self._lock.acquire(False):
            self._owner, self._depth = me, 1
        else:
            self._take(1)
        return self

    def __exit__(self, *_):
        if self._depth > 1:
            self._depth -= 1
        else:
            self._owner, self._depth = None, 0
            self._lock.release()

    @contextlib.contextmanager
    def given_up(self):
        """Without the lock, if this thread has it, and with it again behind the block."""
        if self._owner != get_ident():
            yield
            return
        depth = self._leave()
        try:
            yield
        finally:
            self._take(depth)
