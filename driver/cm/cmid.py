"""``rdma_cm_id`` by its names in ``pyverbs.cmid``."""

import errno
from dataclasses import dataclass
from typing import NoReturn

from ..connection.connection import State
from ..datagram.packet import is_group
from ..terms.checks import between, member
from ..terms.closing import Closing
from ..terms.enums import QPAttrMask, QPState
from ..terms.errors import InvalidValue, NotSupported, PyverbsRDMAError, PyverbsUserError
from ..verbs.context import Context
from ..verbs.pd import PD
from ..verbs.qp import QP
from ..verbs.qp_attr import QPAttr
from ..verbs.qp_init_attr import QPInitAttr
from .addr_info import AddrInfo, check_port_space
from .conn_param import ConnParam
from .datagram_identifier import DatagramIdentifier
from .enums import RDMA_OPTION_ID, EventType, McJoinFlag, Option, PortSpace
from .events import CMEvent, CMEventChannel, Record, UDParam
from .identifier import Identifier
from .qp_attributes import state_attr
from .work import Work

__all__ = ["CMID", "AddrInfo", "CMEvent", "CMEventChannel", "ConnParam", "JoinMCAttrEx", "UDParam"]

RESOLVE_MS = 2000
_CODES = {EventType.REJECTED: errno.ECONNREFUSED, EventType.UNREACHABLE: errno.ETIMEDOUT,
          EventType.ADDR_ERROR: errno.ETIMEDOUT, EventType.DEVICE_REMOVAL: errno.ENODEV}


class ConnectionFailed(PyverbsRDMAError):
    """Connection that the peer rejected, or peer that is not reachable.

    ``event`` is the :class:`Record` with the cause.
    """

    def __init__(self, subject: str, record: Record) -> None:
        super().__init__(f"{subject}: {record.type.name}, status {record.status}",
                         _CODES.get(record.type, errno.EPROTO))
        self.event = record


@dataclass
class JoinMCAttrEx:
    """Attributes of a membership in a multicast group (rdma_cm_join_mc_attr_ex)."""

    addr: AddrInfo | None = None
    comp_mask: int = 0
    join_flags: int = McJoinFlag.FULLMEMBER


