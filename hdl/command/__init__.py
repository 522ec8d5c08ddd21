"""Command Queue: the driver's commands become table entries, list operations and answers.

``processor`` takes one command after the other; ``check`` judges its fields, ``qp_port`` serialises
changes of the QP table, ``page_writer`` fills the page table from host memory, ``statistics`` writes
the counters to it.
"""

from .processor import CommandProcessor, Extent, ListDestroy

__all__ = ["CommandProcessor", "Extent", "ListDestroy"]
