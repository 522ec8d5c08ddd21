"""Interrupt messages of the timing model: a scan of the vectors, one per cycle, as in ``hdl/pcie/msix.py``."""

from .timing import CYCLE_NS, edge
from .write_engine import MESSAGES

MESSAGE_BYTES = 4
FIRST = 1       # first vector of the scan at time 0


class Interrupts:
    """Pending interrupt vectors of a card.

    Parameters
    ----------
    card : TimedCard
    """

    def __init__(self, card):
        self._card, self._vectors = card, card.params.msix_vectors
        self._from, self._at = 0.0, FIRST % self._vectors       # start of the scan: time and vector
        self._pending = {}          # vector -> time since which it is pending
        self._turn = self._sending = None       # the next message; the message that waits for its grant

    def pend(self, vector, time_ns):
        """Set a vector pending from a time on."""
        if vector not in self._pending:
            self._pending[vector] = edge(time_ns)
            self._go_on()

    def renewed(self):
        """Send a message that waited for the previous write engine at once, after a reset of the card."""
        if self._sending is not None:
            _, vector = self._sending
            self._card.loop.call_in(0, self._card.interrupt, vector)
            self._gone(self._sending, self._card.loop.now_ns)

    def _go_on(self):
        """Schedule the message of the pending vector that the scan reaches first."""
        if self._pending and self._sending is None:
            found = min((self._seen(vector, since), vector) for vector, since in self._pending.items())
            self._turn = found
            self._card.loop.call_at(found[0], self._send, found)

    def _seen(self, vector, since):
        at = max(since, self._from, edge(self._card.loop.now_ns))
        now = self._at + round((at - self._from) / CYCLE_NS)
        return at + (vector - now) % self._vectors * CYCLE_NS

    def _send(self, found):
        if found is not self._turn:
            return      # another vector preceded this one
        at, vector = self._sending = found
        del self._pending[vector]
        self._turn = None
        writes = self._card.pcie.writes

        def granted(last, packet):
            if self._sending is found:      # otherwise it was sent at a reset
                writes.then(packet, self._card.interrupt, vector)
                self._gone(found, last)

        writes.ask(MESSAGES, at + CYCLE_NS, 0, MESSAGE_BYTES, granted)

    def _gone(self, found, last):
        _, vector = found
        self._sending = None
        self._from, self._at = last + CYCLE_NS, (vector + 1) % self._vectors
        self._go_on()
