"""Limit of the bytes in flight of a QP: a congestion control algorithm holds posted work back."""

import collections

from weft.hdl.contract import abi, wire

from ..congestion.algorithms import MARKED, create
from .departures import Departures
from .send_queue import SendQueue

# Bytes on the line beside the payload.
PACKET_OVERHEAD = wire.DATA_HEADER_BYTES + wire.ICRC_BYTES + wire.LINE_OVERHEAD_BYTES
FIRST_SHARE = 4       # before the first round trip is measured, this part of the limit is used
ASKS = 4              # requests for an answer in a window
CHUNKS = 8            # descriptors in the first bandwidth-delay product
CNP_INTERVAL_NS = abi.REGISTER["cnp_interval_ns"].reset


class FlowLimit:
    """Congestion control of one QP: it sets the PSN up to which the send queue may pass packets to the card.

    A packet is in flight from the time at which the card gets it until it is acknowledged; a lost
    one stays in flight, as its retransmission. A loss report also acknowledges the packets between its holes. The
    peer acknowledges only ends of messages and probes, so :meth:`ask` names the PSN of a probe several times in a
    window: all older packets left the card before it.

    A round trip lasts from the time at which the driver sees that a packet left the card to its acknowledgement. When
    both are seen in one round, it is no measurement. The delays of both hosts are part of it.

    The window of an algorithm that controls the rate by marks is at most the rate times the smallest round trip, and at
    least one packet. On a card without a pacer, which this class is for, nothing else enforces the rate.

    Parameters
    ----------
    name : str
        Key of :data:`~weft.driver.congestion.algorithms.ALGORITHMS`, except for ``none``.
    pmtu : int
        Bytes.
    line_bps : float
        Rate of the port, in bit/s.
    delay_ns : int
        Round trip time that is assumed before the first measurement.
    cnp_interval_ns : int
        Interval in which the peer sends one congestion notification.

    Attributes
    ----------
    algorithm : Algorithm
    packet : int
        Bytes of a whole packet on the wire.
    ect : bool
        Marks are the signal of the algorithm.
    rtt_ns, least_ns : int or None
        Latest and smallest round trip time.
    heard : int
        Every older PSN has arrived or is reported lost.
    left : int
        Every older PSN has left the card.
    end : int
        PSN from which on nothing may be passed to the card.
    """

    paced = False      # the card delays packets and holds them back

    def __init__(self, name, *, pmtu, psn, line_bps, delay_ns, cnp_interval_ns=CNP_INTERVAL_NS):
        self.packet = pmtu + PACKET_OVERHEAD
        self.chunk_bytes = max(pmtu, int(line_bps * delay_ns / 8e9) // CHUNKS)
        self.ect, self._notified, self._least_apart = name in MARKED, None, cnp_interval_ns // 2
        settings = {} if self.ect else {"packet": self.packet}
        self._make = lambda delay_ns: create(name, line_bps, delay_ns, **settings)
        self.algorithm = self._make(delay_ns)      # that of the first measured round trip replaces it
        self.rtt_ns = self.least_ns = None
        self.heard = self.left = self._asked = psn
        self._missing, self._holes = 0, collections.deque()     # packets reported lost, and their (PSN, count)
        self._departures = Departures()
        self._timed = collections.deque()                       # (PSN, time) of packets that left the card
        self._apply()

    def _apply(self):
        most = self.algorithm.limit if self.rtt_ns is not None else self.algorithm.limit // FIRST_SHARE
        if self.ect and self.rtt_ns is not None:
            most = min(most, int(self.algorithm.rate * self.least_ns / 8e9))
        self._window = max(1, most // self.packet)
        self.end = self.heard + self._window - self._missing

    def pushed(self, works, sent_psn):
        """Note new work for the card, up to ``sent_psn``."""
        self._departures.pushed(works, sent_psn)

    def retired(self, descriptors, now):
        """Note new work that the card retired."""
        before = self.left
        for psn, answered in self._departures.retired(descriptors):
            self.left = psn
            if answered:
                self._asked = psn
        if self.left > before:
            self._timed.append((self.left, now))

    def ask(self, sent_psn):
        """Return the PSN of a probe that is due, or None."""
        new = self.left - self._asked
        if not new or new < self._window // ASKS and not self._stalled(sent_psn):
            return None
        self._asked = self.left
        return self.left

    def _stalled(self, sent_psn):
        """Return true if nothing more leaves before an answer arrives."""
        return self.left == sent_psn >= self.end

    def _since(self, left_ns, now, came_ns):
        """Return the time from the departure of a packet to its acknowledgement."""
        return now - left_ns

    def acknowledged(self, cum, sent_psn, now, came_ns=None):
        """Note that the peer has every PSN before ``cum``. The card got the frame at ``came_ns`` of its clock."""
        sample = None
        while self._timed and self._timed[0][0] <= cum:
            sample = self._since(self._timed.popleft()[1], now, came_ns)
        if sample:
            if self.rtt_ns is None:
                self._measure_first(sample)
            self.rtt_ns, self.least_ns = sample, min(self.least_ns, sample)
            self.algorithm.on_delay(now, sample)
        before, missing = self._in_flight(sent_psn), self._missing
        while self._holes and self._holes[0][0] < cum:
            psn, count = self._holes.popleft()
            if psn + count > cum:
                self._holes.appendleft((cum, psn + count - cum))
                count = cum - psn
            self._missing -= count
        arrived = max(0, cum - self.heard) + missing - self._missing
        self.heard = max(self.heard, cum)
        self._arrived(arrived, before, now)

    def _measure_first(self, sample):
        """Begin with the first measured round trip. A notification before it counts; others were within that time."""
        self.algorithm, self.least_ns = self._make(sample), sample
        if self._notified is not None:
            self.algorithm.on_cnp(self._notified)

    def lost(self, runs, sent_psn, now):
        """Note the (PSN, length) of packets that the peer reports missing."""
        if not runs:
            return
        self._timed.clear()      # the acknowledgement of a packet waits for retransmissions
        before, count = self._in_flight(sent_psn), sum(length for _, length in runs)
        heard = max(self.heard, *(psn + length for psn, length in runs))
        self._holes.extend(runs)
        self._missing += count
        arrived, self.heard = max(0, heard - self.heard - count), heard
        self.algorithm.on_loss(now, count * self.packet)
        self._arrived(arrived, before, now)

    def congested(self, now):
        """Note a congestion notification. Within half an interval after one that counts, others have no effect."""
        if self._notified is None or now - self._notified >= self._least_apart:
            self._notified = now
            self.algorithm.on_cnp(now)
            self._apply()

    def _arrived(self, packets, in_flight, now):
        if packets:
            self.algorithm.on_ack(now, packets * self.packet, in_flight)
        self._apply()

    def _in_flight(self, sent_psn):
        return (sent_psn - self.heard + self._missing) * self.packet


class LimitedQueue(SendQueue):
    """Send queue that holds posted work back.

    Parameters
    ----------
    flow : FlowLimit
    options
        Those of :class:`SendQueue`. No descriptor has more payload than ``flow.chunk_bytes``.
    """

    def __init__(self, flow, *, chunk_bytes, **options):
        super().__init__(chunk_bytes=min(chunk_bytes, flow.chunk_bytes), **options)
        self.flow = flow

    @property
    def _end(self):
        return min(super()._end, self.flow.end)
