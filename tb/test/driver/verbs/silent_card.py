"""Functional card that takes no command for a while."""

from weft.hdl.contract import abi


class Silent:
    """Card of a device that takes no command until :meth:`wake` is called.

    Parameters
    ----------
    device : FunctionalDevice
    """

    def __init__(self, device):
        self.card = device.card
        self.peek, self.card.rings.peek = self.card.rings.peek, self
        self.quiet = True

    def __call__(self, ring):
        return None if ring is abi.Ring.COMMAND and self.quiet else self.peek(ring)

    def wake(self):
        self.quiet = False
        self.card.pump()
