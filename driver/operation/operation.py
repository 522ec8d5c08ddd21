"""Operations that a program posted."""

from dataclasses import dataclass, field

from ..protocol.message_end import Kind
from ..protocol.segment import PlainWrite
from ..terms.enums import WCOpcode, WCStatus, WROpcode
from .memory import total

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
WRITES = frozenset({WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM})
SENDS = frozenset({WROpcode.SEND, WROpcode.SEND_WITH_IMM})
FETCHES = frozenset({WROpcode.RDMA_READ, *ATOMIC_KIND})


class WriteOperation(PlainWrite):
    """A send work request that writes from one SGE, not inline: the usual one. It is also what is sent for it.

    Attributes are those of an :class:`Operation`.
    """

    __slots__ = ("fence", "followed", "sequence", "signaled", "solicited", "status", "windows", "wr_id")
    opcode = WROpcode.RDMA_WRITE
    inline = slot = grant_slot = unready = None
    answered = False

    def __init__(self, wr_id, va, length, lkey, remote_va, rkey, signaled, fence, solicited, followed=False):
        self.wr_id = wr_id
        self.local_va = va
        self.length = length
        self.lkey = lkey
        self.remote_va = remote_va
        self.rkey = rkey
        self.signaled = signaled
        self.fence = fence
        self.solicited = solicited
        self.followed = followed
        self.psn = self.sequence = self.status = None
        self.acked = False
        self.windows = ()

    @property
    def sges(self):
        """As of an :class:`Operation`."""
        return [(self.local_va, self.length, self.lkey)]

    @property
    def messages(self):
        """Itself, when it is cut."""
        return () if self.psn is None else (self,)

    @property
    def cookie(self):
        """Itself: see :class:`~weft.driver.protocol.segment.Request`."""
        return self

    def done(self, msn):
        """See :meth:`Operation.done`."""
        return self.acked and (self.length > 0 or msn > self.sequence)


@dataclass(eq=False, slots=True)
class Operation:
    """A send work request.

    Attributes
    ----------
    wr_id, opcode
        The program's.
    sges : list of (va, length, lkey)
        Local memory; of inline data what holds it while they are on their way.
    inline : bytes or None
        The data, taken when the request was posted.
    compare_add, swap : int
        Of atomics.
    followed : bool
        Another one was posted together with it, behind it.
    length : int
        Bytes.
    plain : bool
        A write of memory, or of data that its descriptor takes: nothing has to be prepared, and the peer's driver has
        no say in it, unless it is empty.
    sequence : int or None
        Its number among the requests of this end, from when it is started on.
    messages : list of Request
        What was sent for it.
    acked : bool
        All its data arrived.
    answered : bool
        The answer is here, in place.
    status : WCStatus or None
        Why it fails when it is its turn.
    """

    wr_id: int
    opcode: WROpcode
    sges: list
    remote_va: int = 0
    rkey: int = 0
    imm: int | None = None
    signaled: bool = True
    fence: bool = False
    solicited: bool = False
    inline: bytes | None = None
    compare_add: int = 0
    swap: int = 0
    followed: bool = False
    length: int = field(init=False)
    plain: bool = field(init=False)
    sequence: int | None = field(default=None, init=False)
    slot: int | None = field(default=None, init=False)
    grant_slot: int | None = field(default=None, init=False)
    windows: list = field(default_factory=list, init=False)
    unready: int | None = field(default=None, init=False)
    messages: list = field(default_factory=list, init=False)
    acked: bool = field(default=False, init=False)
    answered: bool = field(default=False, init=False)
    status: WCStatus | None = field(default=None, init=False)

    def __post_init__(self):
        sges = self.sges
        if self.inline is not None:
            self.length = len(self.inline)
        else:
            self.length = sges[0][1] if len(sges) == 1 else total(sges)
        self.plain = self.opcode is WROpcode.RDMA_WRITE and self.inline is None

    def done(self, msn):
        """Everything that it takes has happened; the peer is done with ``msn`` requests."""
        if self.opcode in FETCHES:
            return self.answered
        by_the_card = self.opcode is WROpcode.RDMA_WRITE and self.length    # of all others the peer's driver has a say
        return self.acked and (by_the_card or msn > self.sequence)

    def refuse(self, status):
        """It is impossible: nothing is sent for it, and it fails so when it is its turn."""
        self.status, self.plain = status, False

    def on_sent(self, message):
        """A message arrived, all of it."""
        self.acked = message is self.messages[-1] and (message.end is None or message.end.kind is not Kind.SEND_REQUEST)
