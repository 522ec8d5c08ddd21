"""Status block: consumer indices of the host-to-card rings."""

import collections

from weft.hdl.contract import abi

from .words import words

_NAMES = [field.name for field in abi.STATUS_BLOCK.fields if not field.name.startswith("_")]
_WORDS = words(abi.STATUS_BLOCK, *_NAMES)

Status = collections.namedtuple("Status", _NAMES)
Status.__doc__ = """Indices by the names of ``STATUS_BLOCK``."""


def unpack_status(data):
    """Return the :class:`Status` of the block's bytes."""
    return tuple.__new__(Status, _WORDS.unpack(data))
