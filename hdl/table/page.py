"""Page table: the second level of translation, from entry index to physical page."""

from ..abi import PTE_PAGE_BITS
from .entry import EntryTable, read_port, write_port


class PageTable(EntryTable):
    """Physical addresses divided by 4096, one per 4 KiB or 2 MiB page of an MR. See :class:`EntryTable`.

    Parameters
    ----------
    params : CardParams
    readers : int
        Read ports: transmit, receive.
    """

    def __init__(self, params, readers=2):
        super().__init__(depth=params.ptes, shape=PTE_PAGE_BITS, readers=readers)


def page_read_port(params):
    """Read port of the page table, seen from the reader."""
    return read_port(params.pte_width, PTE_PAGE_BITS)


def page_write_port(params):
    """Write port of the page table, seen from the writer."""
    return write_port(params.pte_width, PTE_PAGE_BITS)
