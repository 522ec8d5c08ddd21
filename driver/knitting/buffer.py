"""Shared knitting buffer: quota of blocks per QP, and number of extents."""

import collections

from weft.hdl.contract import abi

from .extents import Extents
from .free_list import FreeList

EXTENT_BYTES = 256 * 1024
NUMBER_BITS = 16
QUOTA_ALPHA = 8
CALM_NS = 1_000_000
SOON_NS = 100_000           # interval of `balance` while blocks are scarce, in excess or unsorted
SORTED_PER_ROUND = 64


class Chain:
    """Blocks that hold the list of one QP, head first. An empty list holds none.

    Attributes
    ----------
    lines : deque of int
        Linked blocks.
    """

    def __init__(self, pool):
        self._pool = pool
        self.lines = collections.deque()

    @property
    def has_space(self):
        """True if :meth:`link` gets a block."""
        return self._pool.may_take(self)

    def link(self, fields):
        """Write a node after the last one. Return (line, its 64 bytes), or None if no block is available now."""
        line = self._pool.take(self)
        if line is None:
            return None
        data = self._pool.extents.write(line, fields)
        if self.lines:
            self._pool.extents.link(self.lines[-1], line)
        self.lines.append(line)
        return line, data

    def retire(self, line):
        """Free the oldest linked block, which the card has retired.

        Raises
        ------
        RuntimeError
            If ``line`` is another one.
        """
        if not self.lines or self.lines[0] != line:
            raise RuntimeError(f"the card retired block {line:#x}, which is not the list's head")
        self._pool.release(self, self.lines.popleft())

    def number(self, line):
        """Return the card's number of a block."""
        return self._pool.extents.number(line)

    def close(self):
        """Free all blocks, in constant time. Requires that the card does not have the list any more."""
        self._pool.close_chain(self)


