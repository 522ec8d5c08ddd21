"""Kinds of tables: entry shapes and ports of the QP, MR and page tables."""

from collections.abc import Callable
from dataclasses import dataclass

from ..contract.abi import PTE_PAGE_BITS
from ..contract.params import exact_log2
from ..part.layouts import mr_entry, qp_entry, qp_state
from .entry import EntryTable, read_port, write_port

ULTRA_RAM_DEPTH = 4096      # rows of one UltraRAM


@dataclass(frozen=True)
class TableKind:
    """A table of the card.

    Attributes
    ----------
    entries : str
        Name of the parameter with the number of entries.
    shape : callable(params)
        Shape of an entry.
    ultra : bool
        Use UltraRAM if the table fills at least one.
    """

    entries: str
    shape: Callable
    ultra: bool = True

    def memory(self, params, *, readers):
        """Return the table, an :class:`EntryTable`."""
        depth = getattr(params, self.entries)
        return EntryTable(depth=depth, shape=self.shape(params), readers=readers,
                          ultra=self.ultra and depth >= ULTRA_RAM_DEPTH)

    def read_port(self, params):
        """Return the signature of a read port, seen from the reader."""
        return read_port(exact_log2(getattr(params, self.entries)), self.shape(params))

    def write_port(self, params):
        """Return the signature of the write port, seen from the writer."""
        return write_port(exact_log2(getattr(params, self.entries)), self.shape(params))


# State of a QP for the checks of its packets; state RESET (zero) is no QP.
QP_TABLE = TableKind("qps", qp_entry)
# A subset for readers that need no more: a few bits, in block RAM, without a multiplexer of banks after it.
QP_STATES = TableKind("qps", qp_state, ultra=False)
# The first level of translation, from key to range and permission; zero is no MR.
MR_TABLE = TableKind("mrs", lambda params: mr_entry())
# The second level: physical addresses divided by 4096, one per 4 KiB or 2 MiB page of an MR.
PAGE_TABLE = TableKind("ptes", lambda params: PTE_PAGE_BITS)
