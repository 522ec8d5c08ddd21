"""QPs of a card: numbers, and schedule of their rounds."""

import collections
import heapq
import itertools
import math

from weft.hdl.contract import abi, wire

from ..terms.errors import OutOfResources

FIRST_INDEX = 2  # QPNs 0 and 1 are special on InfiniBand
HOST_QPNS_LOG2 = 12     # the last 2^12 QPNs, or generation, are left to software of the host and to multicast


class QpTable:
    """Engines of QPs by number, and allocation of numbers.

    Every incarnation of a QP has a separate number: the index with the next generation. The first generation of an
    index is random, since the generations that an earlier program used are unknown. A free index is reused as late as
    possible.

    Parameters
    ----------
    size : int
        QPs of the card, a power of two.
    random : random.Random
    reserved : container of int
        QPNs that must not be allocated.

    Attributes
    ----------
    active : dict
        QPs that are scheduled for the next round, as keys.
    starved : dict
        QPs that wait for blocks, which may be freed at any time.
    """

    def __init__(self, size, random, reserved=()):
        self.size, self.index_bits, self._random = size, (size - 1).bit_length(), random
        self.reserved, self._index_mask = reserved, (1 << self.index_bits) - 1
        self._generations = {}
        self._free = collections.deque(range(FIRST_INDEX, size))
        self._qps = {}
        self.active = {}
        self.starved = {}
        self._at = {}         # QP -> time of its next round
        self._queued = {}     # QP -> its time in the heap: at most that of `_at`, so that a later time needs no push
        self._times = []      # heap of these, including outdated entries
        self._number = itertools.count()

    @property
    def most(self):
        """Largest number of QPs."""
        return self.size - FIRST_INDEX

    @property
    def host_qpns_log2(self):
        """log2 of the number of QPNs, the last ones, that no QP of the card has."""
        return max(HOST_QPNS_LOG2, self.index_bits)

    def __iter__(self):
        return iter(list(self._qps.values()))

    def new_number(self):
        """Return the QPN of a new incarnation of a free index.

        Raises
        ------
        MemoryError
            If all indices are in use, or all numbers of the next one are reserved.
        """
        if not self._free:
            raise OutOfResources(f"all {self.most} QPs are in use")
        number = self._next_incarnation(self._free[0])
        self._free.popleft()
        return number

    def next_number(self, qpn):
        """Return the QPN of the next incarnation of the same QP."""
        return self._next_incarnation(self.parts(qpn)[0])

    def _next_incarnation(self, index):
        generations = (1 << wire.QPN_BITS) - (1 << self.host_qpns_log2) >> self.index_bits
        last = self._generations.get(index)
        first = self._random.randrange(generations) if last is None else (last + 1) % generations
        for generation in itertools.chain(range(first, generations), range(first)):
            qpn = abi.make_qpn(index, generation, self.index_bits)
            if qpn not in self.reserved:
                self._generations[index] = generation
                return qpn
        raise OutOfResources(f"every number of the QP with index {index} is reserved")

    @property
    def numbers(self):
        """The QPNs that are in use, in any state."""
        free = set(self._free)
        return [abi.make_qpn(index, generation, self.index_bits)
                for index, generation in self._generations.items() if index not in free]

    def parts(self, qpn):
        """Return index and generation as reports and doorbells contain them."""
        index, generation = abi.split_qpn(qpn, self.index_bits)
        return index, generation % (1 << abi.GENERATION_BITS)

    def free_number(self, qpn):
        """Free the index of a QPN."""
        self._free.append(self.parts(qpn)[0])

    def add(self, qp):
        """Add ``qp``, which the card has."""
        self._qps[qp.index] = qp
        self.mark_active(qp)

    def remove(self, qp):
        """Remove ``qp``, which the card no longer has."""
        self._qps.pop(qp.index, None)
        for these in (self.active, self.starved, self._at, self._queued):
            these.pop(qp, None)

    def find(self, index, generation):
        """Return the QP that a report names, or None."""
        qp = self._qps.get(index)
        return qp if qp is not None and qp.generation == generation else None

    def find_incarnation(self, qpn):
        """Return the QP with exactly this number, or None."""
        qp = self._qps.get(qpn & self._index_mask)
        return qp if qp is not None and qp.qp_num == qpn else None

    def mark_active(self, qp):
        """Schedule ``qp`` for the next round, if the card has it."""
        if self._qps.get(qp.index) is qp:
            self.active[qp] = None

    def __len__(self):
        """Return the number of QPs that the card has."""
        return len(self._qps)

    @property
    def full(self):
        """True if every index is in use."""
        return not self._free

    @property
    def first_time(self):
        """Lower bound of the next round of the QPs that are not active."""
        return self._times[0][0] if self._times else math.inf

    def due(self, now):
        """Yield the QPs that have something to do at ``now``, which are then no longer active.

        Every change of the time of a QP's next round makes the QP active, or happens while the QP is yielded here.
        """
        while (first := self._first()) is not None and first[0] <= now:
            heapq.heappop(self._times)
            del self._queued[first[2]], self._at[first[2]]
            self.active[first[2]] = None
        self.active.update(self.starved)
        for qp in list(self.active):
            if self.active.pop(qp, self) is self:
                continue     # removed during an earlier iteration
            try:
                yield qp
            finally:
                self.watch(qp)

    def _first(self):
        """Return the first valid entry of the heap. Outdated entries before it are removed."""
        while self._times:
            entry = at, _, qp = self._times[0]
            queued, wanted = self._queued.get(qp) == at, self._at.get(qp)
            if queued and wanted == at:
                return entry
            heapq.heappop(self._times)
            if queued:
                del self._queued[qp]
                if wanted is not None:
                    self._push(qp, wanted)
        return None

    def _push(self, qp, at):
        self._queued[qp] = at
        heapq.heappush(self._times, (at, next(self._number), qp))

    def watch(self, qp):
        """Record the time of the next round of ``qp``."""
        if self._qps.get(qp.index) is not qp:
            return
        if qp.receiver.holes.waits_for_blocks:
            self.starved[qp] = None
        elif self.starved:
            self.starved.pop(qp, None)
        at = qp.deadline
        if at is None:
            self._at.pop(qp, None)
            return
        self._at[qp] = at
        if self._queued.get(qp, at + 1) > at:
            self._push(qp, at)
            if len(self._times) > 4 * len(self._queued) + 64:
                self._times = [entry for entry in self._times if self._queued.get(entry[2]) == entry[0]]
                heapq.heapify(self._times)

    @property
    def deadline(self):
        """Time of the first round of any QP, or None."""
        first = self._first()
        if not self.active:
            return None if first is None else first[0]
        times = [at for qp in self.active if (at := qp.deadline) is not None]
        return min(times if first is None else [*times, first[0]], default=None)
