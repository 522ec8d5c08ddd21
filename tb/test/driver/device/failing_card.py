"""Functional card that is removed, is reset, or loses access to host memory while its driver runs."""

from types import SimpleNamespace

from weft.driver.device.bringup import CONTROL_RESET
from weft.driver.device.health import STATUS_DMA_LOST
from weft.hdl.contract import abi

STATUS, CONTROL = (abi.REGISTER[name].offset for name in ("status", "control"))


class FailingCard:
    """Replacement of a functional device's card, which stops all activity of that card.

    Parameters
    ----------
    device : FunctionalDevice
    how : str
        "gone": the card was removed; reads return all ones, writes have no effect. "without memory": the card cannot
        access host memory, and its status reports so until a reset, which restores it. "reset": the card was reset, and
        has lost its state.

    Attributes
    ----------
    touched : int
        Number of register accesses since the failure.
    """

    def __init__(self, device, how):
        self.device, self.card, self.how, self.touched = device, device.card, how, 0
        device.card = self
        card, rings = self.card, self.card.rings
        card.receive_path = SimpleNamespace(receive=lambda frame: None)
        rings.peek = lambda ring: None
        rings.put = lambda ring, entry: None
        rings.finish = lambda ring: None

    def read(self, offset):
        self.touched += 1
        if self.how == "gone":
            return (1 << 64) - 1
        if self.how == "reset" and offset == CONTROL:
            return 0
        return self.card.read(offset) | (STATUS_DMA_LOST if offset == STATUS and self.how == "without memory" else 0)

    def write(self, offset, value):
        self.touched += 1
        if self.how != "gone" and offset == CONTROL and value & CONTROL_RESET:
            self.device.card = self.card
            self.card.write(offset, value)
