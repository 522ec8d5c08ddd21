"""Locks of the verbs: one thread at a time executes verbs on a card."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar


class NoLock:
    """Lock of an object that only one thread uses: always free, with the interface of :class:`CardLock`."""

    def acquire(self, _blocking: bool = True) -> bool:
        return True

    def release(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


NO_LOCK = NoLock()

P = ParamSpec("P")
Object = TypeVar("Object")
Result = TypeVar("Result")


def locked(method: Callable[Concatenate[Object, P], Result]) -> Callable[Concatenate[Object, P], Result]:
    """Decorate a method of a card, or of an object of a context, so that it runs under the lock of the card."""
    @functools.wraps(method)
    def inside(self: Any, *args: P.args, **kwargs: P.kwargs) -> Result:
        lock = getattr(self, "context", self).lock
        if not lock.acquire(False):
            lock.wait()
        try:
            return method(self, *args, **kwargs)
        finally:
            lock.release()

    return inside


def made_locked(method: Callable[Concatenate[Object, P], None]) -> Callable[Concatenate[Object, P], None]:
    """Decorate ``__init__`` of an object, so that it runs under the lock of its creator's card.

    The creator, its first argument, is a context or an object of a context. A creator without a lock needs none.
    """
    _, name, *_ = inspect.signature(method).parameters

    @functools.wraps(method)
    def inside(self: Object, *args: P.args, **kwargs: P.kwargs) -> None:
        creator = args[0] if args else kwargs.get(name)
        with getattr(creator, "lock", None) or NO_LOCK:
            method(self, *args, **kwargs)

    return inside
