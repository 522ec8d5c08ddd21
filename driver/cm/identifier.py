"""Implementation of a CMID: an end of a connection, or a listener. No method waits for the peer."""

import errno
from dataclasses import replace

from ..connection.agent import Listener, Notify
from ..connection.connection import CmNotice, Connection, State
from ..engine.card_engine import CardEngine
from ..engine.card_lock import CardLock
from ..terms.enums import QPAttrMask, QPState, QPType
from ..terms.errors import InvalidValue, PyverbsRDMAError
from ..verbs.cq import CQ
from ..verbs.locking import NO_LOCK, NoLock
from ..verbs.pd import PD
from ..verbs.qp import QP, QPAttr
from ..verbs.qp_init_attr import QPInitAttr
from .card_agent import CardAgent
from .conn_param import ConnParam
from .enums import EventType
from .events import CMEventChannel, Record
from .qp_attributes import connection_attr, init_attr, offers
from .shared_context import SharedContext, hold

EVENTS = {CmNotice.RESPONSE: EventType.CONNECT_RESPONSE, CmNotice.ESTABLISHED: EventType.ESTABLISHED,
          CmNotice.REJECTED: EventType.REJECTED, CmNotice.UNREACHABLE: EventType.UNREACHABLE,
          CmNotice.DISCONNECTED: EventType.DISCONNECTED, CmNotice.TIMEWAIT_EXIT: EventType.TIMEWAIT_EXIT}


