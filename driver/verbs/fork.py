"""Fork support: child processes never get memory that a card uses, whether the program requests that or not.

Registered memory that is memory of the process is excluded from its children (MADV_DONTFORK): see ``driver/linux/``.
"""

from ..terms.init_enums import ForkStatus


def fork_init() -> None:
    """Do nothing: fork support is always enabled."""


def is_fork_initialized() -> ForkStatus:
    """Return the :class:`ForkStatus`, always ENABLED."""
    return ForkStatus.ENABLED
