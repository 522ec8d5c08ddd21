"""Counters of a driver's register accesses and waits, for any device."""

from collections import Counter

from weft.hdl.contract import abi

_NAME_AT = {register.offset: register.name for register in abi.REGISTERS}


class RegisterTraffic:
    """Counters of a driver's accesses to a device, whose methods are replaced by counting wrappers.

    ``reads`` and ``writes`` have the accesses by register name; ``waits`` has start and longest duration of each wait
    in nanoseconds, and whether an interrupt ended it.
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
        """Return the number of accesses so far."""
        return self.reads.total() + self.writes.total()

    def clear(self):
        """Reset all counters."""
        self.reads.clear()
        self.writes.clear()
        self.waits.clear()
