"""Operations that a program posted."""

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
    """A send work request. It is also the message that brings its data to the peer, if it sends some.

    Attributes
    ----------
    wr_id, opcode
        The program's.
    sges : list of (va, length, lkey)
        Local memory; of inline data, from when it is started on, what holds it.
    inline : bytes or None
        The data, taken when the request was posted; from when it is started on, if its descriptor takes it.
    compare_add, swap : int
        Of atomics.
    followed : bool
        Another one was posted together with it, behind it; from when it is started on, of the same message.
    length : int
        Bytes.
    plain : bool
        A write of memory, or of data that its descriptor takes: nothing has to be prepared, and the peer's driver has
        no say in it, unless it is empty.
    sequence : int or None
        Its number among the requests of this end, from when it is started on.
    question : Request or None
        The message that asks for data, or for memory that the data goes to.
    acked : bool
        All its data arrived.
    answered : bool
        The answer is here, in place.
    status : WCStatus or None
        Why it fails when it is its turn.
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
        """What is sent for it and is cut."""
        return [message for message in (self.question, self) if message is not None and message.psn is not None]

    def done(self, msn):
        """Everything that it takes has happened; the peer is done with ``msn`` requests."""
        if self.opcode in FETCHES:
            return self.answered
        by_the_card = self.opcode is _WRITE and self.length    # of all others the peer's driver has a say
        return self.acked and (by_the_card or msn > self.sequence)

    def refuse(self, status):
        """It is impossible: nothing is sent for it, and it fails so when it is its turn."""
        self.status, self.plain = status, False

    def on_sent(self):
        """All of its data arrived."""
        self.acked = True
