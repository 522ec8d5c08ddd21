"""Channel of messages over a queue pair."""

import collections
import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from ..terms.checks import between
from ..terms.enums import SendFlags, WCFlags, WCStatus, WROpcode
from ..terms.wc import WC
from ..verbs.wr import SGE, RecvWR, SendWR
from .capacities import Capacities
from .credits import Credits, Post, Work
from .lanes import ChannelError, PeerError

POLL = 16
_RECEIVE = len(Work)     # kind of a receive in a wr_id
_KIND_SHIFT = 32
_ONE_SIDED = {WROpcode.RDMA_READ: Work.READ, WROpcode.ATOMIC_CMP_AND_SWP: Work.READ,
              WROpcode.ATOMIC_FETCH_AND_ADD: Work.READ, WROpcode.RDMA_WRITE: Work.WRITE}


Request = TypeVar("Request", SendWR, RecvWR)


class Posting(Protocol):
    """QP in INIT or later, with ``max_send_wr`` and ``max_recv_wr`` of the capacities."""

    def post_send(self, wr: SendWR, /) -> None: ...

    def post_recv(self, wr: RecvWR, /) -> None: ...


class Polling(Protocol):
    """Send and receive CQ of the QP, with ``max_cqe`` entries."""

    def poll(self, num_entries: int, /) -> tuple[int, list[WC]]: ...


class Region(Protocol):
    """MR of :func:`memory_bytes` bytes that is locally writable."""

    buf: int
    length: int
    lkey: int

    def read(self, length: int, offset: int, /) -> bytes: ...

    def write(self, data: bytes, length: int, offset: int, /) -> None: ...


def memory_bytes(capacities: Capacities, message_bytes: int) -> int:
    """Return the bytes of memory that a channel needs: a slot for each outstanding message, and for each receive."""
    return (capacities.max_send_data_wr + capacities.max_recv_wr) * message_bytes


