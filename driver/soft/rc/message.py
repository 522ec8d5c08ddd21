"""A SEND or WRITE of the peer of which some packets came, and what is wrong with one (IBTA 1.7, chapter
9.7.4)."""

from dataclasses import dataclass

from weft.hdl.contract import wire

from ...protocol.aeth import Answer, answer_of
from ...protocol.segment import MESSAGE_BYTES_MAX
from ...terms.enums import AccessFlag, WCStatus
from .opcodes import ENDS, SENDS, STARTS, WRITES


class Refusal(Exception):
    """A packet is not carried out; ``receive`` completes with ``status``, if it concerns one."""

    def __init__(self, syndrome, receive=None, status=WCStatus.WR_FLUSH_ERR):
        super().__init__(f"AETH syndrome {int(syndrome):#x}")
        self.syndrome, self.receive, self.status = int(syndrome), receive, status

    @property
    def ready_later(self):
        """The packet may come again (RNR NAK)."""
        return answer_of(self.syndrome) is Answer.RNR_NAK


@dataclass(eq=False)
class Message:
    """A message.

    Attributes
    ----------
    kind : frozenset of RcOpcode
        SENDS or WRITES.
    va, rkey, length : int
        Of a WRITE.
    done : int
        Bytes that came.
    receive : RecvWR or None
        Of a SEND.
    """

    kind: frozenset
    va: int = 0
    rkey: int = 0
    length: int = 0
    done: int = 0
    receive: object = None

    @classmethod
    def of(cls, packet, qp):
        """The message that a first packet begins.

        Raises
        ------
        Refusal
            If a WRITE may not go where it is to go.
        """
        if packet.opcode in SENDS:
            return cls(SENDS)
        if packet.dma_length > MESSAGE_BYTES_MAX:
            raise Refusal(wire.Syndrome.NAK_INVALID_REQUEST)
        if packet.dma_length and qp.remote_view(packet, packet.dma_length, AccessFlag.REMOTE_WRITE) is None:
            raise Refusal(wire.Syndrome.NAK_REMOTE_ACCESS)
        return cls(WRITES, packet.va, packet.rkey, packet.dma_length)

    def continues(self, packet):
        """Whether a packet may be the next of it."""
        return packet.opcode in self.kind and packet.opcode not in STARTS

    def check_length(self, packet, pmtu):
        """Raise Refusal unless the packet has the length of its place: a last one what is left, others the PMTU."""
        size, last, first = len(packet.payload), packet.opcode in ENDS, packet.opcode in STARTS
        right = size == pmtu if not last else size <= pmtu and (first or size > 0)
        if self.kind is WRITES:
            left = self.length - self.done
            right = right and (size == left if last else size < left)
        if not right:
            raise Refusal(wire.Syndrome.NAK_INVALID_REQUEST)

    def view(self, qp, packet):
        """Where the payload of a packet of a WRITE goes.

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
            raise Refusal(wire.Syndrome.NAK_REMOTE_ACCESS)
        return view
