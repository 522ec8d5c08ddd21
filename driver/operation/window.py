"""Memory windows: memory that the peer of one QP may write for the duration of an operation."""

from weft.hdl.contract import abi


class Window:
    """Part of a memory region with a separate key, for one QP.

    Attributes
    ----------
    mr
        The memory region.
    va, length, key : int
        As the peer must use them.
    failed : callable(exception) or None
        Called if a notification about the window raises an exception.
    """

    __slots__ = ("done", "failed", "gone", "index", "key", "leaving", "length", "mr", "va")

    def __init__(self, mr, va, length, index, key, failed=None):
        self.mr, self.va, self.length, self.index, self.key, self.failed = mr, va, length, index, key, failed
        self.leaving = self.gone = False
        self.done = _nothing     # called when the card has removed it

    @property
    def target(self):
        """(va, key, length)."""
        return self.va, self.key, self.length


class WindowTable:
    """Memory windows of a card.

    A window is an MR of the card with the pages of the program's region. Windows and regions of programs share the
    card's MR indices.

    Parameters
    ----------
    commands : CommandQueue
    indices : IndexPool
    tags : KeyTags

    Attributes
    ----------
    open : dict
        Windows that the card has, or will have, as keys.
    """

    def __init__(self, commands, indices, tags):
        self.commands, self.indices, self.tags = commands, indices, tags
        self.open = {}
        self._waiting = {}

    def make(self, mr, va, length, qp_index, ready, failed=None):
        """Create a :class:`Window` on part of a region. ``ready()`` is called when the card has it.

        See :class:`Window` for ``failed``.

        Raises
        ------
        MemoryError
            If no index is free.
        """
        index = self.indices.take()
        window = Window(mr, va, length, index, abi.make_key(index, self.tags.new(index)), failed)
        self.open[window] = None
        self.commands.submit(
            abi.CommandOpcode.MR_CREATE,
            lambda response: self._answered(response, ready),
            failed,
            mr_index=index,
            key_tag=window.key % (1 << abi.KEY_TAG_BITS),
            va=va,
            length=length,
            access=abi.AccessFlag.REMOTE_WRITE,
            pd=qp_index,
            page_2m=int(mr.page_bytes == abi.PAGE_2M),
            pte_index=mr.pte_index + va // mr.page_bytes - mr.buf // mr.page_bytes,
        )
        return window

    @staticmethod
    def _answered(response, ready):
        if response.status is not abi.CommandStatus.OK:
            raise RuntimeError(f"the card refused a window: {response.status!r}")
        ready()

    def space(self, count, wake, reserve=0):
        """Return true if ``count`` indices are free, and ``reserve`` beyond them.

        Otherwise ``wake()`` is called when a window is removed.

        Raises
        ------
        MemoryError
            If no window exists whose removal would free an index.
        """
        if self.indices.free >= count + (reserve if self.open else 0):
            return True
        if not self.open:
            raise MemoryError(f"the card has no {count} free memory regions, and no window will free any")
        self._waiting[wake] = None
        return False

    def close(self, window, done):
        """Remove a window. ``done()`` is called when no packet can use it any more."""
        if window.gone:
            done()
            return
        window.done = done
        self._take_away(window)

    def _take_away(self, window):
        if not window.leaving:
            window.leaving = True
            self.commands.submit(abi.CommandOpcode.MR_DESTROY, lambda _: self._gone(window), window.failed,
                                 mr_index=window.index)

    def revoke(self, mr):
        """Remove all windows on a region that is deregistered, before the card executes a later command."""
        for window in self.open:
            if window.mr is mr:
                self._take_away(window)

    def _gone(self, window):
        del self.open[window]
        window.gone = True
        self.indices.release(window.index)
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            wake()
        window.done()

    def forget(self):
        """Remove all windows: the card was reset and has none."""
        for window in self.open:
            window.gone = True
            self.indices.release(window.index)
        self.open.clear()


def _nothing():
    return