class Channel:
    """Messages to and from the peer of a connection, each of which finds a posted receive.

    Messages arrive complete and in order. No method blocks: a request without a credit waits in a queue, and is posted
    when :meth:`recv` or :meth:`progress` processes completions. Therefore a program that only sends must call one of
    them, too. Messages that arrive are copied out of their receives at once, however slowly the program takes them.

    Both ends must have the same capacities and message size, and must be created before either sends: the receives are
    posted here. QP and CQ must have no other use.

    Parameters
    ----------
    qp : Posting
    cq : Polling
    mr : Region
    capacities : Capacities
    message_bytes : int
        Largest message.
    yields : bool, optional
        See :class:`Credits`.

    Attributes
    ----------
    credits : Credits
    completions : collections.deque of WC
        Of the requests of :meth:`post`.

    Raises
    ------
    ChannelError
        By every method, after the connection failed. Messages that arrived before can still be received.
    """

    def __init__(self, qp: Posting, cq: Polling, mr: Region, capacities: Capacities, *, message_bytes: int,
                 yields: bool | None = None) -> None:
        self.message_bytes = between("message_bytes", message_bytes, 1, (1 << 31) - 1)
        self.credits = Credits(capacities, yields=yields)
        if mr.length < memory_bytes(capacities, message_bytes):
            raise ValueError(f"the MR has {mr.length} bytes; {memory_bytes(capacities, message_bytes)} are needed")
        self.qp, self.cq, self.mr = qp, cq, mr
        self.completions: collections.deque[WC] = collections.deque()
        self._inbox: collections.deque[bytes] = collections.deque()
        self._slots = list(range(capacities.max_send_data_wr))
        self._one_sided: dict[int, int] = {}
        self._serial = 0
        for slot in range(capacities.max_send_data_wr, capacities.max_send_data_wr + capacities.max_recv_wr):
            self._post_receive(slot)

    # --------------------------------------------------------------------------------- interface

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a credit."""
        return sum(map(len, self.credits.waiting.values()))

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send a message, or queue it. Raise ValueError if it is longer than ``message_bytes``."""
        data = bytes(data)
        if len(data) > self.message_bytes:
            raise ValueError(f"a message of {len(data)} bytes; up to {self.message_bytes} are possible")
        self._post(self.credits.want(Work.DATA, data))

    def recv(self) -> bytes | None:
        """Return the next message, or None if there is none."""
        if not self._inbox:
            self._take_completions()
        if not self._inbox:
            self.credits.check()
        return self._inbox.popleft() if self._inbox else None

    def post(self, wr: SendWR) -> None:
        """Post an RDMA read, a write without immediate, or an atomic, or queue it.

        Requests of one kind are posted in order. They are signaled; completions are added to :attr:`completions`.

        Raises
        ------
        ValueError
            If it is none of these, or the capacity for its kind is 0.
        """
        if wr.opcode not in _ONE_SIDED:
            raise ValueError(f"opcode {wr.opcode!r} would take a receive; messages go by send()")
        self._post(self.credits.want(_ONE_SIDED[wr.opcode], wr))

    def progress(self) -> None:
        """Process all available completions, and post the requests that they allow."""
        self._take_completions()
        self.credits.check()

    # --------------------------------------------------------------------------------------- posts

    def _post(self, posts: Iterable[Post]) -> None:
        for work, item in posts:
            if work in (Work.READ, Work.WRITE):
                self._post_one_sided(work, item)
            else:
                self._give(self.qp.post_send, self._send_wr(work, item))

    def _give(self, post: Callable[[Request], None], wr: Request) -> None:
        """Post a work request. An exception ends the channel."""
        try:
            post(wr)
        except Exception as error:
            failure = ChannelError(f"a work request was refused: {error}")
            self.credits.fail(failure)
            raise self.credits.failure or failure from error

    def _post_one_sided(self, work: Work, wr: SendWR) -> None:
        """Post a signaled request with a temporary ``wr_id``. The request itself does not change."""
        self._serial = (self._serial + 1) % (1 << _KIND_SHIFT)
        self._one_sided[self._serial] = given = wr.wr_id
        flags = wr.send_flags
        wr.wr_id, wr.send_flags = _wr_id(work, self._serial), flags | SendFlags.SIGNALED
        try:
            self._give(self.qp.post_send, wr)
        finally:
            wr.wr_id, wr.send_flags = given, flags

    def _send_wr(self, work: Work, item: Any) -> SendWR:
        if work is Work.IMM:
            return SendWR(wr_id=_wr_id(work, 0), opcode=WROpcode.SEND_WITH_IMM, send_flags=SendFlags.SIGNALED,
                          imm_data=item)
        slot = self._slots.pop()
        self.mr.write(item, len(item), slot * self.message_bytes)
        sges = [self._sge(slot, len(item))] if item else []     # some cards interpret length 0 as 2 GiB
        return SendWR(wr_id=_wr_id(work, slot), num_sge=len(sges), sg=sges, opcode=WROpcode.SEND,
                      send_flags=SendFlags.SIGNALED)

    def _post_receive(self, slot: int) -> None:
        self._give(self.qp.post_recv,
                   RecvWR(wr_id=_wr_id(_RECEIVE, slot), num_sge=1, sg=[self._sge(slot, self.message_bytes)]))

    def _sge(self, slot: int, length: int) -> SGE:
        return SGE(self.mr.buf + slot * self.message_bytes, length, self.mr.lkey)

    # --------------------------------------------------------------------------------- completions

    def _take_completions(self) -> None:
        """Process all completions; also after a failure, since messages may have arrived before it."""
        count = POLL
        while count == POLL:
            count, completions = self.cq.poll(POLL)
            for wc in completions:
                with contextlib.suppress(ChannelError):     # `credits.failure` keeps it
                    self._complete(wc)

    def _complete(self, wc: WC) -> None:
        kind, index = wc.wr_id >> _KIND_SHIFT, wc.wr_id & (1 << _KIND_SHIFT) - 1
        if kind in (Work.READ, Work.WRITE):
            wc.wr_id = self._one_sided.pop(index)
            self.completions.append(wc)
        if wc.status != WCStatus.SUCCESS:
            self.credits.fail(ChannelError(f"a work request failed: {WCStatus(wc.status).name}"))
        elif kind == _RECEIVE:
            self._receive(wc, index)
        else:
            if kind == Work.DATA:
                self._slots.append(index)
            self._post(self.credits.sent(Work(kind)))

    def _receive(self, wc: WC, slot: int) -> None:
        if wc.wc_flags & WCFlags.WITH_IMM:
            if wc.byte_len:
                self.credits.fail(PeerError("the peer sent what is both a message and an acknowledgement"))
            work, posts = Work.IMM, self.credits.received_ack(wc.imm_data)
        else:
            self._inbox.append(bytes(self.mr.read(wc.byte_len, slot * self.message_bytes)))
            work, posts = Work.DATA, self.credits.received_data()
        self._post_receive(slot)
        self._post(posts)
        self._post(self.credits.reposted(work))


def _wr_id(kind: int, index: int) -> int:
    return kind << _KIND_SHIFT | index
