"""Windows: memory that the peer of one QP may write for the time of an operation."""

from weft.hdl.contract import abi


class Window:
    """A piece of memory under a key of its own, for one QP.

    Attributes
    ----------
    mr
        The region it is a piece of.
    va, length, key : int
        As the peer has to name it.
    """

    __slots__ = ("done", "gone", "index", "key", "leaving", "length", "mr", "va")

    def __init__(self, mr, va, length, index, key):
        self.mr, self.va, self.length, self.index, self.key = mr, va, length, index, key
        self.leaving = self.gone = False
        self.done = _nothing     # what to call when the card took it away

    @property
    def target(self):
        """(va, key, length)."""
        return self.va, self.key, self.length


class WindowTable:
    """The windows of a card.

    A window is an MR of the card whose pages are those of the program's region. Indices that the card has for it are
    shared with the regions of programs.

    Parameters
    ----------
    commands : CommandQueue
    indices : IndexPool
    tags : KeyTags

    Attributes
    ----------
    open : dict
        Windows that the card has, or is to have, as keys.
    """

    def __init__(self, commands, indices, tags):
        self.commands, self.indices, self.tags = commands, indices, tags
        self.open = {}
        self._waiting = {}

    def make(self, mr, va, length, qp_index, ready):
        """A :class:`Window` on part of a region; ``ready()`` is called when the card has it.

        Raises
        ------
        MemoryError
            If no index is free.
        """
        index = self.indices.take()
        window = Window(mr, va, length, index, abi.make_key(index, self.tags.new(index)))
        self.open[window] = None
        self.commands.submit(
            abi.CommandOpcode.MR_CREATE,
            lambda response: self._answered(response, ready),
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

    def room(self, count, wake, reserve=0):
        """There are so many free indices, and ``reserve`` beyond them; otherwise ``wake()`` is called when a window is
        gone.

        Raises
        ------
        MemoryError
            If there is no window that could make room.
        """
        if self.indices.free >= count + (reserve if self.open else 0):
            return True
        if not self.open:
            raise MemoryError(f"{count} memory regions are not free")
        self._waiting[wake] = None
        return False

    def close(self, window, done):
        """Take it away; ``done()`` is called when nothing comes through it any more."""
        if window.gone:
            done()
            return
        window.done = done
        self._take_away(window)

    def _take_away(self, window):
        if not window.leaving:
            window.leaving = True
            self.commands.submit(abi.CommandOpcode.MR_DESTROY, lambda _: self._gone(window), mr_index=window.index)

    def revoke(self, mr):
        """The region goes: before the card answers a later command it has no window on it."""
        for window in self.open:
            if window.mr is mr:
                self._take_away(window)

    def _gone(self, window):
        del self.open[window]
        window.gone = True
        self.indices.give(window.index)
        window.done()
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            wake()

    def forget(self):
        """The card was reset and has none of them."""
        for window in self.open:
            window.gone = True
            self.indices.give(window.index)
        self.open.clear()


def _nothing():
    return
