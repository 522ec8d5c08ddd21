"""Card memory for operations: regions of programs, windows on them, and mailboxes."""

from weft.hdl.contract.abi import KEY_TAG_BITS

from .window import WindowTable


class MailboxMemory:
    """Memory of a card for the operations of its QPs.

    Parameters
    ----------
    device : Device
    commands : CommandQueue
    memory : Memory
        Registered memory.
    indices : IndexPool
        Of memory regions.
    tags : KeyTags
    pte_ranges : RangeAllocator
    kept : list
        Gets callables that run after a reset.

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
        """Return the buffer of the region, or of the region of the window, that a key of the card refers to.

        Addresses alone are ambiguous: those of programs in different processes may coincide.
        """
        mr = self.memory.mrs.get(key >> KEY_TAG_BITS)
        if mr is None:
            mr = next(window.mr for window in self.windows.open if window.key == key)
        return mr.buffer

    def keep(self, buffer):
        """Keep a buffer until the next reset of the card, which may still use it."""
        self._kept.append(lambda: self.device.free(buffer))
