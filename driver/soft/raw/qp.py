"""Queue pair: states, tables and posted requests (document: "QP Connection State Machine")."""

import collections
import enum
from dataclasses import dataclass, field

from ...terms.enums import WCStatus
from .packet import Opcode

MAX_INFLIGHT = 32
MAX_OOO = 32
MAX_RETRIES = 7
MAX_NOT_READY = 64


@dataclass(frozen=True)
class Completion:
    """Completion. For a WRITE of the peer ``wr_id`` is 0: the peer's value is not known here."""

    wr_id: int
    byte_len: int
    status: WCStatus
    opcode: Opcode


class CompletionQueue:
    """Completions of a QP, oldest first.

    A request of the host reserves its entry when it is posted; a WRITE of the peer gets an entry only if one is left.
    So no completion is ever overwritten.
    """

    def __init__(self, size):
        self.size, self.reserved = size, 0
        self._queue = collections.deque()

    @property
    def space(self):
        """Number of entries that are neither used nor reserved."""
        return self.size - len(self._queue) - self.reserved

    def reserve(self):
        """Reserve an entry."""
        self.reserved += 1

    def push(self, completion, *, reserved=False):
        """Add a completion; the caller guarantees a free or ``reserved`` entry."""
        self.reserved -= reserved
        self._queue.append(completion)

    def poll(self, most):
        """Return and remove up to ``most`` completions."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def __len__(self):
        return len(self._queue)


class State(enum.Enum):
    """States of a QP."""

    RESET = enum.auto()
    INIT = enum.auto()
    RTR = enum.auto()
    RTS = enum.auto()
    ERROR = enum.auto()


NEXT = {State.RESET: {State.INIT}, State.INIT: {State.RTR, State.ERROR}, State.RTR: {State.RTS, State.ERROR},
        State.RTS: {State.ERROR}, State.ERROR: set()}


class Mode(enum.Enum):
    """Execution path of a QP's requests."""

    SOFTWARE_LOOPBACK = enum.auto()
    NETWORK = enum.auto()


@dataclass
class WorkRequest:
    """Work request; the names are those of the document's header and code."""

    wr_id: int = 0
    opcode: Opcode = Opcode.WRITE
    local_mr_id: int = 0
    local_offset: int = 0
    remote_mr_id: int = 0
    remote_addr: int = 0
    remote_key: int = 0
    length: int = 0


@dataclass(eq=False)
class Work:
    """Request whose transmission has begun.

    Attributes
    ----------
    wr : WorkRequest
    region : Region
        Local region.
    built : int
        Bytes whose packets have a sequence number.
    waiting : int
        Number of unanswered packets.
    started, whole : bool
        The first packet has a sequence number; all packets have one.
    status : WCStatus
    """

    wr: WorkRequest
    region: object = None
    built: int = 0
    waiting: int = 0
    started: bool = False
    whole: bool = False
    status: WCStatus = WCStatus.SUCCESS


@dataclass(eq=False)
class Inflight:
    """Unanswered packet (the document's ``inflight_wr``).

    ``retries`` counts the retransmissions. ``not_ready`` counts the responses that the peer had no memory for the
    packet; the next time-out after such a response is ``excused``.
    """

    seq: int
    send_time: int
    work: Work
    offset: int
    length: int
    retries: int = 0
    not_ready: int = 0
    excused: bool = False


@dataclass(eq=False)
class QueuePair:
    """Queue pair.

    Attributes
    ----------
    id : int
    mode : Mode
    sq_size : int
        Limit of requests that are posted and not completed.
    cq : CompletionQueue
    timeout_ns : int
        Retransmission time-out of a packet.
    remote_mac, remote_qp_num : int
    tx_seq, rx_expected_seq : int
        Next sequence number to send, next one expected.
    sq : deque of WorkRequest
        Posted requests whose transmission has not begun.
    works : deque of Work
        Requests whose transmission has begun, not completed.
    inflight : dict of int to Inflight
    ooo_queue : dict of int to Packet
    message_bytes : int
        Received bytes of the peer's current WRITE.
    due : float
        Time before which nothing is due, unless a request is posted or an answer arrives.
    """

    id: int
    mode: Mode
    sq_size: int
    cq: CompletionQueue
    timeout_ns: int
    state: State = State.RESET
    remote_mac: int = 0
    remote_qp_num: int = 0
    tx_seq: int = 0
    rx_expected_seq: int = 0
    sq: collections.deque = field(default_factory=collections.deque)
    works: collections.deque = field(default_factory=collections.deque)
    inflight: dict = field(default_factory=dict)
    ooo_queue: dict = field(default_factory=dict)
    message_bytes: int = 0
    due: float = 0

    def enter(self, state):
        """Go to a state that may follow the current one.

        Raises
        ------
        ValueError
            If there is no such transition.
        """
        if state not in NEXT[self.state]:
            raise ValueError(f"QP {self.id} does not go from {self.state.name} to {state.name}")
        self.state = state

    def confirm(self):
        """Go from RTR to RTS, because the connection works in at least one direction."""
        if self.state is State.RTR:
            self.enter(State.RTS)

    @property
    def connected(self):
        """True in RTR and RTS: in network mode the peer is known, and no error occurred."""
        return self.state in (State.RTR, State.RTS)

    @property
    def posted(self):
        """Number of requests that are not completed."""
        return len(self.sq) + len(self.works)

    def is_peer(self, packet):
        """Return true if a packet is from the connected QP of the peer."""
        return packet.src_mac == self.remote_mac and packet.src_qp == self.remote_qp_num
