"""The contexts that connection management opens: one for each card, as long as some CMID uses it."""

import threading
from dataclasses import dataclass

from ..verbs.context import Context
from ..verbs.device_list import device_at
from ..verbs.pd import PD

HELD = {}     # name of the device -> Held
_lock = threading.Lock()


@dataclass(eq=False)
class Held:
    """A context and a protection domain that CMIDs share.

    Attributes
    ----------
    name : str or None
        None if they are the program's own.
    """

    context: Context
    pd: PD
    name: str | None = None
    users: int = 0

    def release(self):
        """One CMID less uses it; the last one closes it."""
        if self.name is None:
            return
        with _lock:
            self.users -= 1
            last = not self.users
            if last:
                del HELD[self.name]
        if last:
            self.context.close()


def hold(ip, pd=None):
    """The :class:`Held` of the device with an address, or of the only one there is for 0; with a ``pd`` the program's.

    Raises
    ------
    PyverbsRDMAError
        If there is no such device.
    """
    if pd is not None:
        pd.check_open()
        return Held(pd.context, pd)
    name = device_at(ip)
    mine = None
    while True:
        with _lock:
            if mine is not None:
                HELD.setdefault(name, mine)
            if (held := HELD.get(name)) is not None:
                held.users += 1
                break
        context = Context(name=name)      # may take its time, so others are let in
        mine = Held(context, PD(context), name)
    if mine not in (None, held):
        mine.context.close()
    return held
