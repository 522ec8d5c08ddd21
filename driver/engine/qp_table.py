"""The QPs of a card: their numbers, generations, and which of them have something to do."""

import collections
import heapq
import itertools

FIRST_QPN = 2  # 0 and 1 are special on InfiniBand


class QpTable:
    """The engines of QPs by number.

    Parameters
    ----------
    size : int
        QPs of the card.
    """

    def __init__(self, size):
        self.size = size
        self.generations = {}
        self._free = collections.deque(range(FIRST_QPN, size))
        self._qps = {}
        self._active = {}
        self._starved = {}    # those that wait for blocks, which may come back at any time
        self._at = {}         # QP -> when it wants a round
        self._times = []      # heap of the same, with what is not true any more
        self._number = itertools.count()

    def __iter__(self):
        return iter(list(self._qps.values()))

    def new_number(self):
        """A free QPN and its new generation.

        Raises
        ------
        MemoryError
            If all are in use.
        """
        if not self._free:
            raise MemoryError(f"all {self.size - FIRST_QPN} QPs are in use")
        qpn = self._free.popleft()
        return qpn, self.next_generation(qpn)

    def next_generation(self, qpn):
        self.generations[qpn] = (self.generations.get(qpn, 0) + 1) % 256
        return self.generations[qpn]

    def free_number(self, qpn):
        self._free.append(qpn)

    def add(self, qp):
        """The card knows ``qp``."""
        self._qps[qp.qp_num] = qp
        self.mark_active(qp)

    def remove(self, qp):
        """The card does not know it any more."""
        self._qps.pop(qp.qp_num, None)
        for these in (self._active, self._starved, self._at):
            these.pop(qp, None)

    def find(self, qpn, generation=None):
        """The QP of this number, of this generation if one is given, or None."""
        qp = self._qps.get(qpn)
        return qp if qp is not None and generation in (None, qp.generation) else None

    def mark_active(self, qp):
        """``qp`` has something to do in the next round, if the card knows it."""
        if self._qps.get(qp.qp_num) is qp:
            self._active[qp] = None

    @property
    def any_active(self):
        return bool(self._active)

    def due(self, now):
        """QPs that have something to do at a time; they are not active any more. Whatever changes when a QP wants its
        next round makes it active, or happens in its turn here."""
        while self._times and self._times[0][0] <= now:
            self._mark(heapq.heappop(self._times))
        self._active.update(self._starved)
        for qp in list(self._active):
            if self._active.pop(qp, self) is self:
                continue     # it was removed meanwhile
            try:
                yield qp
            finally:
                self._watch(qp)

    def _mark(self, entry):
        at, _, qp = entry
        if self._at.get(qp) == at:
            del self._at[qp]
            self._active[qp] = None

    def _watch(self, qp):
        """Remember when ``qp`` wants its next round."""
        if self._qps.get(qp.qp_num) is not qp:
            return
        if qp.receiver.holes.waits_for_blocks:
            self._starved[qp] = None
        else:
            self._starved.pop(qp, None)
        at = qp.deadline
        if at is None:
            self._at.pop(qp, None)
        elif self._at.get(qp) != at:
            self._at[qp] = at
            heapq.heappush(self._times, (at, next(self._number), qp))
            if len(self._times) > 4 * len(self._at) + 64:
                self._times = [entry for entry in self._times if self._at.get(entry[2]) == entry[0]]
                heapq.heapify(self._times)

    @property
    def deadline(self):
        """When the first of them wants a round, or None."""
        while self._times and self._at.get(self._times[0][2]) != self._times[0][0]:
            heapq.heappop(self._times)
        times = [at for qp in self._active if (at := qp.deadline) is not None]
        return min([*times, *(entry[0] for entry in self._times[:1])], default=None)
