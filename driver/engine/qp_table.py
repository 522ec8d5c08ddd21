"""The QPs of a card: their numbers, generations, and which of them have something to do."""

import collections

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
        self._active.pop(qp, None)

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
        """QPs that have something to do at a time; they are not active any more."""
        for qp in self:
            waits = qp.receiver.holes.waits_for_blocks
            if qp in self._active or waits or (at := qp.deadline) is not None and at <= now:
                self._active.pop(qp, None)
                yield qp

    @property
    def deadline(self):
        """When the first of them wants a round, or None."""
        return min((at for qp in self._qps.values() if (at := qp.deadline) is not None), default=None)
