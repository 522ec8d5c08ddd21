"""Credit control: decides which work requests may be posted. The peer's acknowledgements return credits.

The inputs are events, the outputs are posts.
"""

import collections
import contextlib
import enum
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..terms.checks import unsigned
from .capacities import Capacities
from .lanes import ChannelError, Lane, LocalLane, PeerError

_COUNT_BITS = 16


class Work(enum.IntEnum):
    """Kind of a work request."""

    DATA = 0
    IMM = 1
    READ = 2
    WRITE = 3


class Post(NamedTuple):
    """Request that must be posted now: ``item`` is the argument of :meth:`Credits.want`, or the immediate of an IMM."""

    work: Work
    item: Any


def pack_ack(data: int, imm: int) -> int:
    """Return the immediate that acknowledges ``data`` messages and ``imm`` acknowledgements."""
    return data << _COUNT_BITS | imm


def unpack_ack(value: int) -> tuple[int, int]:
    """Return (messages, acknowledgements) that an immediate acknowledges."""
    return value >> _COUNT_BITS, value & (1 << _COUNT_BITS) - 1


class Credits:
    """Credits of one end.

    A message consumes one local and one remote credit when it is posted. Its completion returns the local credit, and
    the peer's acknowledgement the remote one. The same holds for acknowledgements, which have separate credits.
    Requests without a credit wait in order, each kind in a separate queue.

    An acknowledgement is sent as soon as the number of received messages or acknowledgements exceeds its threshold. It
    counts everything received until it is posted, and has priority over waiting messages.

    With one credit for acknowledgements, that alone cannot work: each acknowledgement would require another, and two
    that cross leave both ends without a credit. Therefore, in this case,

    - an acknowledgement is acknowledged only when the peer may need its credit: while more messages than the threshold
      are outstanding, or received;
    - one of the two ends ``yields``: while more messages than the threshold are outstanding, it waits for the
      acknowledgement of the peer, which has received enough to send one.

    Every method that takes an event returns the posts that it allows, in order. At both ends, ``max_recv_wr`` receives
    are posted from the beginning.

    Parameters
    ----------
    capacities : Capacities
    yields : bool, optional
        With ``max_send_imm_wr`` 1: True at one end (either one) and False at the other.

    Attributes
    ----------
    counts : collections.Counter
        ``data_sent``, ``acks_sent``, ``data_received``, ``acks_received``; ``waited``: requests that were not posted at
        once; ``peer_errors``.
    failure : ChannelError or None
        Reason for the end of the connection.

    Raises
    ------
    ChannelError
        By every event after a failure; PeerError by the event in which the peer violates the protocol.
    """

    def __init__(self, capacities: Capacities, *, yields: bool | None = None) -> None:
        if capacities.max_send_imm_wr == 1 and yields is None:
            raise ValueError("max_send_imm_wr is 1: one end has to yield and the other not (yields=True, yields=False)")
        self.capacities, self.yields = capacities, bool(yields)
        self.data = Lane("message", capacities.max_send_data_wr, capacities.data_threshold)
        self.imm = Lane("acknowledgement", capacities.max_send_imm_wr, capacities.imm_threshold)
        self._sends = {Work.DATA: self.data, Work.IMM: self.imm}
        self.lanes: dict[Work, LocalLane] = {**self._sends, Work.READ: LocalLane("read", capacities.max_read_wr),
                                             Work.WRITE: LocalLane("write", capacities.max_write_wr)}
        self.waiting: dict[Work, collections.deque[object]] = {
            work: collections.deque() for work in (Work.DATA, Work.READ, Work.WRITE)}
        self.counts: collections.Counter[str] = collections.Counter()
        self.failure: ChannelError | None = None

    @property
    def send_data_local_remain(self) -> int:
        """Number of messages that this end may still post."""
        return self.data.local_remain

    @property
    def send_imm_local_remain(self) -> int:
        """Number of acknowledgements that this end may still post."""
        return self.imm.local_remain

    @property
    def send_data_remote_remain(self) -> int:
        """Number of messages that the peer still has receives for."""
        return self.data.remote_remain

    @property
    def send_imm_remote_remain(self) -> int:
        """Number of acknowledgements that the peer still has receives for."""
        return self.imm.remote_remain

    @property
    def receives(self) -> int:
        """Number of receives that are posted here, including those of messages that arrived but are not processed."""
        return self.capacities.max_recv_wr - self.data.held - self.imm.held

    # ------------------------------------------------------------------------------------- events

    def want(self, work: Work, item: object) -> list[Post]:
        """Request to post a message, a read or a write. Raise ValueError if the capacity for its kind is 0."""
        self.check()
        if not self.lanes[work].capacity:
            raise ValueError(f"the channel was made without capacity for a {self.lanes[work].name}")
        self.waiting[work].append(item)
        posts = self._posts()
        if self.waiting[work]:
            self.counts["waited"] += 1
        return posts

    def sent(self, work: Work) -> list[Post]:
        """Note the completion of a work request."""
        self.check()
        self.lanes[work].complete()
        return self._posts()

    def received_data(self) -> list[Post]:
        """Note a message, which consumed a receive."""
        self.check()
        with self._judging():
            self.data.receive()
        self.counts["data_received"] += 1
        return self._posts()

    def received_ack(self, value: int) -> list[Post]:
        """Note an acknowledgement with the immediate ``value``, which consumed a receive."""
        self.check()
        data, imm = unpack_ack(unsigned("value", value, 2 * _COUNT_BITS))
        with self._judging():
            if not data and not imm:
                raise PeerError("the peer acknowledged nothing")
            self.imm.receive()
            self.data.acknowledged(data)
            self.imm.acknowledged(imm)
        self.counts["acks_received"] += 1
        return self._posts()

    def reposted(self, work: Work) -> list[Post]:
        """Note that the receive that a message (DATA) or an acknowledgement (IMM) consumed is posted again."""
        self.check()
        self._sends[work].repost()
        return self._posts()

    def fail(self, error: ChannelError) -> None:
        """End the connection with a ChannelError. Waiting requests are dropped."""
        if self.failure is None:
            self.failure = error
            self.counts["peer_errors"] += isinstance(error, PeerError)
        for queue in self.waiting.values():
            queue.clear()

    # ------------------------------------------------------------------------------------ deciding

    def check(self) -> None:
        """Raise the ChannelError that ended the connection, if one did."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    @contextlib.contextmanager
    def _judging(self) -> Iterator[None]:
        """Count a protocol violation of the peer, and end the connection."""
        try:
            yield
        except PeerError as error:
            self.fail(error)
            raise

    def _posts(self) -> list[Post]:
        """Return everything that may be posted now."""
        posts: list[Post] = []
        while True:
            if self.ack_due and self.imm.open:
                posts.append(self._post(Work.IMM, pack_ack(self.data.settle(), self.imm.settle())))
                self.counts["acks_sent"] += 1
            elif self.waiting[Work.DATA] and self.data.open:
                posts.append(self._post(Work.DATA, self.waiting[Work.DATA].popleft()))
                self.counts["data_sent"] += 1
            else:
                break
        for work in (Work.READ, Work.WRITE):
            while self.waiting[work] and self.lanes[work].open:
                posts.append(self._post(work, self.waiting[work].popleft()))
        return posts

    def _post(self, work: Work, item: object) -> Post:
        self.lanes[work].post()
        return Post(work, item)

    @property
    def ack_due(self) -> bool:
        """True if an acknowledgement must be sent."""
        if self.imm.capacity > 1:
            return self.data.due or self.imm.due
        if self.imm.held:       # the next acknowledgement must return its credit
            return False
        peer_acknowledges = self.data.outstanding > self.data.threshold
        if self.imm.due:
            return self.data.due or peer_acknowledges
        return self.data.due and not (self.yields and peer_acknowledges)
