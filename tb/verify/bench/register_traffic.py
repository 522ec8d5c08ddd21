"""How often a driver touches its card's registers, and how it waits, on any device."""

from collections import Counter

from weft.hdl.contract import abi

_NAME_AT = {register.offset: register.name for register in abi.REGISTERS}


class RegisterTraffic:
    """Counts what a driver does to a device from now on.

    Parameters
    ----------
    device : Device
        Its methods are replaced by counting ones.

    Attributes
    ----------
    reads, writes : Counter
        Accesses by register name.
    waits : list of (int, int, bool)
        When each wait began, how long it might have taken at most, in nanoseconds, and whether an interrupt ended it.
    """

    def __init__(self, device):
        self.device = device
        self.reads, self.writes, self.waits = Counter(), Counter(), []
        for name in ("read32", "read64"):
            setattr(device, name, self._counted(getattr(device, name), self.reads))
        for name in ("write32", "write64", "write_block"):
            setattr(device, name, self._counted(getattr(device, name), self.writes))
        wait = device.wait

        def waited(timeout_ns):
            began = device.now_ns()
            interrupted = wait(timeout_ns)
            self.waits.append((began, timeout_ns, interrupted))
            return interrupted

        device.wait = waited

    @staticmethod
    def _counted(access, counter):
        def counted(offset, *value):
            counter[_NAME_AT.get(offset, hex(offset))] += 1
            return access(offset, *value)
        return counted

    @property
    def total(self):
        """Accesses so far."""
        return self.reads.total() + self.writes.total()

    def clear(self):
        """Start counting anew."""
        self.reads.clear()
        self.writes.clear()
        self.waits.clear()
