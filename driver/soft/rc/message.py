"""Partially received SEND or WRITE of the peer, and its validation (IBTA 1.7, chapter 9.7.4)."""

from dataclasses import dataclass

from weft.hdl.contract import wire

from ...protocol.aeth import Answer, answer_of
from ...protocol.segment import MESSAGE_BYTES_MAX
from ...terms.enums import AccessFlag, WCStatus
from .opcodes import ENDS, SENDS, STARTS, WRITES


class Rejection(Exception):
    """Rejection of a packet; if a receive is affected, it completes with ``status``."""

    def __init__(self, syndrome, receive=None, status=WCStatus.WR_FLUSH_ERR):
        super().__init__(f"AETH syndrome {int(syndrome):#x}")
        self.syndrome, self.receive, self.status = int(syndrome), receive, status

    @property
    def ready_later(self):
        """True if the peer may retransmit the packet (RNR NAK)."""
        return answer_of(self.syndrome) is Answer.RNR_NAK


@dataclass(eq=False)
class Message:
    """Message in reception.

    Attributes
    ----------
    kind : frozenset of RcOpcode
        SENDS or WRITES.
    va, rkey, length : int
        Of a WRITE.
    done : int
        Received bytes.
    receive : RecvWR or None
        Receive of a SEND.
    """

    kind: frozenset
    va: int = 0
    rkey: int = 0
    length: int = 0
    done: int = 0
    receive: object = None

    @classmethod
    def of(cls, packet, qp):
        """Return the message that begins with a first packet.

        Raises
        ------
        Refusal
            If a WRITE is too long, or may not access its destination.
        """
        if packet.opcode in SENDS:
            return cls(SENDS)
        if packet.dma_length > MESSAGE_BYTES_MAX:
            raise Rejection(wire.Syndrome.NAK_INVALID_REQUEST)
        if packet.dma_length and qp.remote_view(packet, packet.dma_length, AccessFlag.REMOTE_WRITE) is None:
            raise Rejection(wire.Syndrome.NAK_REMOTE_ACCESS)
        return cls(WRITES, packet.va, packet.rkey, packet.dma_length)

    def continues(self, packet):
        """Return true if the opcode of a packet can continue the message."""
        return packet.opcode in self.kind and packet.opcode not in STARTS

    def check_length(self, packet, pmtu):
        """Raise Refusal unless a packet has the required length: the remaining bytes for a last one, else the PMTU."""
        size, last, first = len(packet.payload), packet.opcode in ENDS, packet.opcode in STARTS
        right = size == pmtu if not last else size <= pmtu and (first or size > 0)
        if self.kind is WRITES:
            left = self.length - self.done
            right = right and (size == left if last else size < left)
        if not right:
            raise Rejection(wire.Syndrome.NAK_INVALID_REQUEST)

    def view(self, qp, packet):
        """Return the destination of the payload of a WRITE packet.

        Raises
        ------
        Refusal
            If the memory was deregistered in the meantime.
        """
        size = len(packet.payload)
        if not size:
            return memoryview(bytearray())
        view = qp.memory.view(qp.pd, self.rkey, self.va + self.done, size, AccessFlag.REMOTE_WRITE)
        if view is None:
            raise Rejection(wire.Syndrome.NAK_REMOTE_ACCESS)
        return view
