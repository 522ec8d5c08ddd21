"""Checks of arguments, with uniform error messages."""

import functools
import operator
import typing
from typing import NamedTuple

from .enums import AccessFlag
from .errors import InvalidValue, NotSupported

_EXISTING = (AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC
             | AccessFlag.HUGETLB | AccessFlag.RELAXED_ORDERING)   # the verbs permit to ignore the last one
_REMOTE = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_ATOMIC


def between(name, value, low, high):
    """Return ``value`` as an int.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is not from ``low`` to ``high``.
    """
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; an integer is needed") from None
    if not low <= value <= high:
        raise InvalidValue(f"{name} is {value}; {low} to {high} are possible")
    return value


class Range(NamedTuple):
    """Permitted integers of a dataclass field, limits included: ``depth: Annotated[int, Range(0, 16)] = 1``."""

    low: int
    high: int


def check_ranges(settings):
    """Check every field of a dataclass that has a :class:`Range`. Raises as :func:`between`."""
    for name, limits in _ranges(type(settings)).items():
        between(name, getattr(settings, name), *limits)


@functools.cache
def _ranges(kind):
    """Return ``{field name: Range}`` of a dataclass."""
    return {name: one for name, hint in typing.get_type_hints(kind, include_extras=True).items()
            for one in getattr(hint, "__metadata__", ()) if isinstance(one, Range)}


def unsigned(name, value, bits):
    """Return ``value`` as an int of ``bits`` bits. Raises as :func:`between`."""
    return between(name, value, 0, (1 << bits) - 1)


def member(name, value, kind):
    """Return ``value`` as a member of an enumeration, or as flags.

    Raises
    ------
    ValueError
        If there is no such member.
    """
    try:
        return kind(value)
    except ValueError:
        raise InvalidValue(f"{name} is {value!r}, which is no {kind.__name__}") from None


def instance(name, value, *kinds):
    """Raise TypeError if ``value`` is not an instance of one of ``kinds``."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} is {value!r}; a {' or a '.join(kind.__name__ for kind in kinds)} is needed")


def mr_access(access):
    """Return ``access`` as flags of a memory region.

    Raises
    ------
    ValueError
        If there are no such flags, or the peer could write but the host could not.
    """
    return _mr_access(access) if isinstance(access, int) else _mr_access.__wrapped__(access)


@functools.lru_cache(typed=True)
def _mr_access(access):
    access = member("access", access, AccessFlag)
    if absent := int(access) & ~int(_EXISTING):
        raise NotSupported(f"Failed to register a MR: access {absent:#x} does not exist here")
    if access & _REMOTE and not access & AccessFlag.LOCAL_WRITE:
        raise InvalidValue("Failed to register a MR: memory that a peer may write must be writable locally as well")
    return access
