"""Verbs that one thread at a time may be in, for each card."""

import contextlib
import functools

NO_LOCK = contextlib.nullcontext()


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
