"""Send queue of a responder, in the order of the answered PSNs, and the state for repeated answers.

Source: IBTA 1.7, chapter 9.7.5.
"""

import collections
from dataclasses import dataclass

from weft.hdl.contract import wire

from ...terms.enums import AccessFlag
from .message import Rejection
from .opcodes import RcOpcode, response_opcode
from .packet import UNLIMITED, RcPacket, credit_code


@dataclass(eq=False)
class Resource:
    """Executed READ or atomic: its request and, for an atomic, the original value."""

    psn: int
    packets: int
    request: RcPacket
    msn: int
    original: int = 0


@dataclass(eq=False)
class Reply:
    """Packets to send: an acknowledgement, or the answer to ``request`` from packet ``at`` on.

    ``request`` is that of ``resource`` or, if it was repeated, a part of it.
    """

    psn: int
    syndrome: int | None
    msn: int
    resource: Resource | None = None
    request: RcPacket | None = None
    at: int = 0


class Replies:
    """Replies of a queue pair.

    The queue holds at most one reply for each of the last ``max_dest_rd_atomic`` READs and atomics, which are kept for
    repeated answers, and one acknowledgement, which covers all earlier packets.
    """

    def __init__(self, qp):
        self.qp = qp
        self._queue = collections.deque()
        self._resources = collections.deque(maxlen=max(1, qp.attr.max_dest_rd_atomic))

    def __len__(self):
        return len(self._queue)

    def acknowledge(self, psn, syndrome, msn):
        """Queue an ACK or a NAK, which replaces a queued one.

        ``syndrome`` None is an ACK with the credits at the time of its transmission.
        """
        for reply in self._queue:
            if reply.resource is None:
                if syndrome is None and reply.syndrome is not None and reply.psn == psn + 1:
                    return      # that NAK acknowledges the same packets
                self._queue.remove(reply)
                break
        self._queue.append(Reply(psn, syndrome, msn))

    def check_space(self):
        """Raise Refusal if the peer exceeds its limit of outstanding READs and atomics."""
        if sum(reply.resource is not None for reply in self._queue) >= self.qp.attr.max_dest_rd_atomic:
            raise Rejection(wire.Syndrome.NAK_INVALID_REQUEST)

    def read(self, psn, request, msn):
        """Queue the answer to a READ, and return the number of its PSNs."""
        self.check_space()
        packets = max(1, -(-request.dma_length // self.qp.pmtu))
        self._add(Resource(psn, packets, request, msn))
        return packets

    def atomic(self, psn, request, original, msn):
        """Queue the answer to an atomic."""
        self._add(Resource(psn, 1, request, msn, original))

    def _add(self, resource):
        self._resources.append(resource)
        self._queue.append(Reply(resource.psn, None, resource.msn, resource, resource.request))

    def again(self, psn, request):
        """Answer a repeated READ, the rest of one, or a repeated atomic; return false if its resource is not kept."""
        for resource in self._resources:
            if not resource.psn <= psn < resource.psn + resource.packets:
                continue
            old, offset = resource.request, (psn - resource.psn) * self.qp.pmtu
            same = request.opcode is old.opcode and request.rkey == old.rkey and request.va == old.va + offset
            if not same or request.dma_length > old.dma_length - offset:
                return False
            for reply in self._queue:
                if reply.resource is resource:
                    self._queue.remove(reply)
                    break
            self._queue.append(Reply(psn, None, resource.msn, resource, request))
            return True
        return False

    def next_packet(self):
        """Return the next packet to send, or None."""
        if not self._queue:
            return None
        reply = self._queue[0]
        if reply.resource is not None and reply.request.opcode is RcOpcode.READ_REQUEST:
            return self._next_of_read(reply)
        self._queue.popleft()
        if reply.resource is None:
            return self._packet(RcOpcode.ACKNOWLEDGE, reply.psn, reply.syndrome, reply.msn)
        return self._packet(RcOpcode.ATOMIC_ACKNOWLEDGE, reply.psn, None, reply.msn, original=reply.resource.original)

    def _next_of_read(self, reply):
        request, pmtu, number = reply.request, self.qp.pmtu, reply.at
        offset = number * pmtu
        size = min(pmtu, request.dma_length - offset)
        view = self.qp.remote_view(request, size, AccessFlag.REMOTE_READ, offset) if size else b""
        if view is None:        # deregistered in the meantime
            self._queue.clear()
            self.qp.fail()
            return self._packet(RcOpcode.ACKNOWLEDGE, reply.psn + number, wire.Syndrome.NAK_REMOTE_ACCESS, reply.msn)
        reply.at += 1
        last = offset + size == request.dma_length
        if last:
            self._queue.popleft()
        return self._packet(response_opcode(number == 0, last), reply.psn + number, None, reply.msn,
                            payload=bytes(view))

    def _packet(self, opcode, psn, syndrome, msn, **fields):
        if syndrome is None:
            limited = self.qp.attr.end_to_end_credits
            syndrome = credit_code(len(self.qp.receives)) if limited else UNLIMITED
        return RcPacket(opcode, 0, psn % (1 << wire.PSN_BITS), syndrome=int(syndrome),
                        msn=msn % (1 << wire.PSN_BITS), **fields)
