"""Completion queues whose completions are written into a program's memory."""

from ..ibverbs.rings import COMP_EVENT, WC_SLOT
from ..terms.enums import WCStatus
from ..terms.errors import InvalidValue, OutOfResources
from ..verbs.cq import CQ
from .ring import ARMED, DONE, PROD, SharedRing, Violation
from .shared_memory import compiled, fence

_WC = compiled(WC_SLOT)
CQE_LEAST = 64      # programs with one outstanding request expect space for more: no real device has a shorter queue


class ServedCQ(CQ):
    """Completion queue of a client.

    Parameters
    ----------
    context : Context
    cqe : int
        Least capacity; the capacity is the number of slots of the ring, which is reported to the program.
    client : Client
    user : int
        Identifier of the queue in events for the program.
    channel : EventPipe or None
    comp_vector : int
    """

    def __init__(self, context, cqe, *, client, user, channel=None, comp_vector=0):
        super().__init__(context, cqe, comp_vector=comp_vector)
        self.client, self.user, self.served_channel = client, user, channel
        try:
            self.ring = self._ring(self.cqe)
        except OutOfResources:
            super().close()
            raise
        self.cqe = self.ring.slots
        if channel is not None:
            channel.users += 1

    @staticmethod
    def _ring(cqe):
        return SharedRing("weft-cq", max(cqe, CQE_LEAST), WC_SLOT.size_bytes)

    def push(self, wc, solicited=False):
        """Add a completion in the program's memory, and report an event if requested: see :meth:`CQ.push`."""
        self.client.retired(wc)
        ring = self.ring
        try:
            full = ring.waiting >= self.cqe
        except Violation as violation:
            self.client.violated = violation
            return
        if self.overrun or full:
            self.lost += 1
            self._overrun()
            return
        _WC.pack_into(ring.mapping, ring.place(ring.own), wc.wr_id, wc.status, wc.opcode, wc.vendor_err, wc.byte_len,
                      wc.imm_data or 0, wc.qp_num, wc.wc_flags, wc.src_qp, wc.sl)
        ring.put()
        self.client.has_events = True
        fence()
        armed = ring.words[ARMED]
        if armed != ring.words[DONE] and (not armed & 1 or solicited or wc.status is not WCStatus.SUCCESS):
            self._signal()

    def push_all(self, wcs):
        for wc in wcs:
            self.push(wc)

    def forget(self, qp_num):
        """Do nothing: the program removes the completions from its memory."""

    def _signal(self):
        self.ring.words[DONE] = self.ring.words[ARMED]
        if self.served_channel is not None:
            self.served_channel.notify(COMP_EVENT.pack(user=self.user))

    def resize(self, cqe, allow=lambda ring: None):
        """Replace the ring, and keep the completions that the program has not taken.

        ``allow(ring)`` may raise OutOfResources to reject the new ring.

        Raises
        ------
        InvalidValue
            If the queue holds more completions, or overran.
        OutOfResources
        """
        size, old = self._size(cqe), self.ring
        waiting = old.waiting
        if self.overrun or waiting > size:
            raise InvalidValue(f"Failed to resize CQ: it holds {waiting} completions, or overran")
        new = self._ring(size).allowed(allow)
        new.take_over(old, old.own - waiting, waiting)
        new.own = new.words[PROD] = waiting
        new.words[ARMED], new.words[DONE] = old.words[ARMED], old.words[DONE]
        self.cqe, self.ring = new.slots, new
        old.close()

    def close(self):
        if not self.closed:
            super().close()
            self.ring.close()
            if self.served_channel is not None:
                self.served_channel.users -= 1