class CMID(Work, Closing):
    """End of a connection, or a listener.

    With an :class:`AddrInfo` its calls wait until the operation is done. With a :class:`CMEventChannel` they return at
    once, and events report the results.

    Parameters
    ----------
    creator : AddrInfo, CMEventChannel or CMEvent
        A CMEvent must be a CONNECT_REQUEST; the CMID is an end of the requested connection.
    qp_init_attr : QPInitAttr or None
        With an AddrInfo: attributes of the CMID's QP; for a listener, of the QPs of the requested connections.
    pd : PD or None
        PD of the program; by default all CMIDs of a device share a PD.
    port_space : PortSpace
    listen_id : CMID or None
        With a CMEvent: the CMID that listens.

    Raises
    ------
    PyverbsRDMAError
        If there is no such device, or no route to the peer.
    """

    def __init__(self, creator: AddrInfo | CMEventChannel | CMEvent | None = None,
                 qp_init_attr: QPInitAttr | None = None, pd: PD | None = None, port_space: PortSpace = PortSpace.TCP,
                 listen_id: "CMID | None" = None) -> None:
        space = creator.port_space if isinstance(creator, AddrInfo) else check_port_space(port_space)
        self._qp_init, self._sync = qp_init_attr, isinstance(creator, AddrInfo)
        kind = DatagramIdentifier if space is PortSpace.UDP else Identifier
        if isinstance(creator, AddrInfo):
            self.identifier = kind(CMEventChannel(), pd)
            self._open(creator)
        elif isinstance(creator, CMEventChannel):
            self.identifier = kind(creator, pd)
        elif isinstance(creator, CMEvent):
            if listen_id is None:
                raise PyverbsUserError("listen ID not provided")
            if creator.connection is None:
                raise InvalidValue(f"Failed to create CM ID: {creator.event_type.name} asks for no connection")
            self.identifier = listen_id.identifier.child(listen_id.identifier.channel, creator.connection)
        else:
            raise PyverbsRDMAError(f"Cannot create CM ID from {type(creator)}", errno.EINVAL)

    def _open(self, info: AddrInfo) -> None:
        try:
            if info.passive:
                self.bind_addr(info)
            else:
                self.resolve_addr(info)
                self.resolve_route()
                if self._qp_init is not None:
                    self.create_qp(self._qp_init)
        except BaseException:
            self.close()
            raise

    # ----------------------------------------------------------------------------------- properties

    @property
    def event_channel(self) -> CMEventChannel | None:
        return None if self._sync else self.identifier.channel

    @property
    def context(self) -> Context | None:
        return self.identifier.held.context if self.identifier.held else None

    @property
    def pd(self) -> PD | None:
        return self.identifier.held.pd if self.identifier.held else None

    @property
    def qp(self) -> QP | None:
        """QP of the CMID, or None."""
        return self.identifier.qp

    @property
    def qpn(self) -> int | None:
        return self.qp.qp_num if self.qp is not None else None

    @property
    def dev_name(self) -> str | bytes | None:
        return self.context.name if self.context is not None else None

    @property
    def port_num(self) -> int:
        return 1 if self.context is not None else 0

    @property
    def private_data(self) -> bytes:
        """Private data of the peer's request, acceptance or rejection, padded with zeros."""
        return self.identifier.private_data

    # ------------------------------------------------------------------------------------ addresses

    def bind_addr(self, lai: AddrInfo) -> None:
        """Bind to the device with the source address, and to the source port."""
        self.identifier.attach(lai.src)
        self.identifier.src_port = lai.src_port

    def resolve_addr(self, rai: AddrInfo, timeout_ms: int = RESOLVE_MS) -> None:
        """Find device and neighbour for a destination. Event: ADDR_RESOLVED or ADDR_ERROR."""
        if rai.passive or not rai.dst:
            raise InvalidValue("Failed to Resolve Address: it has no destination")
        self.identifier.attach(rai.src)
        self.identifier.src_port = rai.src_port
        self.identifier.resolve(rai.dst, rai.dst_port, between("timeout_ms", timeout_ms, 0, 1 << 31) * 1_000_000)
        self._finish("Failed to Resolve Address", EventType.ADDR_RESOLVED)

    def resolve_route(self, timeout_ms: int = RESOLVE_MS) -> None:
        """Find the route, which on Ethernet is known as soon as the neighbour is. Event: ROUTE_RESOLVED."""
        if not self.identifier.peer_ip:
            raise InvalidValue("Failed to Resolve Route: the address was not resolved")
        self.identifier.notify(EventType.ROUTE_RESOLVED)
        self._finish("Failed to Resolve Route", EventType.ROUTE_RESOLVED)

    def _finish(self, subject: str, *wanted: EventType) -> None:
        """Wait for one of the events ``wanted``, if calls of this CMID wait."""
        if self._sync:
            self._wait(subject, *wanted)

    def _wait(self, subject: str, *wanted: EventType) -> Record:
        """Wait for one of the events ``wanted`` and return it."""
        while True:
            record = self.identifier.channel.take()
            if record.type in wanted:
                return record
            if record.type not in (EventType.TIMEWAIT_EXIT, EventType.ESTABLISHED):
                raise ConnectionFailed(subject, record)

    # ---------------------------------------------------------------------------------- connections

    def listen(self, backlog: int = 0) -> None:
        """Listen for requests; at most ``backlog`` of them wait for an answer, by default as many as possible."""
        self.identifier.listen(backlog)

    def get_request(self) -> "CMID":
        """Wait for a request and return its :class:`CMID`, to be accepted or rejected.

        Raises
        ------
        InvalidValue
            If the CMID does not listen, or has a channel.
        """
        if not self._sync or self.identifier.listener is None:
            raise InvalidValue("Failed to get request, no connection established: "
                               + ("it does not listen" if self._sync else "take its events from the channel"))
        request = self._wait("Failed to get request", EventType.CONNECT_REQUEST)
        assert request.connection is not None
        child = CMID.__new__(CMID)
        child._sync, child._qp_init = True, self._qp_init
        child.identifier = self.identifier.child(CMEventChannel(), request.connection)
        if self._qp_init is not None:
            child.create_qp(self._qp_init)
        return child

    def connect(self, param: ConnParam | None = None) -> None:
        """Request a connection to the peer.

        Events: ESTABLISHED, or CONNECT_RESPONSE if the CMID has no QP; REJECTED, UNREACHABLE.
        """
        self.identifier.request(param)
        self._finish("Failed to Connect", EventType.ESTABLISHED, EventType.CONNECT_RESPONSE)

    def accept(self, param: ConnParam | None = None) -> None:
        """Accept the request. Events: ESTABLISHED; REJECTED, UNREACHABLE. In the port space UDP there are none."""
        self.identifier.accept_request(param)
        if not self.identifier.datagrams:
            self._finish("Failed to Accept Connection", EventType.ESTABLISHED)

    def reject(self, private_data: bytes | None = None) -> None:
        """Reject the request; the peer gets the private data, 148 bytes at most."""
        self.identifier.reject_request(private_data or b"")

    def establish(self) -> None:
        """Report that a QP of the program is ready, after CONNECT_RESPONSE."""
        self.identifier.establish()

    def disconnect(self) -> None:
        """End the connection. The QP of the CMID goes to ERR. Event: DISCONNECTED, at both ends."""
        self.identifier.end()
        if self.identifier.state is State.DREQ_SENT:
            self._finish("Failed to Disconnect", EventType.DISCONNECTED)

    def wait_disconnected(self) -> None:
        """Wait until the peer has ended the connection; only for a CMID whose calls wait.

        The QP does not change: :meth:`disconnect` flushes it.
        """
        if not self._sync or self.identifier.connection is None:
            raise InvalidValue("there is no connection" if self._sync else "take its events from the channel")
        if self.identifier.state is State.ESTABLISHED:
            self._finish("Failed to wait for the peer", EventType.DISCONNECTED)

    # -------------------------------------------------------------------------------- queue pairs

    def create_qp(self, qp_init: QPInitAttr) -> None:
        """Create the QP of the CMID, and the CQs that ``qp_init`` does not name."""
        self.identifier.make_qp(qp_init)

    def query_qp(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """Return ``(QPAttr, QPInitAttr)`` of the QP of the CMID."""
        if self.qp is None:
            raise InvalidValue("Failed to query QP: there is none")
        return self.qp.query(attr_mask)

    def init_qp_attr(self, qp_state: int) -> tuple[QPAttr, QPAttrMask]:
        """Return the ``(QPAttr, mask)`` that bring a QP of the program to the next state: to INIT, to RTR or to RTS."""
        state = member("qp_state", qp_state, QPState)
        if isinstance(self.identifier, DatagramIdentifier):
            return self.identifier.state_attr(state)
        connection = self.identifier.connection
        if state not in (QPState.INIT, QPState.RTR, QPState.RTS) or (
                state is not QPState.INIT and (connection is None or connection.peers is None)):
            raise InvalidValue(f"Failed to get QP attributes: nothing is known for {state.name} yet")
        return state_attr(self.identifier, state)

    def set_option(self, level: int, optname: int, optval: int, optlen: int) -> None:
        """Set RDMA_OPTION_ID_ACK_TIMEOUT, the ``timeout`` of the QP."""
        if level != RDMA_OPTION_ID or optname != Option.ACK_TIMEOUT:
            raise PyverbsUserError("only RDMA_OPTION_ID_ACK_TIMEOUT exists here")
        self.identifier.ack_timeout = between("ack_timeout", optval, 0, 31)

    def set_local_ece(self, ece: object) -> NoReturn:
        raise NotSupported("Failed to set local ECE: there is nothing to agree on beyond the standard")

    def get_remote_ece(self) -> NoReturn:
        raise NotSupported("Failed to get remote ECE: there is nothing to agree on beyond the standard")

    def join_multicast(self, addr: AddrInfo | None = None, mc_attr: "JoinMCAttrEx | None" = None,
                       context: object = 0) -> None:
        """Join the multicast group that is the only address of ``addr``, or of ``mc_attr``. Event: MULTICAST_JOIN."""
        if mc_attr is not None:
            if mc_attr.join_flags != McJoinFlag.FULLMEMBER:
                raise NotSupported("Failed to Join multicast: there are full members only")
            addr = mc_attr.addr
        self._group_identifier(addr).join(self._group_of(addr))
        self._finish("Failed to Join multicast", EventType.MULTICAST_JOIN)

    def leave_multicast(self, addr: AddrInfo) -> None:
        """Leave a multicast group."""
        self._group_identifier(addr).leave(self._group_of(addr))

    def _group_identifier(self, addr: AddrInfo | None) -> DatagramIdentifier:
        if not isinstance(self.identifier, DatagramIdentifier) or addr is None:
            raise InvalidValue("multicast needs a CMID of the port space UDP, and the group as an AddrInfo")
        return self.identifier

    @staticmethod
    def _group_of(addr: AddrInfo | None) -> int:
        group = 0 if addr is None else addr.dst or addr.src
        if not is_group(group):
            raise InvalidValue("the address is not that of an IPv4 multicast group (224.0.0.0 to 239.255.255.255)")
        return group

    # -------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Destroy the CMID, its QP and its memory; an established connection is ended."""
        self.close_memory()
        self.identifier.finish()
