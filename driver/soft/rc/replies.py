"""What a responder sends, in the order of the PSNs it answers, and what it keeps to answer again (IBTA 1.7, chapter
9.7.5)."""

import collections
from dataclasses import dataclass

from weft.hdl.contract import wire

from ...terms.enums import AccessFlag
from .credits import UNLIMITED, credit_code
from .message import Refusal
from .opcodes import RcOpcode, response_opcode
from .packet import RcPacket


@dataclass(eq=False)
class Resource:
    """A READ or an atomic that was carried out: its request and, of an atomic, what was there before."""

    psn: int
    packets: int
    request: RcPacket
    msn: int
    original: int = 0


@dataclass(eq=False)
class Reply:
    """Packets to be sent: an acknowledgement, or (from packet ``at`` on) an answer to ``request``, which is that of the
    ``resource`` or, when it came again, a part of it."""

    psn: int
    syndrome: int | None
    msn: int
    resource: Resource | None = None
    request: RcPacket | None = None
    at: int = 0


class Replies:
    """The replies of a queue pair.

    There are never more than one for each of the ``max_dest_rd_atomic`` last READs and atomics, which are kept to be
    answered again, and one acknowledgement, which speaks for all before it.
    """

    def __init__(self, qp):
        self.qp = qp
        self._queue = collections.deque()
        self._resources = collections.deque(maxlen=max(1, qp.attr.max_dest_rd_atomic))

    def __len__(self):
        return len(self._queue)

    def acknowledge(self, psn, syndrome, msn):
        """Send an ACK (``syndrome`` None: with the credits of that moment) or a NAK, in place of one that waits."""
        for reply in self._queue:
            if reply.resource is None:
                if syndrome is None and reply.syndrome is not None and reply.psn == psn + 1:
                    return      # that NAK acknowledges the same packets
                self._queue.remove(reply)
                break
        self._queue.append(Reply(psn, syndrome, msn))

    def check_room(self):
        """Raise Refusal if the peer has more READs and atomics outstanding than it may."""
        if sum(reply.resource is not None for reply in self._queue) >= self.qp.attr.max_dest_rd_atomic:
            raise Refusal(wire.Syndrome.NAK_INVALID_REQUEST)

    def read(self, psn, request, msn):
        """Answer a READ; PSNs that takes."""
        self.check_room()
        packets = max(1, -(-request.dma_length // self.qp.pmtu))
        self._add(Resource(psn, packets, request, msn))
        return packets

    def atomic(self, psn, request, original, msn):
        """Answer an atomic."""
        self._add(Resource(psn, 1, request, msn, original))

    def _add(self, resource):
        self._resources.append(resource)
        self._queue.append(Reply(resource.psn, None, resource.msn, resource, resource.request))

    def again(self, psn, request):
        """Answer a READ, or the rest of one, or an atomic once more; false if it is not among the last ones."""
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
        """The packet to be sent now, or None."""
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
        if view is None:        # it was deregistered in the meantime
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
