"""Arguments that make no sense are refused when they are given, in one wording."""

import functools
import operator
import typing
from typing import NamedTuple

from .enums import AccessFlag
from .errors import InvalidValue, NotSupported

_EXISTING = (AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC
             | AccessFlag.HUGETLB | AccessFlag.RELAXED_ORDERING)   # the last one may be ignored, as the verbs say
_REMOTE = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_ATOMIC


def between(name, value, low, high):
    """``value`` as an int.

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
    """Integers that a field of a dataclass may have, ends included: ``depth: Annotated[int, Range(0, 16)] = 1``."""

    low: int
    high: int


def check_ranges(settings):
    """Check every field of a dataclass that has a :class:`Range`; raise as :func:`between` does."""
    for name, limits in _ranges(type(settings)).items():
        between(name, getattr(settings, name), *limits)


@functools.cache
def _ranges(kind):
    """``{field name: Range}`` of a dataclass."""
    return {name: one for name, hint in typing.get_type_hints(kind, include_extras=True).items()
            for one in getattr(hint, "__metadata__", ()) if isinstance(one, Range)}


def unsigned(name, value, bits):
    """The same for a number of so many bits."""
    return between(name, value, 0, (1 << bits) - 1)


def member(name, value, kind):
    """``value`` as a member of an enumeration, or as flags.

    Raises
    ------
    ValueError
        If there is no such one.
    """
    try:
        return kind(value)
    except ValueError:
        raise InvalidValue(f"{name} is {value!r}, which is no {kind.__name__}") from None


def instance(name, value, *kinds):
    """Raise TypeError if ``value`` is none of ``kinds``."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} is {value!r}; a {' or a '.join(kind.__name__ for kind in kinds)} is needed")


def mr_access(access):
    """``access`` as flags of a memory region.

    Raises
    ------
    ValueError
        If there are no such flags, or the peer may write where the host may not.
    """
    access = member("access", access, AccessFlag)
    if absent := int(access) & ~int(_EXISTING):
        raise NotSupported(f"Failed to register a MR: access {absent:#x} does not exist here")
    if access & _REMOTE and not access & AccessFlag.LOCAL_WRITE:
        raise InvalidValue("Failed to register a MR: memory that a peer may write must be writable locally as well")
    return access
