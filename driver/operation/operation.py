"""Operations: send work requests of a program."""

from ..protocol.message_end import Kind
from ..protocol.segment import Request
from ..terms.enums import WCOpcode, WROpcode

COMPLETION_OPCODE = {
    WROpcode.RDMA_WRITE: WCOpcode.RDMA_WRITE,
    WROpcode.RDMA_WRITE_WITH_IMM: WCOpcode.RDMA_WRITE,
    WROpcode.SEND: WCOpcode.SEND,
    WROpcode.SEND_WITH_IMM: WCOpcode.SEND,
    WROpcode.RDMA_READ: WCOpcode.RDMA_READ,
    WROpcode.ATOMIC_CMP_AND_SWP: WCOpcode.COMP_SWAP,
    WROpcode.ATOMIC_FETCH_AND_ADD: WCOpcode.FETCH_ADD,
}
ATOMIC_KIND = {WROpcode.ATOMIC_FETCH_AND_ADD: Kind.FETCH_AND_ADD,
               WROpcode.ATOMIC_CMP_AND_SWP: Kind.COMPARE_AND_SWAP}
ATOMIC_BYTES = 8
_WRITE = WROpcode.RDMA_WRITE
WRITES = frozenset({WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM})
SENDS = frozenset({WROpcode.SEND, WROpcode.SEND_WITH_IMM})
FETCHES = frozenset({WROpcode.RDMA_READ, *ATOMIC_KIND})


class Operation(Request):
    """Send work request. It is also the message that transfers its data to the peer, if any.

    Attributes
    ----------
    wr_id, opcode
        Of the program's request.
    sges : list of (va, length, lkey)
        Local memory. For inline data: once started, the memory that holds it.
    inline : bytes or None
        Data, copied when the request was posted. Once started: only if it is inline in the descriptor.
    compare_add, swap : int
        Operands of atomics.
    followed : bool
        Another request was posted after it in the same list. Once started: and belongs to the same message.
    length : int
        Bytes.
    plain : bool
        A write from memory, or of data that its descriptor holds. It needs no preparation, and does not involve the
        peer's driver unless it is empty.
    sequence : int or None
        Its number among the requests of this end, once started.
    question : Request or None
        Message that requests data, or memory for the data.
    acked : bool
        All its data is acknowledged.
    answered : bool
        Its response is complete and in place.
    status : WCStatus or None
        Status with which it fails in its turn.
    """

    __slots__ = ("acked", "answered", "compare_add", "fence", "grant_slot", "opcode", "plain", "question",
                 "signaled", "single", "slot", "status", "swap", "unready", "windows")

    def __init__(self, wr_id, opcode, sges, length, remote_va=0, rkey=0, imm=None, signaled=True, fence=False,
                 solicited=False, inline=None, compare_add=0, swap=0, followed=False):
        self.wr_id, self.opcode = wr_id, opcode
        self.sges, self.length = sges, length
        self.remote_va, self.rkey, self.imm = remote_va, rkey, imm
        self.signaled, self.fence, self.solicited = signaled, fence, solicited
        self.inline, self.followed = inline, followed
        self.compare_add, self.swap = compare_add, swap
        self.plain = inline is None and opcode is _WRITE
        self.single = self.plain and length > 0 and len(sges) == 1
        if self.single:
            ((self.local_va, _, self.lkey),) = sges
        self.end = self.targets = self.psn = self.packets = self.sequence = None
        self.question = self.status = self.slot = self.grant_slot = self.unready = None
        self.acked = self.answered = False
        self.windows = ()

    @property
    def messages(self):
        """The messages of the operation that are cut."""
        return [message for message in (self.question, self) if message is not None and message.psn is not None]

    def done(self, msn):
        """Return true if the operation is complete. The peer has completed ``msn`` requests."""
        if self.opcode in FETCHES:
            return self.answered
        by_the_card = self.opcode is _WRITE and self.length    # all others involve the peer's driver
        return self.acked and (by_the_card or msn > self.sequence)

    def refuse(self, status):
        """Mark the operation as impossible: nothing is sent, and it fails with ``status`` in its turn."""
        self.status, self.plain = status, False

    def on_sent(self):
        """Note that all of its data is acknowledged."""
        self.acked = True
