"""Bitmap window of one QP without time: the functional model of ``hdl/adamap/window/window.py``."""

from dataclasses import dataclass, field

ACCEPT, DUPLICATE, STALE, LATE, MATCH, UNMATCHED, PROBE, FAR = range(8)  # verdicts, numbered as on the card
_PSN24 = 1 << 24
_AHEAD = 1 << 23


def signed24(value):
    """Return a 24-bit difference as a signed number."""
    value %= _PSN24
    return value - _PSN24 if value >= _PSN24 // 2 else value


@dataclass(slots=True)
class WindowVerdict:
    """Verdict of the window for a packet, and the holes found.

    Attributes
    ----------
    verdict : int
        ``ACCEPT`` to ``FAR``.
    psn, base : int
        Of the packet, and of the window afterwards; unbounded.
    holes : int
        Holes of the QP so far.
    progress : bool
        The driver must get a PROGRESS report: no packet of the window is missing any more.
    lost : list of (psn, length)
        Runs of new holes.
    seal : bool
        The open node of the QP must be closed and reported.
    """

    verdict: int
    psn: int
    base: int
    holes: int
    progress: bool
    lost: list = field(default_factory=list)
    seal: bool = False


class Window:
    """Sliding window of the received PSNs of one QP.

    Parameters
    ----------
    bits : int
        Width of the window.
    psn : int
        First expected PSN, 32 bit.
    """

    def __init__(self, bits, psn):
        self.bits, self.base, self.cum = bits, psn, psn
        self.received = set()
        self.holes = 0
        self.owed = False

    def judge(self, psn, *, retransmission=False, probe=False, ack_req=False, space=True, reorder=1, guard=0):
        """Return the verdict for a packet with 24-bit ``psn``.

        Internal PSNs are unbounded integers from ``base`` on.

        Parameters
        ----------
        psn : int
        retransmission, probe, ack_req : bool
            Kind of the packet; it requests an acknowledgement.
        space : bool
            The match queue has space for a retransmission.
        reorder : int
            Positions by which packets may be reordered before a missing one counts as lost, 1 or more.
        guard : int
            Number of high bits, of the 23 bits of a distance ahead, that must be zero; a PSN further ahead is FAR.
        """
        base = self.base
        at = base + (psn - base + _AHEAD) % _PSN24 - _AHEAD
        if at == base and _AHEAD >> guard and not (self.received or retransmission or probe):   # as below, but faster
            owed, self.owed, self.base = self.owed, False, base + 1
            return WindowVerdict(ACCEPT, at, base + 1, self.holes, owed, [], ack_req)
        lost, seal = [], False
        if at - base >= _AHEAD >> guard:
            verdict = FAR
        elif probe:
            verdict, seal = PROBE, True
            lost = self._slide(at)
        elif at < base and at < self.cum:
            verdict = STALE
        elif retransmission:
            if at >= base:
                verdict = STALE
            else:
                verdict = MATCH if space else UNMATCHED
        elif at < base:
            verdict = LATE
        elif at in self.received:
            verdict = DUPLICATE
        else:
            verdict, seal = ACCEPT, ack_req
            self.received.add(at)
            lost = self._slide(at - min(max(reorder, 1), self.bits) + 1)
        progress = False
        if verdict in (ACCEPT, PROBE):
            empty = not self.received
            progress = self.owed and empty
            self.owed = (self.owed or (ack_req and not probe)) and not empty
        return WindowVerdict(verdict, at, self.base, self.holes, progress, lost, seal)

    def _slide(self, end):
        """Move the base to ``end`` if that is ahead, and past received PSNs; return the missing runs."""
        lost = []
        if end <= self.base and self.base not in self.received:
            return lost
        if end > self.base:
            start = self.base
            for psn in sorted(p for p in self.received if p < end) + [end]:
                if psn > start:
                    lost.append((start, psn - start))
                start = psn + 1
            self.received = {p for p in self.received if p >= end}
            self.base = end
        while self.base in self.received:
            self.received.remove(self.base)
            self.base += 1
        self.holes += sum(n for _, n in lost)
        return lost
