"""Whose work goes to the card next."""

import collections

from weft.hdl import abi

Ring = abi.Ring
_RINGS = (Ring.SEND, Ring.RETRANSMIT, Ring.NIC_TX)


class TransmitTurns:
    """QPs with work wait in turn; retransmissions first, then one descriptor of new work each.

    Parameters
    ----------
    rings : dict of Ring
    mark_active : callable(qp)
        Descriptors of ``qp`` were finished.
    """

    def __init__(self, rings, mark_active):
        self.rings, self.mark_active = rings, mark_active
        self._turn = collections.deque()

    def offer(self, qp):
        """Give ``qp`` a turn if it has work."""
        if qp.sender is not None and qp not in self._turn and (qp.sender.has_work or qp.sender.has_retransmission):
            self._turn.append(qp)

    def remove(self, qp):
        if qp in self._turn:
            self._turn.remove(qp)

    def clear(self):
        self._turn.clear()

    def advance(self, status, now):
        """Take back what the card finished, by its unpacked STATUS_BLOCK; true if there was something."""
        busy = False
        for ring in _RINGS:
            for qp in self.rings[ring].advance(getattr(status, f"{ring.name.lower()}_cons")):
                busy = True
                if qp is not None and qp.sender is not None:
                    qp.sender.on_transmitted(now)
                    self.mark_active(qp)
        return busy

    def fill(self):
        """Hand descriptors over as far as the rings have room."""
        send, retransmit = self.rings[Ring.SEND], self.rings[Ring.RETRANSMIT]
        for qp in list(self._turn):
            while retransmit.room and (fields := qp.sender.next_retransmission()):
                retransmit.push(qp.work_descriptor(fields), qp)
        retransmit.ring_doorbell()
        while self._turn and send.room:
            qp = self._turn.popleft()
            if fields := qp.sender.next_work():
                send.push(qp.work_descriptor(fields), qp)
            if qp.sender.has_work or qp.sender.has_retransmission:
                self._turn.append(qp)
                if not any(q.sender.has_work for q in self._turn):
                    break
        send.ring_doorbell()

    @property
    def busy(self):
        """Descriptors are in the card or wait for ring room."""
        return bool(self._turn) or any(self.rings[r].prod != self.rings[r].cons for r in _RINGS)
