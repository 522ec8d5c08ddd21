"""Contexts that connection management opens: one for each card, open as long as a CMID uses it."""

import threading
from dataclasses import dataclass

from ..verbs.context import Context
from ..verbs.device_list import device_at
from ..verbs.pd import PD

HELD: "dict[str, SharedContext]" = {}     # by name of the device
_lock = threading.Lock()


@dataclass(eq=False)
class SharedContext:
    """Context and protection domain that CMIDs share.

    Attributes
    ----------
    name : str or None
        Name of the device; None if context and protection domain belong to the program.
    """

    context: Context
    pd: PD
    name: str | None = None
    users: int = 0

    def release(self) -> None:
        """Remove a user; the last one closes the context."""
        if self.name is None:
            return
        with _lock:
            self.users -= 1
            last = not self.users
            if last:
                del HELD[self.name]
        if last:
            self.context.close()


def hold(ip: int, pd: PD | None = None) -> SharedContext:
    """Return the :class:`SharedContext` of the device with an address, of the only one for 0, or of ``pd``.

    Raises
    ------
    PyverbsRDMAError
        If there is no such device.
    """
    if pd is not None:
        pd.check_open()
        return SharedContext(pd.context, pd)
    name = device_at(ip)
    mine = None
    while True:
        with _lock:
            if mine is not None:
                HELD.setdefault(name, mine)
            if (held := HELD.get(name)) is not None:
                held.users += 1
                break
        context = Context(name=name)      # takes time, so other threads run meanwhile
        mine = SharedContext(context, PD(context), name)
    if mine not in (None, held):
        mine.context.close()
    return held
