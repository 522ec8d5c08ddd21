"""Transmit scheduler: order in which the QPs' work is passed to the card."""

import collections
import math

from weft.hdl.contract import abi

from .paced_turns import PacedTurns
from .ring import ENTRIES_MAX

Ring = abi.Ring
_INDEX_BYTES = abi.STATUS_BLOCK.by_name["send_cons"].width // 8
_INDICES = 1 << 8 * _INDEX_BYTES
_CONS_AT = abi.STATUS_BLOCK.offset_of("send_cons") // 8
SEND_CONS = slice(_CONS_AT, _CONS_AT + _INDEX_BYTES)     # bytes of the status block
_LINE_BYTES_PER_NS = 50   # of a line of 400 Gb/s
AHEAD_BYTES = 256 * 1024
QUANTUM_BYTES = 16 * 1024
DEBT_BYTES_MAX = 256 * 1024
LEAST_BYTES = 128         # least charge of a descriptor, for its headers
_LOOKS = 4                # polls of the status block while the card transmits `enough_bytes`


def enough_bytes(poll_ns):
    """Return a number of bytes that keeps the card busy for several polls, at intervals of ``poll_ns``."""
    return _LOOKS * poll_ns * _LINE_BYTES_PER_NS


def _charged(credit, length):
    """Return the rest of a credit after ``length`` bytes are sent."""
    return max(credit - length, -DEBT_BYTES_MAX)


