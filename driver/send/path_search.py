"""Search of a path: a QP whose probes go unanswered takes another UDP source port."""

from ..protocol.aeth import ASKS
from ..protocol.source_port import PortDraw
from .departures import Departures

PATIENCE, PATIENCE_UNKNOWN = 1, 3     # unanswered probes before there are questions; without a known round trip
QUICK_MAX = 4                         # probes of a silence that follow each other after the time of an answer
MARKED = 4                            # a PSN is kept after as many descriptors, and after a message
FIRST_LOOK = 3                        # probe time-outs after the first work
DOUBLINGS_MAX = 6                     # of the time between later probes
SHARE = 16                            # of the probe time-out: shortest time to wait for an answer


class PathSearch:
    """Silence of a peer: when to probe, and from which ports to ask.

    Routers choose among equal paths by a hash that includes the UDP source port. When the end of a message left the
    card and the peer is silent for the probe time-out, or half of it once a round trip is known, a probe is due. Within
    a message, which the peer does not answer, it is due after one and a half. An unanswered probe is repeated after a
    quarter more than a round trip. With each repetition, ``ASKS`` questions leave from other ports, and each is
    answered from another port of the peer. So an answer names a port for each direction with which frames arrive: both
    ends take theirs. A peer that is only slow answers the probes first, and no port changes.

    After ``QUICK_MAX`` probes, the next ones are those of :class:`~weft.driver.protocol.timer.ProgressTimer`.

    Parameters
    ----------
    seed : str
        Of the ports.
    timer : ProgressTimer
        Of the sender; its ``probe_ns`` and ``round_trip`` are used.

    Attributes
    ----------
    due : int or None
        Time of the next decision of the owner, or None while nothing is expected of the peer.
    unanswered : int
        Probes of this silence.
    asked : set of int
        Ports of the questions in it.
    left_psn : int or None
        Every older PSN has left the card.
    """

    def __init__(self, seed, timer):
        self._ports, self._timer = PortDraw(seed), timer
        self.due = self.left_psn = None
        self._quiet_until = 0                # the peer asked for silence until then
        self.unanswered, self.asked = 0, set()
        self._trip_ns = None                 # from a packet that left the card to its acknowledgement
        self._timed = None                   # (PSN, time) of such a packet
        self._departures = Departures(MARKED)
        self._silent_at = None               # since when packets that left the card have no answer
        self._owed = False                   # they include the end of a message, which needs one
        self._patience_ns = 0                # length of a silence that needs a probe, when it was last computed

    # ------------------------------------------------------------------------------ the round trip

    def pushed(self, works, sent_psn):
        """Note new work for the card, up to ``sent_psn``."""
        self._departures.pushed(works, sent_psn)

    def retired(self, descriptors, una, now):
        """Note new work that the card retired. The peer has everything before ``una``."""
        for psn, ends in self._departures.retired(descriptors):
            self.left_psn = psn
            if psn <= una:
                continue
            if self._silent_at is None:
                self._silent_at = now
            if ends and not self._owed:
                self._owed, self._silent_at = True, now
                if self.due is not None and not self.unanswered:
                    self.due = min(self.due, now + self._compute_patience())
            if self._timed is None and not self.unanswered:
                self._timed = (psn, now)

    def acknowledged(self, una, now):
        """Note that the peer has everything before ``una``; take the time of a packet among it."""
        if self.left_psn is not None and una >= self.left_psn:
            self._silent_at, self._owed = None, False
        if self._timed is not None and una >= self._timed[0]:
            sample = now - self._timed[1]
            trip = sample if self._trip_ns is None else self._trip_ns
            self._trip_ns = min(sample, trip + (sample - trip) // 8)     # a sample may include a wait for more data
            self._timed = None

    def lost(self):
        """Discard the time of a packet: the peer missed some."""
        self._timed = None

    @property
    def _known_ns(self):
        """Smoothed round trip, or None."""
        measured = self._timer.round_trip.smoothed_ns
        return self._trip_ns if measured is None else measured

    def _answer_ns(self):
        """Return the time to wait for an answer, at most the probe time-out; None without a known round trip."""
        trip, probe_ns = self._known_ns, self._timer.probe_ns
        return None if trip is None else min(probe_ns, max(probe_ns // SHARE, trip + trip // 4))

    def _compute_patience(self):
        """Compute and return the length of a silence that needs a probe."""
        patience_ns = probe_ns = self._timer.probe_ns
        if not self._owed:
            patience_ns += probe_ns // 2
        elif (answer_ns := self._answer_ns()) is not None:
            patience_ns = min(probe_ns, max(probe_ns // 2, 4 * answer_ns))
        self._patience_ns = patience_ns
        return patience_ns

    # --------------------------------------------------------------------------------- the silence

    def begin(self, now):
        """Start to look for silence: the first packet leaves the card later, the end of a message makes it due earlier.
        """
        self._patience_ns = FIRST_LOOK * self._timer.probe_ns
        self.due = now + self._patience_ns

    def not_ready(self, until):
        """Note that the peer wants no packet before ``until``: a receive request is missing."""
        self._quiet_until = until

    def silent(self, now):
        """Return true if the peer is silent. Otherwise postpone the decision: no packet left the card long ago."""
        if self.unanswered:
            return True
        patience_ns = self._compute_patience()
        since = now if self._silent_at is None else self._silent_at
        due = max(since, self._quiet_until) + patience_ns
        if due <= now:
            return True
        self.due = due
        return False

    def rest(self):
        """Note that nothing is expected of the peer."""
        self.due, self.unanswered, self._silent_at, self._owed = None, 0, None, False
        self.asked.clear()

    def heard(self, now):
        """Note a frame of the peer."""
        self.unanswered = 0
        if self.asked:
            self.asked.clear()
        if self._silent_at is not None:
            self._silent_at = now
        if self.due is not None:
            self.due = now + self._patience_ns

    @property
    def quick(self):
        """True while the time of the next probe is that of the search, also when nothing is left to send."""
        return self.unanswered <= QUICK_MAX and self._known_ns is not None

    def probed(self, now):
        """Note a probe, and return the ports of the questions that follow it."""
        answer_ns, ports = self._answer_ns(), ()
        if self.unanswered >= (PATIENCE_UNKNOWN if answer_ns is None else PATIENCE):
            ports = [self._ports.draw() for _ in range(ASKS)]
            self.asked.update(ports)
        self.unanswered += 1
        self._timed = None
        if not self.quick:
            answer_ns = self._timer.probe_ns * (1 << min(self.unanswered, DOUBLINGS_MAX))
        self.due = now + answer_ns
        return ports

    def later(self, now):
        """Postpone the decision."""
        self.due = now + (self._answer_ns() or self._timer.probe_ns)
