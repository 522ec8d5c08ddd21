"""The lock of a card: one thread at a time is in its driver, and none that waits for the card."""

import threading


class CardLock(type(threading.RLock())):
    """Reentrant. Whoever waits for the card gives it up whole, however often it was taken.

    Taken with ``with``, or in what runs all the time without a call of Python's::

        if not lock.acquire(False):
            lock.wait()
        try: ...
        finally: lock.release()

    Parameters
    ----------
    device : Device
        Its ``acquire`` waits for a lock that another thread has.
    """

    def __new__(cls, _device):
        return super().__new__(cls)

    def __init__(self, device):
        self._device, self._waiting = device, 0

    @property
    def wanted(self):
        """Another thread waits for it."""
        return self._waiting > 0

    def wait(self):
        """Take it from another thread."""
        self._waiting += 1
        self._device.acquire(self)
        self._waiting -= 1

    def __enter__(self):
        if not self.acquire(False):
            self.wait()
        return self

    def give_up(self):
        """Without the lock from now on, if this thread has it; how often it was taken, for :meth:`take_back`."""
        depth = 0
        while self._is_owned():
            self.release()
            depth += 1
        return depth

    def take_back(self, depth):
        """Take the lock so often."""
        for _ in range(depth):
            if not self.acquire(False):
                self.wait()
