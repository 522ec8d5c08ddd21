"""A program that is served: its connection, its objects, and what goes between them and the card."""

import collections
import contextlib
import os
import socket

from ..ibverbs.messages import Kind
from ..ibverbs.rings import ASYNC_EVENT, BELL
from ..terms.enums import WCOpcode
from ..terms.errors import InvalidValue, NoRoom
from ..verbs.context import Context
from .ring import Violation
from .shared_memory import Given, create, words_of

POSTED, ASLEEP, TOLD, WAITING, WAITED, CLOCK = (
    BELL.offset_of(name) // 32 for name in ("posted", "asleep", "told", "waiting", "waited", "clock_ns"))
OBJECTS_MAX = 1 << 16
EVENTS_MAX = 1 << 12
_RECEIVES = frozenset({WCOpcode.RECV, WCOpcode.RECV_RDMA_WITH_IMM})


class EventPipe:
    """Events on their way to a program that may be slow to read them: a socket, and what did not fit in it.

    Attributes
    ----------
    theirs : Given
        For the program.
    users : int
        Who tells events by it.
    """

    def __init__(self):
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs, self.users = Given(theirs.detach()), 0
        self._ours.setblocking(False)
        self._waiting = collections.deque()

    def tell(self, event):
        """Hand an event over, sooner or later.

        Raises
        ------
        Violation
            If thousands are not read.
        """
        self._waiting.append(event)
        self.flush()
        if len(self._waiting) > EVENTS_MAX:
            raise Violation(f"{EVENTS_MAX} events are not read")

    def flush(self):
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self._waiting:
                self._ours.send(self._waiting[0])
                self._waiting.popleft()

    def close(self):
        self._ours.close()
        self.theirs.close()


class Client:
    """One open context of a program.

    Parameters
    ----------
    connection : socket
    name : str
        Of the device.

    Attributes
    ----------
    violated : Violation or None
        Why it is not served any longer.
    news : bool
        It has completions that it was not told of.
    """

    def __init__(self, connection, name):
        self.socket, self.context = connection, None
        self.name = name
        file, self._bell_mapping = create("weft-bell", BELL.size_bytes)
        self.bell_file = Given(file)
        self.bell = words_of(self._bell_mapping)
        self.doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.async_events = EventPipe()
        self.objects = {kind: {} for kind in Kind}
        self.qps = {}           # by number
        self._handles, self._posted = 0, 0
        self.violated, self.news = None, False

    def open(self):
        """The :class:`Context`, opened now if it is the first thing that the program needs it for."""
        if self.context is None:
            self.context = Context(name=self.name)
        return self.context

    # ------------------------------------------------------------------------------------- objects

    def add(self, kind, thing):
        """A handle of a new object.

        Raises
        ------
        NoRoom
        """
        if sum(map(len, self.objects.values())) >= OBJECTS_MAX:
            thing.close()
            raise NoRoom(f"a program has {OBJECTS_MAX} objects at most")
        self._handles += 1
        self.objects[kind][self._handles] = thing
        return self._handles

    def find(self, kind, handle):
        """The object behind a handle.

        Raises
        ------
        InvalidValue
        """
        try:
            return self.objects[kind][handle]
        except KeyError:
            raise InvalidValue(f"there is no {kind.name} {handle}") from None

    # ---------------------------------------------------------------------------------------- work

    def take_work(self):
        """Take what the program posted; true if there was something.

        Raises
        ------
        Violation
        """
        posted = self.bell[POSTED]
        if posted == self._posted:
            return False
        self._posted = posted
        for kind in (Kind.SRQ, Kind.QP):
            for queue in self.objects[kind].values():
                queue.take_work()
        return True

    def retired(self, wc):
        """A request of a QP is done with, and its completion about to be told."""
        qp = self.qps.get(wc.qp_num)
        if qp is not None and wc.opcode in _RECEIVES:
            qp.retired_receive()
        elif qp is not None:
            qp.retired_send()

    def tell(self):
        """Tell the program what is new."""
        if self.violated is not None:
            raise self.violated
        if self.news:
            self.news = False
            self.bell[TOLD] = self.bell[TOLD] + 1 & 0xFFFF_FFFF
            if self.bell[WAITING]:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_write(self.wake, 1)
        if self.context is not None:
            events = self.context.async_events
            while events:
                event = events.popleft()
                user = getattr(event.element, "user", 1)      # of the device: port 1
                self.async_events.tell(ASYNC_EVENT.pack(user=user, event_type=event.event_type))
        self.async_events.flush()
        for channel in self.objects[Kind.CHANNEL].values():
            channel.flush()

    def fall_asleep(self):
        """The daemon is about to sleep: doorbells are wanted."""
        self.bell[ASLEEP] = 1

    @property
    def has_work(self):
        """Something was posted since it was looked at."""
        return self.bell[POSTED] != self._posted

    def wake_up(self):
        """The daemon looks by itself again."""
        self.bell[ASLEEP] = 0
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.doorbell)

    def close(self):
        """The program is gone, or is to be: free what it had."""
        self.socket.close()
        if self.context is not None:
            self.context.close()
        for file in list(self.objects[Kind.FILE].values()):
            file.users = 0
            file.close()
        for pipe in (self.async_events, *self.objects[Kind.CHANNEL].values()):
            pipe.close()
        self.objects = {kind: {} for kind in Kind}
        self.bell.release()
        self._bell_mapping.close()
        self.bell_file.close()
        for file in (self.doorbell, self.wake):
            os.close(file)
