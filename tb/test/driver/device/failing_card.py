"""A functional card that is pulled out, or loses its way to memory, under its driver."""

from types import SimpleNamespace

from weft.driver.device.bringup import CONTROL_RESET
from weft.driver.device.health import STATUS_DMA_LOST
from weft.hdl.contract import abi

STATUS, CONTROL = (abi.REGISTER[name].offset for name in ("status", "control"))


class FailingCard:
    """Takes the place of a functional device's card, which does nothing any more.

    Parameters
    ----------
    device : FunctionalDevice
    how : str
        "gone": it was pulled out; reads give all ones, writes vanish. "without memory": it cannot reach memory, and
        its status says so until a reset, which finds everything well again. "reset": it was reset, and knows nothing.

    Attributes
    ----------
    touched : int
        Registers that were read or written since.
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
