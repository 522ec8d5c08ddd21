"""A queue pair: its states, its tables, and what was posted (document: "QP Connection State Machine")."""

import collections
import enum
from dataclasses import dataclass, field

from ...terms.enums import WCStatus
from .completion import CompletionQueue
from .packet import Opcode

MAX_INFLIGHT = 32
MAX_OOO = 32
MAX_RETRIES = 7
MAX_NOT_READY = 64


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
    """How the requests of a QP are carried out."""

    SOFTWARE_LOOPBACK = enum.auto()
    NETWORK = enum.auto()


@dataclass
class WorkRequest:
    """A work request; the names are those of the document's header and code."""

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
    """A request that was taken up.

    Attributes
    ----------
    wr : WorkRequest
    region : Region
        The local one.
    built : int
        Bytes whose packets have a sequence number.
    waiting : int
        Packets that were not answered.
    started, whole : bool
        The first packet, all packets have a sequence number.
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
    """A packet that was not answered (the document's ``inflight_wr``).

    ``retries`` counts how often it was sent again; ``not_ready`` how often the peer had no memory for it, in which
    case the next time-out is ``excused``.
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
    """A queue pair.

    Attributes
    ----------
    id : int
    mode : Mode
    sq_size : int
        Requests that can be posted and not completed.
    cq : CompletionQueue
    timeout_ns : int
        After which a packet is sent again.
    remote_mac, remote_qp_num : int
    tx_seq, rx_expected_seq : int
        Next sequence number to send, next one expected.
    sq : deque of WorkRequest
        Posted, not taken up.
    works : deque of Work
        Taken up, not completed.
    inflight : dict of int to Inflight
    ooo_queue : dict of int to Packet
    message_bytes : int
        Bytes of the peer's present WRITE that came so far.
    due : float
        Nothing is to be done before, unless something is posted or answered.
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
        """Go to a state that may follow the present one.

        Raises
        ------
        ValueError
            If it may not.
        """
        if state not in NEXT[self.state]:
            raise ValueError(f"QP {self.id} does not go from {self.state.name} to {state.name}")
        self.state = state

    def confirm(self):
        """The connection is known to work in one direction: RTR becomes RTS."""
        if self.state is State.RTR:
            self.enter(State.RTS)

    @property
    def connected(self):
        """In network mode: a peer is known, and nothing went wrong."""
        return self.state in (State.RTR, State.RTS)

    @property
    def posted(self):
        """Requests that are not completed."""
        return len(self.sq) + len(self.works)

    def is_peer(self, packet):
        """Whether a packet is of the QP this one is connected to."""
        return packet.src_mac == self.remote_mac and packet.src_qp == self.remote_qp_num
