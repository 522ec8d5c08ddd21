"""Verbs that one thread at a time may be in, for each card."""

import functools


class NoLock:
    """Of what no other thread uses: always there to be taken, as a :class:`CardLock` is."""

    def acquire(self, _blocking=True):
        return True

    def release(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


NO_LOCK = NoLock()


def locked(method):
    """A method of a card or of an object of a context, with the lock of the card."""
    @functools.wraps(method)
    def inside(self, *args, **kwargs):
        lock = getattr(self, "context", self).lock
        if not lock.acquire(False):
            lock.wait()
        try:
            return method(self, *args, **kwargs)
        finally:
            lock.release()

    return inside


def made_locked(method):
    """``__init__`` of an object that a context, or an object of one, creates."""
    @functools.wraps(method)
    def inside(self, creator, *args, **kwargs):
        with getattr(creator, "lock", None) or NO_LOCK:
            method(self, creator, *args, **kwargs)

    return inside
