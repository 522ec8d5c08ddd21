"""Locks of the verbs: one thread at a time executes verbs on a card."""

import functools


class NoLock:
    """Lock of an object that only one thread uses: always free, with the interface of :class:`CardLock`."""

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
    """Decorate a method of a card, or of an object of a context, so that it runs under the lock of the card."""
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
    """Decorate ``__init__`` of an object, so that it runs under the lock of its creator's card.

    The creator is a context or an object of a context. A creator without a lock needs none.
    """
    @functools.wraps(method)
    def inside(self, creator, *args, **kwargs):
        with getattr(creator, "lock", None) or NO_LOCK:
            method(self, creator, *args, **kwargs)

    return inside