class Identifier:
    """End of a connection, or a listener.

    Parameters
    ----------
    channel : CMEventChannel
    pd : PD or None
        PD of the program; by default the device is opened by its address, once for all CMIDs.

    Attributes
    ----------
    held : SharedContext or None
        Device and protection domain, once the identifier is bound to them.
    connection : Connection or None
    listener : Listener or None
    qp : QP or None
        QP of the identifier.
    peer_ip : int
    private_data : bytes
        Private data of the peer's request, acceptance or rejection.
    """

    datagrams = False      # of the port space UDP

    def __init__(self, channel: CMEventChannel, pd: PD | None = None) -> None:
        self.channel, self._own_pd = channel, pd
        self.held: SharedContext | None = None
        self.agent: CardAgent | None = None
        self.connection: Connection | None = None
        self.listener: Listener | None = None
        self.qp: QP | None = None
        self.src_port = self.peer_ip = self.peer_port = 0
        self.psn = 0
        self.ack_timeout: int | None = None
        self._cqs: list[CQ] = []
        self.private_data = b""
        self.closed = False
        channel.users[self] = None

    @property
    def engine(self) -> CardEngine | None:
        return self.held.context.engine if self.held is not None else None

    @property
    def lock(self) -> CardLock | NoLock:
        """Lock of the card, or a null lock without a device."""
        engine = self.engine
        return engine.lock if engine is not None else NO_LOCK

    @property
    def state(self) -> State | None:
        """State of the connection, or None if there is none."""
        return self.connection.state if self.connection is not None else None

    def notify(self, event_type: EventType, status: int = 0, private_data: bytes = b"",
               connection: Connection | None = None) -> Record:
        """Put an event into the channel and return its :class:`Record`."""
        record = Record(event_type, self, status, private_data, connection)
        self.channel.records.append(record)
        return record

    # ----------------------------------------------------------------------------------- addresses

    def attach(self, ip: int) -> None:
        """Bind to the device with this address, unless the identifier is bound already."""
        if self.held is None:
            self.take_held(hold(ip, self._own_pd))

    def take_held(self, held: SharedContext) -> None:
        """Bind to a device."""
        self.held = held
        with self.lock:
            self.agent = CardAgent.of(held.context.card)
            self.agent.add_user(self, self._device_gone)
            self.psn = held.context.config.random.getrandbits(24)

    def _device_gone(self) -> None:
        self.connection = self.listener = None
        self.notify(EventType.DEVICE_REMOVAL)

    def resolve(self, ip: int, port: int, timeout_ns: int) -> None:
        """Find the route to a peer. Event: ADDR_RESOLVED or ADDR_ERROR."""
        with self.lock:
            _, agent = self._check_device()
            self.peer_ip, self.peer_port = ip, port
            agent.resolve(self, ip, timeout_ns, self._resolved)

    def _resolved(self, found: bool) -> None:
        self.notify(EventType.ADDR_RESOLVED if found else EventType.ADDR_ERROR, 0 if found else -errno.ETIMEDOUT)

    # ---------------------------------------------------------------------------------- connections

    def listen(self, backlog: int) -> None:
        """Listen for requests. Event: CONNECT_REQUEST for each."""
        with self.lock:
            _, agent = self._check_device()
            if self.listener is not None or self.connection is not None:
                raise InvalidValue("Listen Failed: the CMID is in use")
            try:
                self.listener = agent.agent.listen(self.src_port, backlog, self._requested,
                                                   datagrams=self.datagrams)
            except ValueError as error:
                raise PyverbsRDMAError(f"Listen Failed: {error}", errno.EADDRINUSE) from None
            self.src_port = self.listener.port

    def _requested(self, connection: Connection) -> Notify:
        return self.notify(EventType.CONNECT_REQUEST, 0, connection.private_data, connection).dropped

    def adopt(self, connection: Connection) -> None:
        """Become the end of a requested connection."""
        self.connection, connection.notify, self.private_data = connection, self._on_notice, connection.private_data
        self.peer_ip, self.peer_port = connection.peer_ip, connection.peer_port
        if connection.state is State.CLOSED:
            self._on_notice(connection, CmNotice.UNREACHABLE)

    def child(self, channel: CMEventChannel, connection: Connection) -> "Identifier":
        """Return a new identifier for a connection that was requested from this listener."""
        with self.lock:
            held, _ = self._check_device()
            child = type(self)(channel, self._own_pd)
            child.take_held(hold(held.context.ip, self._own_pd))
            child.adopt(connection)
            return child

    def request(self, param: ConnParam | None) -> None:
        """Request a connection. Event: CONNECT_RESPONSE, REJECTED or UNREACHABLE."""
        with self.lock:
            held, agent = self._check_device()
            if self.connection is not None or not self.peer_ip:
                raise InvalidValue("Failed to Connect: " + ("it was requested already" if self.peer_ip
                                                           else "the peer's address was not resolved"))
            param = param or ConnParam.most()
            offer = offers(self, param, mtu=held.context.query_port(1).active_mtu)
            self.connection = agent.agent.connect(
                self.peer_ip, self.peer_port, offer, param.private_data, agent.now(), self._on_notice,
                src_port=self.src_port)

    def accept_request(self, param: ConnParam | None) -> None:
        """Accept the request. Event: ESTABLISHED, REJECTED or UNREACHABLE."""
        with self.lock:
            connection, agent = self._check_state("Failed to Accept Connection", State.REQ_RCVD)
            param = param or ConnParam.most()
            offer = offers(self, param, answering=connection.peers)
            if self.qp is not None:
                self.qp.to_rts(connection_attr(self, offer))
                connection, agent = self._check_state("Failed to Accept Connection", State.REQ_RCVD)
            connection.accept(offer, param.private_data, agent.now(), ca_guid=agent.agent.guid)

    def complete(self, record: Record, connection: Connection) -> None:
        """Bring the QP to RTS after the peer's acceptance; ``record`` becomes ESTABLISHED, or CONNECT_ERROR."""
        try:
            _, agent = self._check_device()
            if self.qp is not None:
                self.qp.to_rts(connection_attr(self, connection.mine))
            if connection.state is State.REP_RCVD:
                connection.establish(agent.now())
                record.type = EventType.ESTABLISHED
                return
        except PyverbsRDMAError:
            connection.reject()
        record.type, record.status = EventType.CONNECT_ERROR, -errno.EINVAL

    def establish(self) -> None:
        """Report to the peer that the QP of the program is ready."""
        with self.lock:
            connection, agent = self._check_state("Failed to Complete an active connection request", State.REP_RCVD)
            connection.establish(agent.now())

    def reject_request(self, private_data: bytes) -> None:
        with self.lock:
            connection, _ = self._check_state("Failed to Reject Connection", State.REQ_RCVD, State.REP_RCVD)
            connection.reject(private_data=private_data)

    def end(self) -> None:
        """End the connection and bring the QP of the identifier to ERR.

        Event: DISCONNECTED, unless the peer has ended the connection before.
        """
        with self.lock:
            if self.connection is None or self.agent is None:
                raise InvalidValue("Failed to Disconnect: there is no connection")
            if self.qp is not None and self.qp.qp_state not in (QPState.RESET, QPState.ERR):
                self.qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
            self.connection.disconnect(self.agent.now())

    def _on_notice(self, connection: Connection, notice: CmNotice) -> None:
        if notice in (CmNotice.RESPONSE, CmNotice.REJECTED):
            self.private_data = connection.private_data
        self.notify(EVENTS[notice], connection.status, connection.private_data)

    def _check_device(self) -> tuple[SharedContext, CardAgent]:
        """Return the device and its agent."""
        if self.closed or self.held is None or self.agent is None:
            raise InvalidValue("the CMID is closed" if self.closed else "the CMID has no device: bind or resolve first")
        return self.held, self.agent

    def _check_state(self, subject: str, *states: State) -> tuple[Connection, CardAgent]:
        """Return the connection, which must be in one of ``states``, and the agent."""
        _, agent = self._check_device()
        if self.connection is None or self.connection.state not in states:
            state = self.connection.state.name if self.connection is not None else "not requested"
            raise InvalidValue(f"{subject}: the connection is {state}")
        return self.connection, agent

    # ------------------------------------------------------------------------------------------- QP

    def init_attr(self) -> QPAttr:
        """Return the attributes with which the QP leaves RESET."""
        return init_attr()

    def make_qp(self, qp_init: QPInitAttr) -> None:
        """Create the QP of the identifier, and the CQs that ``qp_init`` does not name.

        An RC QP is in INIT then, and a UD QP in RTS.
        """
        with self.lock:
            held, _ = self._check_device()
            if self.qp is not None:
                raise InvalidValue("Failed to Create QP: the CMID has one")
            given = replace(qp_init, cap=replace(qp_init.cap))
            if (given.qp_type == QPType.UD) != self.datagrams:
                raise InvalidValue("Failed to Create QP: the port space UDP has UD queue pairs, TCP has RC ones")
            for name, size in (("scq", given.max_send_wr), ("rcq", given.max_recv_wr)):
                if getattr(given, name) is None:
                    setattr(given, name, CQ(held.context, max(1, size)))
                    self._cqs.append(getattr(given, name))
            self.qp = QP(held.pd, given, self.init_attr(), psn=self.psn)

    def use_qp(self, qp: QP) -> None:
        """Adopt a QP that is in RESET; it goes to INIT."""
        with self.lock:
            qp.to_init(self.init_attr())
            self.qp = qp

    # ------------------------------------------------------------------------------------- closing

    def finish(self) -> None:
        """End the identifier: cancel requests, end an established connection, destroy QP and CQs."""
        if self.closed:
            return
        self.closed = True
        with self.lock:
            if self.agent is not None:
                self._leave(self.agent)
            if self.qp is not None:
                self.qp.close()
            for cq in self._cqs:
                cq.close()
        self.channel.users.pop(self, None)
        if self.held is not None:
            self.held.release()

    def _leave(self, agent: CardAgent) -> None:
        agent.forget_user(self)
        if self.connection is not None:
            self.connection.abandon(agent.now())
        if self.listener is not None:
            self.listener.close()
        for record in [record for record in self.channel.records if record.id is self]:
            self.channel.records.remove(record)
            if record.connection is not None:
                record.connection.abandon(agent.now())
