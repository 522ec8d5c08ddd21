"""PSNs of new work that has left the card."""

import collections


class Departures:
    """Descriptors of new work in the card, and the PSNs after them.

    Parameters
    ----------
    every : int
        A PSN is kept after as many descriptors, and after the end of a message.
    """

    def __init__(self, every=1):
        self._every, self._pushed, self._retired = every, 0, 0
        self._marks = collections.deque()    # (descriptors, PSN after them, end of a message)

    def pushed(self, works, sent_psn):
        """Note new work for the card, up to ``sent_psn``."""
        number, last = self._pushed, len(works) - 1
        for n, work in enumerate(works):
            number += 1
            if work.last or not number % self._every:
                self._marks.append((number, works[n + 1].psn if n < last else sent_psn, work.last))
        self._pushed = number

    def retired(self, descriptors):
        """Note descriptors that the card retired; yield (PSN, end of a message) of those whose PSN is kept."""
        self._retired += descriptors
        marks = self._marks
        while marks and marks[0][0] <= self._retired:
            yield marks.popleft()[1:]
