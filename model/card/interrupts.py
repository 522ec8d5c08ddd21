"""Messages of interrupts in time: one vector after the other is looked at, a cycle each, as in ``hdl/pcie/msix.py``."""

from .timing import CYCLE_NS, edge

MESSAGE_BYTES = 4
OUT = 3 * CYCLE_NS      # from the cycle in which a pending vector is found to its message
HELD = 5 * CYCLE_NS     # from that cycle until the next vector is looked at, if the message goes at once


class Interrupts:
    """Pending vectors of a card.

    Parameters
    ----------
    card : TimedCard
    """

    def __init__(self, card):
        self._card, self._vectors = card, card.params.msix_vectors
        self._from, self._at = 0.0, 0       # since when they are looked at, and which one then
        self._pending = {}          # vector -> since when
        self._turn = None

    def pend(self, vector, time_ns):
        """A vector is pending from a time on."""
        if vector not in self._pending:
            self._pending[vector] = edge(time_ns)
            self._go_on()

    def _go_on(self):
        """The next message is that of the vector that is looked at first."""
        if self._pending:
            found = min((self._seen(vector, since), vector) for vector, since in self._pending.items())
            self._turn = found
            self._card.loop.call_at(found[0], self._send, found)

    def _seen(self, vector, since):
        at = max(since, self._from, edge(self._card.loop.now_ns))
        now = self._at + round((at - self._from) / CYCLE_NS)
        return at + (vector - now) % self._vectors * CYCLE_NS

    def _send(self, found):
        if found is not self._turn:
            return      # another one came before it
        card, (now, vector) = self._card, found
        del self._pending[vector]
        self._turn = None
        at = card.pcie.write(now + OUT, MESSAGE_BYTES, card.timing.message_ahead)
        card.loop.call_at(at, card.interrupt, vector)
        self._from, self._at = card.pcie.written_at - OUT + HELD, (vector + 1) % self._vectors
        self._go_on()
