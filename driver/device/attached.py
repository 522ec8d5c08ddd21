"""Pages of another process for a simulated card."""

PAGE = 4096


class MemoryFault(Exception):
    """Read of memory that another process does not have any more."""


class AttachedPage:
    """Page with the slices of a ``bytearray``, in a memory as of :meth:`~weft.driver.device.device.Device.attach`."""

    __slots__ = ("_address", "_memory")

    def __init__(self, memory, address):
        self._memory, self._address = memory, address

    def __getitem__(self, part):
        return self._memory.read(self._address + part.start, part.stop - part.start)

    def __setitem__(self, part, data):
        self._memory.write(self._address + part.start, data)


def attached_pages(memory, address, size):
    """Return the pages of a range of whole pages."""
    return [AttachedPage(memory, at) for at in range(address, address + size, PAGE)]