class KnittingBuffer:
    """Blocks for the Adamap nodes of all QPs.

    A QP with an empty list holds no block, and every QP is guaranteed one, so that a list can always advance and free
    blocks. Therefore every wait for a block is finite. Beyond that, a QP may link a block while it holds fewer than
    ``alpha`` times the number of free blocks, so that the share of each adapts to the number of QPs that need blocks.

    An extent is added when blocks are scarce. It is removed when the buffer has been mostly free for a while and none
    of its blocks is in use. The card never fetches a free block: it has read the block and everything that points to
    it, or the block's QP is destroyed. Therefore the extent is first withdrawn from the free list, then from the card,
    and its memory is freed after the card's response.

    Parameters
    ----------
    device, announce, extent_bytes, max_extents, number_bits
        See :class:`~weft.driver.knitting.extents.Extents`.
    alpha : float
        Factor of the quota.
    calm_ns : int
        Time without scarcity before an extent is removed.

    Attributes
    ----------
    extents : Extents
    changing : bool
        A command about an extent is pending.
    low_water : int
        Smallest number of free blocks so far.
    counts : Counter
        ``grown``, ``no_memory``, ``shrunk``, ``refused``, ``links`` (blocks linked after another one) and ``adjacent``
        (of these, the ones at the next address).
    """

    def __init__(self, device, announce, *, extent_bytes=EXTENT_BYTES, max_extents=1, number_bits=NUMBER_BITS,
                 alpha=QUOTA_ALPHA, calm_ns=CALM_NS):
        self.alpha, self.calm_ns = alpha, calm_ns
        self.extents = Extents(device, announce, extent_bytes=extent_bytes, max_extents=max_extents,
                               number_bits=number_bits)
        self.extent_blocks = extent_bytes // abi.BLOCK_BYTES
        self._free = FreeList()
        self._chains = set()
        self._owed = 0          # chains without a block, each of which is guaranteed one
        self._short = False     # a chain got no block since the last round
        self._calm_since = None
        self.low_water = None
        self.counts = collections.Counter()
        self.grow()

    # ------------------------------------------------------------------------------------------ size

    @property
    def free_blocks(self):
        return len(self._free)

    @property
    def total_blocks(self):
        return self.extents.blocks

    @property
    def changing(self):
        return self.extents.changing

    def grow(self):
        """Request another extent. Its blocks are available when the card has it.

        Raises
        ------
        MemoryError
            If the card supports no more extents.
        """
        self.extents.add(self._grown)

    def _grown(self, extent):
        self.counts["grown"] += 1
        self._free.add(extent.base, extent.blocks)

    def shrink(self):
        """Remove an extent without used blocks, the newest if possible. Return false if there is none."""
        if self.changing or len(self.extents) < 2:
            return False
        for extent in reversed([*self.extents]):
            if self._free.is_unused(extent.base) and len(self._free) - extent.blocks >= self._owed:
                break
        else:
            return False
        self._free.remove(extent.base)
        self.extents.remove(extent, self._shrunk)
        return True

    def _shrunk(self):
        self.counts["shrunk"] += 1

    def balance(self, now):
        """Add or remove an extent if it is time to. Called whenever something happened.

        Returns
        -------
        int or None
            Latest time of the next call, even if nothing happens.
        """
        if self._free.unsorted:
            self._free.sort_in(SORTED_PER_ROUND)
        free, total = self._free.count, self.extents.blocks
        if self._short or free * 8 < total:
            self._short = False
            self._calm_since = None
            if self.extents.can_add:
                try:
                    self.grow()
                except MemoryError:     # of the host: holes continue to wait for blocks
                    self.counts["no_memory"] += 1
            return now + SOON_NS
        if self._calm_since is None:
            self._calm_since = now
        if (free - self.extent_blocks) * 2 > total - self.extent_blocks:
            if now - self._calm_since >= self.calm_ns:
                self._calm_since = now
                self.shrink()
            return min(now + SOON_NS, self._calm_since + self.calm_ns)
        return now + SOON_NS if self._free.unsorted else None

    # ---------------------------------------------------------------------------------------- blocks

    def open_chain(self):
        """Return the :class:`Chain` of a new QP.

        Raises
        ------
        MemoryError
            If the blocks do not suffice for another QP.
        """
        if len(self._free) <= self._owed:
            self._short = True
            raise MemoryError("the knitting buffer has no blocks for another QP")
        chain = Chain(self)
        self._chains.add(chain)
        self._owed += 1
        return chain

    def may_take(self, chain):
        """Return true if the chain may get one more block now."""
        if not chain.lines:
            return True
        unreserved = len(self._free) - self._owed
        return unreserved > 0 and len(chain.lines) < self.alpha * unreserved

    def take(self, chain):
        """Return a block for ``chain``, at the next address if possible, or None if the chain must wait for a block."""
        if not self.may_take(chain):
            self._short = True
            self.counts["refused"] += 1
            return None
        wanted = chain.lines[-1] + 1 if chain.lines else None
        self._owed -= wanted is None
        line = self._free.take(wanted)
        self.counts["links"] += wanted is not None
        self.counts["adjacent"] += line == wanted
        if self.low_water is None or len(self._free) < self.low_water:
            self.low_water = len(self._free)
        return line

    def release(self, chain, line):
        """Free a block of ``chain``."""
        self._free.release(line)
        if not chain.lines:
            self._owed += 1

    def close_chain(self, chain):
        """Free all blocks of a chain."""
        if chain not in self._chains:
            return
        self._owed -= not chain.lines
        self._chains.discard(chain)
        self._free.splice(chain.lines)
        chain.lines = collections.deque()

    def check(self):
        """Assert that no block is lost or counted twice. Return the numbers of free and linked blocks."""
        used = [line for chain in self._chains for line in chain.lines]
        assert len(used) == len(set(used)), "a block is in two places"
        assert not any(self._free.is_free(line) for line in used), "a free block is in use"
        uses = {"free": len(self._free), "linked": len(used)}
        withdrawn = self.total_blocks - sum(uses.values())
        assert withdrawn == 0 or self.changing and withdrawn == self.extent_blocks, f"{withdrawn} blocks are lost"
        assert self._owed == sum(not chain.lines for chain in self._chains)
        assert len(self._free) >= self._owed, "a QP is owed a block that is not there"
        return uses
