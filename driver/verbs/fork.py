"""Processes that fork: children never get memory that a card uses, whether the program asks for that or not.

Where registered memory is memory of a process it is kept from its children (MADV_DONTFORK): see ``driver/linux/``.
"""

from ..terms.init_enums import ForkStatus


def fork_init():
    """Nothing is left to do."""


def is_fork_initialized():
    """:class:`ForkStatus`: it is."""
    return ForkStatus.ENABLED
