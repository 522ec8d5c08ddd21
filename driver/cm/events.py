"""Events of connection management, and their channels."""

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..connection.connection import Connection, State
from ..engine.card_engine import CardEngine
from ..terms.closing import Closing
from ..terms.errors import InvalidValue, TimedOut
from ..verbs.addr import GID, AHAttr, GlobalRoute
from ..verbs.locking import NO_LOCK
from .enums import EventType

if TYPE_CHECKING:
    from .identifier import Identifier

TURN_NS = 20_000    # time slice of one card, when the CMIDs of a channel are on several


@dataclass(frozen=True)
class DatagramAddress:
    """IPv4 address, QPN and Q_Key for datagrams."""

    ip: int
    qpn: int
    qkey: int


class Record:
    """Event of a CMID.

    Attributes
    ----------
    id : Identifier
        For a CONNECT_REQUEST the listening one.
    status : int
        0, a negative errno, or with REJECTED the reason.
    connection : Connection or None
        The requested connection of a CONNECT_REQUEST.
    datagram : DatagramAddress or None
        Of a UD queue pair, or of a multicast group.
    """

    def __init__(self, event_type: EventType, identifier: "Identifier", status: int = 0, private_data: bytes = b"",
                 connection: Connection | None = None) -> None:
        self.type, self.id, self.status, self.private_data = event_type, identifier, status, private_data
        self.connection = connection
        self.datagram: DatagramAddress | None = None

    def dropped(self, *_: object) -> None:
        """Remove a request that ended before the program took its event."""
        if self in self.id.channel.records:
            self.id.channel.records.remove(self)


class CMEventChannel(Closing):
    """Channel on which CMIDs report their events.

    Attributes
    ----------
    records : deque of Record
        Events that were not taken.
    users : dict of Identifier
        Identifiers that report here, as keys.
    """

    def __init__(self) -> None:
        self.records: collections.deque[Record] = collections.deque()
        self.users: dict[Identifier, None] = {}
        self.closed = False

    def take(self, timeout_ns: int | None = None) -> Record:
        """Wait for the oldest :class:`Record` and return it.

        State changes of the QP that the event requires are done here, in the thread of the program.

        Raises
        ------
        TimedOut
        InvalidValue
            If no event can ever come.
        """
        while True:
            self._wait(timeout_ns)
            with self.records[0].id.lock if self.records else NO_LOCK:
                if self.records and (record := _settled(self.records.popleft())) is not None:
                    return record

    def _wait(self, timeout_ns: int | None) -> None:
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

    def _turn(self, engine: CardEngine) -> None:
        try:
            engine.run_until(lambda: self.records, TURN_NS)
        except TimedOut:
            return

    def close(self) -> None:
        """Destroy the channel."""
        self.closed = True
        self.records.clear()


def _settled(record: Record) -> Record | None:
    """Return the record as the program sees it; None if it is obsolete."""
    if record.type is EventType.CONNECT_RESPONSE:
        connection = record.id.connection
        if connection is None or connection.state is not State.REP_RCVD:
            return None
        if record.id.qp is not None:
            record.id.complete(record, connection)
    return record


class CMEvent:
    """Event (rdma_cm_event); the constructor waits for it.

    Parameters
    ----------
    channel : CMEventChannel
    timeout_ns : int or None

    Attributes
    ----------
    event_type : EventType
    status : int
        0, a negative errno, or with REJECTED the reason: 28 if the peer's program rejected.
    private_data : bytes
        Private data of the peer, padded with zeros.
    id : Identifier
        Identifier of the event; for CONNECT_REQUEST the listening one.
    """

    def __init__(self, channel: CMEventChannel, *, timeout_ns: int | None = None) -> None:
        record = channel.take(timeout_ns)
        self._record: Record | None = record
        self.event_type, self.status = record.type, record.status
        self.private_data, self.id = record.private_data, record.id

    @property
    def connection(self) -> Connection | None:
        """Connection that a CONNECT_REQUEST requests; None for other events, and after the acknowledgement."""
        return self._record.connection if self._record is not None else None

    @property
    def datagram(self) -> DatagramAddress | None:
        """Address of ESTABLISHED in the port space UDP, and of MULTICAST_JOIN; None otherwise."""
        return self._record.datagram if self._record is not None else None

    def event_str(self) -> str:
        """Return ``RDMA_CM_EVENT_ESTABLISHED`` and so on; empty after the event is acknowledged."""
        return "" if self._record is None else f"RDMA_CM_EVENT_{self.event_type.name}"

    def ack_cm_event(self) -> None:
        """Acknowledge the event and release it."""
        self._record = None

    close = ack_cm_event


class UDParam:
    """Parameters for datagrams of an event that is not acknowledged yet (rdma_ud_param).

    Attributes
    ----------
    qp_num, qkey : int
    ah_attr : AHAttr
    private_data : bytes
    """

    def __init__(self, cm_event: CMEvent) -> None:
        found = cm_event.datagram
        if found is None:
            raise InvalidValue(f"{cm_event.event_type.name} has no address for datagrams")
        self.qp_num, self.qkey, self.private_data = found.qpn, found.qkey, cm_event.private_data
        self.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(GID.of_ipv4(found.ip), hop_limit=64))
