"""Served program: its connection, its objects, and the transfers between them and the card."""

import collections
import contextlib
import os
import socket

from ..ibverbs.messages import Kind
from ..ibverbs.rings import ASYNC_EVENT, BELL, Doorbell
from ..queue.command import CommandError
from ..terms.enums import WCOpcode
from ..terms.errors import InvalidValue, OutOfResources
from ..verbs.context import Context
from .object_types import ON_CARDS
from .process import Accesses, credentials_of
from .program_memory import ServedMR
from .quota import DESCRIPTORS_OF_PROGRAM, OF_ONE, Account, ResourceKind
from .ring import Ended, Violation
from .shared_memory import OwnedDescriptor, create, ordered, words_of

POSTED, ASLEEP, NOTIFIED, WAITING, WAITED, CLOCK = (
    BELL.offset_of(name) // 32 for name in ("posted", "asleep", "notified", "waiting", "waited", "clock_ns"))
_AN_EVENT, _AN_OBJECT = {ResourceKind.EVENTS: 1}, {ResourceKind.OBJECTS: 1}
_OF_ITSELF = {ResourceKind.PROGRAMS: 1, ResourceKind.DESCRIPTORS: DESCRIPTORS_OF_PROGRAM, ResourceKind.MAPPINGS: 1}
_RECEIVES = frozenset({WCOpcode.RECV, WCOpcode.RECV_RDMA_WITH_IMM})


def _eventfd(undo):
    """Return a new event descriptor; ``undo`` closes it."""
    file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    undo.callback(os.close, file)
    return file


class EventPipe:
    """Queue of events to a program that may read slowly: a socket, and a list of the events that do not fit in it.

    Parameters
    ----------
    client : Client

    Attributes
    ----------
    theirs : OwnedDescriptor
        The program's end of the socket pair.
    users : int
        Number of objects that report events here.
    """

    def __init__(self, client):
        self._client, self._account = client, client.account
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs, self.users = OwnedDescriptor(theirs.detach()), 0
        self.fileno = self._ours.fileno
        self._ours.setblocking(False)
        self._waiting = collections.deque()

    def notify(self, event):
        """Queue an event, and send as many as the socket takes.

        Raises
        ------
        Violation
            If the program leaves too many events unread.
        """
        try:
            self._account.take(_AN_EVENT)
        except OutOfResources as problem:
            raise Violation(str(problem)) from None
        self._waiting.append(event)
        self.flush()

    def flush(self):
        if self._waiting:
            self._client.before()
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self._waiting:
                self._ours.send(self._waiting[0])
                self._waiting.popleft()
                self._account.release(_AN_EVENT)

    def close(self):
        self._account.release({ResourceKind.EVENTS: len(self._waiting)})
        self._waiting.clear()
        self._ours.close()
        self.theirs.close()


class Client:
    """One open context of a program.

    Parameters
    ----------
    connection : socket
    name : str
        Name of the device.
    whole : Account
        Account of all programs.

    Attributes
    ----------
    types : ObjectTypes
        Classes of the objects that the program creates.
    account : Account
        Resources of this client.
    before : callable()
        Function to call before an event is reported to the client, which may read the clock then.
    sysfs : SysfsTree
        Files of the host; set by the daemon.
    accesses : Accesses
        Accesses to the memory of programs; set by the daemon.
    users : set of int
        Users, besides those of the daemon and root, whose programs may map memory for hardware; set by the daemon.
    violated : Exception or None
        Reason to serve the client no longer.
    has_events : bool
        Completions were added since the last report.

    Raises
    ------
    OutOfResources
    """

    types = ON_CARDS

    def __init__(self, connection, name, whole):
        self.socket, self.context, self.sysfs = connection, None, None
        self.name, self.account, self.before = name, Account(OF_ONE, whole), lambda: None
        self.users, self.accesses = frozenset(), Accesses()
        self.account.take(_OF_ITSELF)
        with contextlib.ExitStack() as undo:
            undo.callback(self.account.close)
            file, self._bell_mapping = create("weft-bell", BELL.size_bytes)
            self.bell_file = OwnedDescriptor(file)
            undo.callback(self.bell_file.close)
            self.bell = words_of(self._bell_mapping)
            self.doorbell = _eventfd(undo)
            theirs, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            undo.callback(os.close, self._wake)
            self.wake = OwnedDescriptor(theirs)
            undo.callback(self.wake.close)
            self.async_events = EventPipe(self)
            undo.pop_all()
        self.objects, self._charges = {kind: {} for kind in Kind}, {}
        self.qps = {}           # by number
        self.new_regions = []   # of calls since the last `install`
        self._handles, self._posted = 0, 0
        self.violated, self.has_events = None, False

    @property
    def doorbells(self):
        """Descriptors by which the program wakes up the daemon."""
        return (self.doorbell,)

    @property
    def trusted(self):
        """True if the program's user may have the files of the card: it is the daemon's, root, or in ``users``."""
        _, user = credentials_of(self.socket)
        return user in (0, os.geteuid()) or user in self.users

    def open(self):
        """Return the :class:`Context`; open it if this is its first use."""
        if self.context is None:
            self.context = Context(name=self.name)
            self.context.client = self
        return self.context

    def guarded(self, method, *args):
        """Call a method for the client in a round of the card. An exception is a reason to serve it no longer."""
        try:
            return method(*args)
        except Exception as problem:
            self.violated = problem
            return None

    # ------------------------------------------------------------------------------------- objects

    def add(self, kind, thing, amounts=None):
        """Return the handle of a new object, which costs the ``amounts``, by :class:`ResourceKind`.

        Raises
        ------
        OutOfResources
            If that exceeds the quota. The object is closed then.
        """
        amounts = _AN_OBJECT | amounts if amounts else _AN_OBJECT
        try:
            self.account.take(amounts)
        except OutOfResources:
            thing.close()
            raise
        self._handles += 1
        self.objects[kind][self._handles] = thing
        if amounts is not _AN_OBJECT:
            self._charges[kind, self._handles] = amounts
        return self._handles

    def remove(self, kind, handle):
        """Remove an object that is closed, and return its cost to the account."""
        del self.objects[kind][handle]
        self.account.release(self._charges.pop((kind, handle), _AN_OBJECT))

    def recharge(self, kind, handle, amounts):
        """Change the cost of an object.

        Raises
        ------
        OutOfResources
            The cost is unchanged.
        """
        before, amounts = self._charges[kind, handle], _AN_OBJECT | amounts
        self.account.release(before)
        try:
            self.account.take(amounts)
        except OutOfResources:
            self.account.take(before)
            raise
        self._charges[kind, handle] = amounts

    def find(self, kind, handle):
        """Return the object of a handle.

        Raises
        ------
        InvalidValue
        """
        try:
            return self.objects[kind][handle]
        except KeyError:
            raise InvalidValue(f"there is no {kind.name} {handle}") from None

    # ---------------------------------------------------------------------------------------- work

    def install(self, every=False):
        """Pass the new regions that peers may access, or every new one, to the card, before any later work.

        Raises
        ------
        Violation
            If the card rejects one.
        """
        regions, self.new_regions = self.new_regions, []
        due = [mr for mr in dict.fromkeys(regions) if mr.is_due or every and not mr.closed and not mr.installed]
        try:
            ServedMR.install_all(due)
        except CommandError as error:
            raise Violation(f"the card rejected its memory region: {error}") from None

    def take_work(self):
        """Take the requests that the program posted; return true if there were new ones.

        Raises
        ------
        Violation
        """
        posted = self.bell[POSTED]
        if posted == self._posted:
            return False
        self._posted = posted
        ordered()
        for kind in (Kind.SRQ, Kind.QP):
            for queue in self.objects[kind].values():
                queue.take_work()
        return True

    def retired(self, wc):
        """Retire a request of a QP in its ring, before its completion is reported."""
        qp = self.qps.get(wc.qp_num)
        if qp is not None and wc.opcode in _RECEIVES:
            qp.retired_receive()
        elif qp is not None:
            qp.retired_send()

    def notify(self):
        """Report completions and events to the program."""
        if self.violated is not None:
            raise self.violated
        if self.has_events:
            self.has_events = False
            self.bell[NOTIFIED] = self.bell[NOTIFIED] + 1 & 0xFFFF_FFFF
            if self.bell[WAITING]:
                with contextlib.suppress(BlockingIOError, BrokenPipeError):
                    os.write(self._wake, b"\1")
        if self.context is not None:
            events = self.context.async_events
            while events:
                event = events.popleft()
                user = getattr(event.element, "user", 1)      # events of the device: port 1
                self.async_events.notify(ASYNC_EVENT.pack(user=user, event_type=event.event_type))
        self.async_events.flush()
        for kind in (Kind.CHANNEL, Kind.CM_CHANNEL):
            for channel in self.objects[kind].values():
                channel.flush()

    def memory_ended(self):
        """Note that the program has ended, before its connection shows that, unless only a child of it has."""
        if not any(memory.exists for memory in self.objects[Kind.MEMORY].values()):
            self.violated = self.violated or Ended("it has ended")

    def blocks(self, end):
        """End the program, in another thread, because an access to its memory does not end; return a clause on that.

        ``end`` is :func:`~weft.driver.serve.process.end`.
        """
        self.violated = self.violated or Ended("it was killed")
        killed = end(self.socket, [memory.fileno() for memory in list(self.objects[Kind.MEMORY].values())])
        return "was dropped: an access to its memory does not end; " + (
            "it was killed" if killed else "it cannot be killed: end it, or this daemon")

    def fall_asleep(self):
        """Request doorbells, because the daemon is about to sleep."""
        self.bell[ASLEEP] = Doorbell.SENDS | Doorbell.RECEIVES

    @property
    def has_work(self):
        """True if requests were posted since :meth:`take_work`."""
        return self.bell[POSTED] != self._posted

    @property
    def has_sends(self):
        """True if send requests are waiting, or a ring is invalid: :meth:`take_work` reports that."""
        with contextlib.suppress(Violation):
            return any(qp.sends.filled for qp in self.qps.values())
        return True

    def wake_up(self):
        """Disable doorbells, because the daemon polls again."""
        self.bell[ASLEEP] = 0
        with contextlib.suppress(BlockingIOError):
            # RWF_NOWAIT: must not block, whatever the program did to the shared file.
            os.preadv(self.doorbell, [bytearray(8)], -1, os.RWF_NOWAIT)

    def close(self):
        """Free all resources of a program that is gone or dropped."""
        objects, self.objects, self._charges = self.objects, {kind: {} for kind in Kind}, {}
        with contextlib.ExitStack() as ends:      # each is done, whatever another one raises; the last one first
            for file in (self.doorbell, self._wake):
                ends.callback(os.close, file)
            for owned in (self.wake, self.bell_file, self._bell_mapping):
                ends.callback(owned.close)
            ends.callback(self.bell.release)
            ends.callback(self.account.close)
            for owned in (*objects[Kind.CHANNEL].values(), self.async_events):
                ends.callback(owned.close)
            ends.callback(self._release_card, objects[Kind.MEMORY].values())
            for owned in (*objects[Kind.CM_CHANNEL].values(), self.socket):
                ends.callback(owned.close)

    def _release_card(self, files):
        """Close the context, then free the memory of the program: without the former the card may still use it."""
        if self.context is not None:
            self.context.close()
        for file in files:
            file.users = 0
            file.close()