class TransmitTurns:
    """Deficit round robin (Shreedhar, Varghese 1995) of the QPs with work: they share the line by bytes.

    A QP has a credit of bytes, and is served while it is positive. Each descriptor is charged with its bytes. When the
    credit is used up, ``QUANTUM_BYTES`` are added and the next QP is served. Retransmissions are charged as well: a QP
    with many losses sends less new data. When a QP has no more work, its credit expires, and a debt of at most
    ``DEBT_BYTES_MAX`` remains.

    The card prefers retransmissions to new work. To prevent starvation of new work, at most ``AHEAD_BYTES`` of
    retransmissions are passed to the card between two descriptors of new work.

    While the card has enough work, new work waits, so that one doorbell announces many descriptors. An idle card gets
    all available work; a busy one gets at most twice ``enough_bytes``, so that later work, of another QP or at the
    front of this QP's queue, does not wait for everything that could be sent now. Of a QP with bulk data it gets no
    more than makes ``enough_bytes``, so that the requests for its next messages do not wait for all of that data.

    QPs whose packets the card paces have other turns: :attr:`paced`.

    Parameters
    ----------
    rings : dict of Ring
    finished : callable(qp)
        Called when the card has retired all descriptors of ``qp``.
    enough_bytes : int
        Bytes that the card cannot send before the next call of :meth:`fill`.
    pace_descriptors : int
        Descriptors that the card's pacer holds.

    Attributes
    ----------
    paced : PacedTurns
    """

    def __init__(self, rings, finished, *, enough_bytes, pace_descriptors=0):
        self.rings, self.finished, self.enough_bytes = rings, finished, enough_bytes
        self.paced = PacedTurns(rings, pace_descriptors, finished)
        self._served = None     # QP that pushed last
        self._rings = [rings[ring] for ring in (Ring.NIC_TX, Ring.SEND, Ring.RETRANSMIT)]
        self._turn, self._again = collections.deque(), collections.deque()   # QPs with new work; with retransmissions
        self._credit = {}   # qp -> bytes; negative for a debt
        self._unpaced = 0   # descriptors in the rings of QPs that the card does not pace
        self._ahead = 0   # bytes of retransmissions since the card retired new work
        self._in_card = 0   # bytes of new work that the card has

    def offer(self, qp):
        """Queue ``qp`` if it has work."""
        sender = qp.sender
        if sender is None:
            return
        if sender.paced:
            self.paced.offer(qp)
            return
        if sender.has_retransmission and qp not in self._again:
            self._again.append(qp)
        if sender.has_work and qp not in self._turn:
            self._turn.append(qp)

    def remove(self, qp):
        for turn in (self._again, self._turn):
            if qp in turn:
                turn.remove(qp)
        self.paced.remove(qp)
        self._credit.pop(qp, None)
        if self._served is qp:
            self._served = None

    def clear(self):
        self._turn.clear()
        self._credit.clear()
        self._again.clear()
        self.paced.clear()
        self._in_card = self._ahead = self._unpaced = 0
        self._served = None

    def advance(self, status, now):
        """Process the descriptors that the card retired, from its unpacked STATUS_BLOCK. Return true if there were any.
        """
        nic, send, again = self._rings
        frames = nic.advance(status.nic_tx_cons)
        for sent in frames:
            if sent is not None:
                sent()
        busy = bool(frames)
        for ring, cons in ((send, status.send_cons), (again, status.retransmit_cons)):
            if cookies := ring.advance(cons):
                busy = True
                self._finished(cookies, ring is again, now)
        return busy

    @property
    def last_cons(self):
        """Bytes of the SEND ring's consumer index at which all its descriptors are retired.

        None unless all of them belong to one QP that needs no earlier notice.
        """
        qp, send = self._served, self._rings[1]
        if qp is None or qp.sender is None or not qp.sender.in_card == send.unfinished > 0:
            return None
        return (send.prod % _INDICES).to_bytes(_INDEX_BYTES, "little") if qp.sender.counts_to_the_last else None

    def _finished(self, cookies, again, now):
        """Process retired descriptors. One without a cookie does not belong to a QP."""
        count, length = {}, 0
        for cookie in cookies:
            if cookie is not None:
                qp, descriptor_bytes = cookie
                count[qp] = count.get(qp, 0) + 1
                length += descriptor_bytes
        if count and not again:
            self._in_card -= length
            self._ahead = 0
        for qp, descriptors in count.items():
            qp.contain(self._transmitted, qp, now, again, descriptors)

    def _transmitted(self, qp, now, again, descriptors):
        if qp.sender.paced:
            qp.sender.on_taken(descriptors)
            if not qp.sender.in_rings:
                qp.left_rings()
            return
        self._unpaced -= descriptors
        left = qp.sender.in_card - descriptors
        try:
            qp.sender.on_transmitted(now, again, descriptors)
        except Exception:
            qp.sender.in_card = left      # so that the QP can be destroyed
            raise
        if not qp.sender.in_card:
            self.finished(qp)
        if qp.sender.frames:
            qp.wake()

    def fill(self):
        """Pass descriptors to the card as far as the rings have space.

        Returns
        -------
        bool
            True if a QP waits until the card retires descriptors.
        """
        waits = self.paced.busy and self.paced.fill()
        if self._again:
            self._repeat()
        if self._turn and self._in_card < self.enough_bytes:
            send = self.rings[Ring.SEND]
            ahead = 1 if self._turn[0].sender.bulk else 2
            most = ahead * self.enough_bytes if self._in_card else math.inf
            while self._turn and send.space >= ENTRIES_MAX and self._in_card < most:
                qp = self._turn[0]
                try:
                    self._serve(qp, send, most)
                except Exception as problem:
                    self.remove(qp)
                    qp.on_unexpected(problem)
            send.ring_doorbell()
        return waits or bool(self._turn or self._again)

    def _repeat(self):
        send, retransmit = self.rings[Ring.SEND], self.rings[Ring.RETRANSMIT]
        while (self._again and retransmit.space >= ENTRIES_MAX
               and not (self._ahead >= AHEAD_BYTES and send.prod != send.cons)):
            qp = self._again.popleft()
            qp.contain(self._repeat_one, qp, retransmit)
        retransmit.ring_doorbell()

    def _repeat_one(self, qp, retransmit):
        if work := qp.sender.next_retransmission():
            self._push(qp, retransmit, [work], [(qp, work.length)])
            self._ahead += work.length
            self._credit[qp] = _charged(self._credit.get(qp, 0), work.length)
        if qp.sender.has_retransmission:
            self._again.append(qp)

    def _serve(self, qp, send, most):
        """Serve one QP while it has credit, the ring has space, and the card has less than ``most`` bytes."""
        credit, alone = self._credit.get(qp, 0), len(self._turn) == 1
        if credit <= 0 and not alone:     # a single QP would be served again at once, until it has credit
            self._credit[qp] = credit + QUANTUM_BYTES
            self._turn.rotate(-1)
            return
        sender, self._served = qp.sender, qp
        in_card = self._in_card
        while (credit > 0 or alone) and send.space >= ENTRIES_MAX and in_card < most:
            works = sender.next_work(send.space - ENTRIES_MAX + 1 if alone else 1, most - in_card)
            if not works:
                break
            cookies, total = [], 0
            for work in works:
                length = work.length
                cookies.append((qp, length))
                total += length
                credit = (credit if credit > 0 else 1) - (length if length > LEAST_BYTES else LEAST_BYTES)
                if credit < -DEBT_BYTES_MAX:
                    credit = -DEBT_BYTES_MAX
            self._push(qp, send, works, cookies)
            self._in_card = in_card = in_card + total
        self._credit[qp] = credit
        if not sender.has_work:
            self._served_all(qp, credit)

    def _push(self, qp, ring, works, cookies):
        try:
            ring.push_all(qp.descriptors(works), cookies)
        except Exception:
            qp.sender.in_card -= len(works)      # the card does not get them
            raise
        self._unpaced += len(works)

    def _served_all(self, qp, credit):
        """Remove the QP that is served: it has no more work."""
        self._turn.popleft()
        if credit > 0:
            self._credit.pop(qp, None)
        else:
            self._credit[qp] = credit

    @property
    def unannounced(self):
        """True if work is in the card, or waits for ring space, whose end no report announces."""
        return bool(self._turn or self._again or self._unpaced)

    @property
    def busy(self):
        """True if descriptors of QPs are in the card's rings or wait for ring space."""
        if self._turn or self._again:
            return True
        _, send, again = self._rings
        return send.prod != send.cons or again.prod != again.cons
