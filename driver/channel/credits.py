"""Which work requests may be posted: credits that the peer gives back by acknowledgements. Events in, posts out."""

import collections
import contextlib
import enum
from typing import NamedTuple

from ..terms.checks import unsigned
from .failure import PeerError
from .lanes import Lane, LocalLane

_COUNT_BITS = 16


class Work(enum.IntEnum):
    """Kind of a work request."""

    DATA = 0
    IMM = 1
    READ = 2
    WRITE = 3


class Post(NamedTuple):
    """What has to be posted now: ``item`` is what :meth:`Credits.want` was given, or the immediate of an IMM."""

    work: Work
    item: object


def pack_ack(data, imm):
    """The immediate that acknowledges so many messages and so many acknowledgements."""
    return data << _COUNT_BITS | imm


def unpack_ack(value):
    """(messages, acknowledgements) that an immediate acknowledges."""
    return value >> _COUNT_BITS, value & (1 << _COUNT_BITS) - 1


class Credits:
    """One end's credits.

    A message takes one local and one remote credit when it is posted. The local one comes back with its completion, the
    remote one when the peer acknowledges. The same holds for acknowledgements, which have credits of their own. What
    finds no credit waits here, in order, each kind for itself.

    An acknowledgement is sent as soon as more messages or more acknowledgements were received than the threshold says;
    it counts whatever was received until it is posted, and goes before waiting messages.

    With one credit for acknowledgements that alone cannot work. Each would call for another; and two that cross leave
    both ends without credit. So then

    - an acknowledgement is answered only when the peer may need its credit: while more messages than the threshold are
      outstanding, or received;
    - one of the two ends ``yields``: while more messages than the threshold are outstanding it leaves the first word to
      the peer, which has received enough to acknowledge by itself.

    Every method that takes an event returns the posts that became possible, in order. The receives have been posted
    from the beginning, ``max_recv_wr`` of them, at both ends.

    Parameters
    ----------
    capacities : Capacities
    yields : bool, optional
        True at one end and False at the other (which one does not matter) with ``max_send_imm_wr`` 1.

    Attributes
    ----------
    counts : collections.Counter
        ``data_sent``, ``acks_sent``, ``data_received``, ``acks_received``; ``waited``: requests that did not leave at
        once; ``peer_errors``.
    failure : ChannelError or None
        Why the connection ended.

    Raises
    ------
    ChannelError
        By every event after a failure; PeerError by the one in which the peer breaks the rules.
    """

    def __init__(self, capacities, *, yields=None):
        if capacities.max_send_imm_wr == 1 and yields is None:
            raise ValueError("max_send_imm_wr is 1: one end has to yield and the other not (yields=True, yields=False)")
        self.capacities, self.yields = capacities, bool(yields)
        self.data = Lane("message", capacities.max_send_data_wr, capacities.data_threshold)
        self.imm = Lane("acknowledgement", capacities.max_send_imm_wr, capacities.imm_threshold)
        self.lanes = {Work.DATA: self.data, Work.IMM: self.imm,
                      Work.READ: LocalLane("read", capacities.max_read_wr),
                      Work.WRITE: LocalLane("write", capacities.max_write_wr)}
        self.waiting = {work: collections.deque() for work in (Work.DATA, Work.READ, Work.WRITE)}
        self.counts = collections.Counter()
        self.failure = None

    @property
    def send_data_local_remain(self):
        """Messages that this end may still post."""
        return self.data.local_remain

    @property
    def send_imm_local_remain(self):
        """Acknowledgements that this end may still post."""
        return self.imm.local_remain

    @property
    def send_data_remote_remain(self):
        """Messages that the peer still has receives for."""
        return self.data.remote_remain

    @property
    def send_imm_remote_remain(self):
        """Acknowledgements that the peer still has receives for."""
        return self.imm.remote_remain

    @property
    def receives(self):
        """Receives that are posted here, whether a message has already come for them or not."""
        return self.capacities.max_recv_wr - self.data.held - self.imm.held

    # ------------------------------------------------------------------------------------- events

    def want(self, work, item):
        """A message, a read or a write is to be posted; ValueError if there is no capacity for its kind at all."""
        self.check()
        if not self.lanes[work].capacity:
            raise ValueError(f"the channel was made without capacity for a {self.lanes[work].name}")
        self.waiting[work].append(item)
        posts = self._posts()
        if self.waiting[work]:
            self.counts["waited"] += 1
        return posts

    def sent(self, work):
        """A work request completed."""
        self.check()
        self.lanes[work].complete()
        return self._posts()

    def received_data(self):
        """A message came, and took a receive."""
        self.check()
        with self._judging():
            self.data.receive()
        self.counts["data_received"] += 1
        return self._posts()

    def received_ack(self, value):
        """An acknowledgement came, and took a receive; ``value`` is its immediate."""
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

    def reposted(self, work):
        """The receive that a message (DATA) or an acknowledgement (IMM) took is posted again."""
        self.check()
        self.lanes[work].repost()
        return self._posts()

    def fail(self, error):
        """The connection failed of a ChannelError; nothing waits any more."""
        if self.failure is None:
            self.failure = error
            self.counts["peer_errors"] += isinstance(error, PeerError)
        for queue in self.waiting.values():
            queue.clear()

    # ------------------------------------------------------------------------------------ deciding

    def check(self):
        """Raise the ChannelError that ended the connection, if one did."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    @contextlib.contextmanager
    def _judging(self):
        """What the peer did is counted against it, and ends the connection, if it is against the rules."""
        try:
            yield
        except PeerError as error:
            self.fail(error)
            raise

    def _posts(self):
        """Everything that may be posted now."""
        posts = []
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

    def _post(self, work, item):
        self.lanes[work].post()
        return Post(work, item)

    @property
    def ack_due(self):
        """The peer should be told what came."""
        if self.imm.capacity > 1:
            return self.data.due or self.imm.due
        if self.imm.held:       # whose credit the next one should give back
            return False
        peer_acknowledges = self.data.outstanding > self.data.threshold
        if self.imm.due:
            return self.data.due or peer_acknowledges
        return self.data.due and not (self.yields and peer_acknowledges)
