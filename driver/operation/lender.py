"""What operations need of their card: memory of programs, windows on it, and memory of their own."""

from weft.hdl.contract.abi import KEY_TAG_BITS

from .window import WindowTable


class Lender:
    """Memory of a card, for the operations of its QPs.

    Parameters
    ----------
    device : Device
    commands : CommandQueue
    memory : Memory
        Registered.
    indices : IndexPool
        Of memory regions.
    tags : KeyTags
    pte_ranges : RangeAllocator
    kept : list
        Gets what is to be called after a reset.

    Attributes
    ----------
    windows : WindowTable
    """

    def __init__(self, device, commands, memory, *, indices, tags, pte_ranges, kept):
        self.device, self.commands, self.indices, self.tags, self.pte_ranges = (
            device, commands, indices, tags, pte_ranges)
        self._kept = kept
        self.memory = memory
        self.windows = WindowTable(commands, indices, tags)

    def buffer_of(self, key):
        """The buffer of what a key of the card is for: a region, or a window on one. Addresses alone do not say it:
        programs in processes of their own have them twice."""
        mr = self.memory.mrs.get(key >> KEY_TAG_BITS)
        if mr is None:
            mr = next(window.mr for window in self.windows.open if window.key == key)
        return mr.buffer

    def keep(self, buffer):
        """The card may use it until it is reset."""
        self._kept.append(lambda: self.device.free(buffer))
