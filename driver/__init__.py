"""User-space driver; a program imports from here all that :mod:`weft.driver.names` lists.

For example ``from weft.driver import CQ, MR, PD, QP, Context``. ``import weft.driver`` and the import of a module below
it load none of them: the first use of a name does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .names import *  # noqa: F403
    from .names import __all__ as __all__


def __getattr__(name: str) -> Any:
    """Return an object of :mod:`weft.driver.names`."""
    names = import_module(".names", __name__)
    if name == "__all__" or name in names.__all__:
        return getattr(names, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
