"""MR table: the first level of translation, from key to range and permission."""

from ..layouts import mr_entry
from .entry import EntryTable, read_port, write_port


class MrTable(EntryTable):
    """One :func:`~weft.hdl.layouts.mr_entry` per MR index; zero is no MR. See :class:`EntryTable`.

    Parameters
    ----------
    params : CardParams
    readers : int
        Read ports: transmit, receive, command processor.
    """

    def __init__(self, params, readers=3):
        super().__init__(depth=params.mrs, shape=mr_entry(), readers=readers)


def mr_read_port(params):
    """Read port of the MR table, seen from the reader."""
    return read_port(params.mr_width, mr_entry())


def mr_write_port(params):
    """Write port of the MR table, seen from the writer."""
    return write_port(params.mr_width, mr_entry())
