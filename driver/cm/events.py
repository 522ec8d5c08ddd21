"""Events of connection management, and the channels they come through."""

import collections

from ..connection.connection import State
from ..terms.closing import Closing
from ..terms.errors import InvalidValue, NotSupported, TimedOut
from ..verbs.locking import NO_LOCK
from .enums import EventType

TURN_NS = 20_000    # for one card, when the CMIDs of a channel are on several


class Record:
    """Something that happened to a CMID.

    Attributes
    ----------
    id : Identifier
        For a CONNECT_REQUEST the listening one.
    status : int
        0, a negative errno, or with REJECTED the reason.
    connection : Connection or None
        Of a CONNECT_REQUEST.
    """

    def __init__(self, event_type, identifier, status=0, private_data=b"", connection=None):
        self.type, self.id, self.status, self.private_data = event_type, identifier, status, private_data
        self.connection = connection

    def dropped(self, *_):
        """The request went before anybody saw it."""
        if self in self.id.channel.records:
            self.id.channel.records.remove(self)


class CMEventChannel(Closing):
    """Where CMIDs tell of what happens to them.

    Attributes
    ----------
    records : deque of Record
        Not yet taken.
    users : dict of Identifier
        Those that tell, as keys.
    """

    def __init__(self):
        self.records, self.users = collections.deque(), {}
        self.closed = False

    def take(self, timeout_ns=None):
        """The oldest :class:`Record`, waited for. What a QP of the CMID needs for it is done here, in the program's own
        thread.

        Raises
        ------
        TimedOut
        InvalidValue
            If nothing could ever come.
        """
        while True:
            self._wait(timeout_ns)
            with self.records[0].id.lock if self.records else NO_LOCK:
                if self.records and (record := _settled(self.records.popleft())) is not None:
                    return record

    def _wait(self, timeout_ns):
        engines = list({id(user.engine): user.engine for user in self.users if user.engine is not None}.values())
        if self.closed or not engines and not self.records:
            raise InvalidValue("no CMID of the channel has a device: no event can come")
        if len(engines) == 1:
            engines[0].run_until(lambda: self.records, timeout_ns)
        while not self.records:
            for engine in engines:
                if timeout_ns is not None and (timeout_ns := timeout_ns - TURN_NS) < 0:
                    raise TimedOut("no event came in time")
                self._turn(engine)

    def _turn(self, engine):
        try:
            engine.run_until(lambda: self.records, TURN_NS)
        except TimedOut:
            return

    def close(self):
        """Destroy it."""
        self.closed = True
        self.records.clear()


def _settled(record):
    """The record as the program sees it; None if it is past."""
    if record.type is EventType.CONNECT_RESPONSE:
        if record.id.connection is None or record.id.connection.state is not State.REP_RCVD:
            return None
        if record.id.qp is not None:
            record.id.complete(record)
    return record


class CMEvent:
    """An event (rdma_cm_event), waited for.

    Parameters
    ----------
    channel : CMEventChannel
    timeout_ns : int or None

    Attributes
    ----------
    event_type : EventType
    status : int
        0, a negative errno, or with REJECTED the reason: 28 if it was the peer's program.
    private_data : bytes
        Of the peer, with zeros behind it.
    id : Identifier
        Whose event it is; for CONNECT_REQUEST the listening one.
    """

    def __init__(self, channel, *, timeout_ns=None):
        self._record = channel.take(timeout_ns)
        self.event_type, self.status = self._record.type, self._record.status
        self.private_data, self.id = self._record.private_data, self._record.id

    @property
    def connection(self):
        """What is asked for with a CONNECT_REQUEST."""
        return self._record.connection

    def event_str(self):
        """``RDMA_CM_EVENT_ESTABLISHED`` and so on; empty when it is acknowledged."""
        return "" if self._record is None else f"RDMA_CM_EVENT_{self.event_type.name}"

    def ack_cm_event(self):
        """It is done with."""
        self._record = None

    close = ack_cm_event


class UDParam:
    """How to send datagrams to the peer: refused, there are none."""

    def __init__(self, cm_event):
        raise NotSupported("UDParam does not exist here: there are only RC queue pairs")
