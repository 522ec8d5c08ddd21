"""Lock of a card: at most one thread runs in its driver, and no thread holds the lock while it waits for the card."""

import threading


class CardLock(type(threading.RLock())):
    """Reentrant lock. A thread that waits for the card releases it completely, however often it was acquired.

    Acquired with ``with``, or in frequent code without a Python call::

        if not lock.acquire(False):
            lock.wait()
        try: ...
        finally: lock.release()

    Parameters
    ----------
    device : Device
        Its ``acquire`` waits for a lock that another thread holds.
    """

    def __new__(cls, _device):
        return super().__new__(cls)

    def __init__(self, device):
        self._device, self._waiting = device, 0

    @property
    def wanted(self):
        """True if another thread waits for the lock."""
        return self._waiting > 0

    def wait(self):
        """Acquire the lock while another thread holds it."""
        self._waiting += 1
        self._device.acquire(self)
        self._waiting -= 1

    def __enter__(self):
        if not self.acquire(False):
            self.wait()
        return self

    def give_up(self):
        """Release the lock completely if this thread holds it. Return the number of releases, for :meth:`take_back`."""
        depth = 0
        while self._is_owned():
            self.release()
            depth += 1
        return depth

    def take_back(self, depth):
        """Acquire the lock ``depth`` times."""
        for _ in range(depth):
            if not self.acquire(False):
                self.wait()
