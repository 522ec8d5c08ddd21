"""QP table: what the card must know of a QP to let a packet in or out."""

from ..layouts import qp_entry
from .entry import EntryTable, read_port, write_port


class QpTable(EntryTable):
    """One :func:`~weft.hdl.layouts.qp_entry` per QPN; state RESET (zero) is no QP. See :class:`EntryTable`.

    Parameters
    ----------
    params : CardParams
    readers : int
        Read ports: transmit, receive, command processor.
    """

    def __init__(self, params, readers=3):
        super().__init__(depth=params.qps, shape=qp_entry(), readers=readers)


def qp_read_port(params):
    """Read port of the QP table, seen from the reader."""
    return read_port(params.qpn_width, qp_entry())


def qp_write_port(params):
    """Write port of the QP table, seen from the writer."""
    return write_port(params.qpn_width, qp_entry())
