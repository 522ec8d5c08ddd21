"""Implementation of a CMID: an end of a connection, or a listener. No method waits for the peer."""

import errno
from dataclasses import replace

from ..connection.connection import News, State
from ..terms.enums import QPAttrMask, QPState
from ..terms.errors import InvalidValue, PyverbsRDMAError
from ..verbs.cq import CQ
from ..verbs.locking import NO_LOCK
from ..verbs.qp import QP, QPAttr
from .card_agent import CardAgent
from .conn_param import ConnParam
from .enums import EventType
from .events import Record
from .held import hold
from .qp_attributes import connection_attr, init_attr, offers

EVENTS = {News.RESPONSE: EventType.CONNECT_RESPONSE, News.ESTABLISHED: EventType.ESTABLISHED,
          News.REJECTED: EventType.REJECTED, News.UNREACHABLE: EventType.UNREACHABLE,
          News.DISCONNECTED: EventType.DISCONNECTED, News.TIMEWAIT_EXIT: EventType.TIMEWAIT_EXIT}


class Identifier:
    """End of a connection, or a listener.

    Parameters
    ----------
    channel : CMEventChannel
    pd : PD or None
        PD of the program; by default the device is opened by its address, once for all CMIDs.

    Attributes
    ----------
    held : Held or None
        Device and protection domain, once the identifier is bound to them.
    connection : Connection or None
    listener : Listener or None
    qp : QP or None
        QP of the identifier.
    peer_ip : int
    private_data : bytes
        Private data of the peer's request, acceptance or rejection.
    """

    def __init__(self, channel, pd=None):
        self.channel, self._own_pd = channel, pd
        self.held = self.agent = self.connection = self.listener = self.qp = None
        self.src_port = self.peer_ip = self.peer_port = 0
        self.psn, self.ack_timeout, self._cqs = 0, None, []
        self.private_data = b""
        self.closed = False
        channel.users[self] = None

    @property
    def engine(self):
        return self.held.context.engine if self.held is not None else None

    @property
    def lock(self):
        """Lock of the card, or a null lock without a device."""
        return self.engine.lock if self.held is not None else NO_LOCK

    def tell(self, event_type, status=0, private_data=b"", connection=None):
        """Put an event into the channel and return its :class:`Record`."""
        record = Record(event_type, self, status, private_data, connection)
        self.channel.records.append(record)
        return record

    # ----------------------------------------------------------------------------------- addresses

    def attach(self, ip):
        """Bind to the device with this address, unless the identifier is bound already."""
        if self.held is None:
            self.take_held(hold(ip, self._own_pd))

    def take_held(self, held):
        """Bind to a device."""
        self.held = held
        with self.lock:
            self.agent = CardAgent.of(held.context.card)
            self.agent.add_user(self, self._device_gone)
            self.psn = held.context.config.random.getrandbits(24)

    def _device_gone(self):
        self.connection = self.listener = None
        self.tell(EventType.DEVICE_REMOVAL)

    def resolve(self, ip, port, timeout_ns):
        """Find the route to a peer. Event: ADDR_RESOLVED or ADDR_ERROR."""
        with self.lock:
            self.peer_ip, self.peer_port = ip, port
            self.agent.resolve(self, ip, timeout_ns, self._resolved)

    def _resolved(self, found):
        self.tell(EventType.ADDR_RESOLVED if found else EventType.ADDR_ERROR, 0 if found else -errno.ETIMEDOUT)

    # ---------------------------------------------------------------------------------- connections

    def listen(self, backlog):
        """Listen for requests. Event: CONNECT_REQUEST for each."""
        with self.lock:
            self._check_device()
            if self.listener is not None or self.connection is not None:
                raise InvalidValue("Listen Failed: the CMID is in use")
            try:
                self.listener = self.agent.agent.listen(self.src_port, backlog, self._requested)
            except ValueError as error:
                raise PyverbsRDMAError(f"Listen Failed: {error}", errno.EADDRINUSE) from None
            self.src_port = self.listener.port

    def _requested(self, connection):
        return self.tell(EventType.CONNECT_REQUEST, 0, connection.private_data, connection).dropped

    def adopt(self, connection):
        """Become the end of a requested connection."""
        self.connection, connection.tell, self.private_data = connection, self._on_news, connection.private_data
        self.peer_ip, self.peer_port = connection.peer_ip, connection.peer_port
        if connection.state is State.CLOSED:
            self._on_news(connection, News.UNREACHABLE)

    def child(self, channel, connection):
        """Return a new identifier for a connection that was requested from this listener."""
        with self.lock:
            self._check_device()
            child = Identifier(channel, self._own_pd)
            child.take_held(hold(self.held.context.ip, self._own_pd))
            child.adopt(connection)
            return child

    def request(self, param):
        """Request a connection. Event: CONNECT_RESPONSE, REJECTED or UNREACHABLE."""
        with self.lock:
            self._check_device()
            if self.connection is not None or not self.peer_ip:
                raise InvalidValue("Failed to Connect: " + ("it was asked for already" if self.peer_ip
                                                           else "the peer's address was not resolved"))
            param = param or ConnParam.most()
            offer = offers(self, param, mtu=self.held.context.query_port(1).active_mtu)
            self.connection = self.agent.agent.connect(
                self.peer_ip, self.peer_port, offer, param.private_data, self.agent.now(), self._on_news,
                src_port=self.src_port)

    def accept_request(self, param):
        """Accept the request. Event: ESTABLISHED, REJECTED or UNREACHABLE."""
        with self.lock:
            self._check_state("Failed to Accept Connection", State.REQ_RCVD)
            peers = self.connection.peers
            param = param or ConnParam.most()
            offer = offers(self, param, answering=peers)
            if self.qp is not None:
                self._ready_qp(offer)
                self._check_state("Failed to Accept Connection", State.REQ_RCVD)
            self.connection.accept(offer, param.private_data, self.agent.now(), ca_guid=self.agent.agent.guid)

    def complete(self, record):
        """Bring the QP to RTS after the peer's acceptance; ``record`` becomes ESTABLISHED, or CONNECT_ERROR."""
        try:
            self._ready_qp(self.connection.mine)
            if self.connection.state is State.REP_RCVD:
                self.connection.establish(self.agent.now())
                record.type = EventType.ESTABLISHED
                return
        except PyverbsRDMAError:
            self.connection.reject()
        record.type, record.status = EventType.CONNECT_ERROR, -errno.EINVAL

    def establish(self):
        """Report to the peer that the QP of the program is ready."""
        with self.lock:
            self._check_state("Failed to Complete an active connection request", State.REP_RCVD)
            self.connection.establish(self.agent.now())

    def reject_request(self, private_data):
        with self.lock:
            self._check_state("Failed to Reject Connection", State.REQ_RCVD, State.REP_RCVD)
            self.connection.reject(private_data=private_data)

    def end(self):
        """End the connection and bring the QP of the identifier to ERR.

        Event: DISCONNECTED, unless the peer has ended the connection before.
        """
        with self.lock:
            if self.connection is None:
                raise InvalidValue("Failed to Disconnect: there is no connection")
            if self.qp is not None and self.qp.qp_state not in (QPState.RESET, QPState.ERR):
                self.qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
            self.connection.disconnect(self.agent.now())

    def _on_news(self, connection, news):
        if news in (News.RESPONSE, News.REJECTED):
            self.private_data = connection.private_data
        self.tell(EVENTS[news], connection.status, connection.private_data)

    def _check_device(self):
        if self.closed or self.held is None:
            raise InvalidValue("the CMID is closed" if self.closed else "the CMID has no device: bind or resolve first")

    def _check_state(self, what, *states):
        self._check_device()
        if self.connection is None or self.connection.state not in states:
            state = self.connection.state.name if self.connection is not None else "not asked for"
            raise InvalidValue(f"{what}: the connection is {state}")

    # ------------------------------------------------------------------------------------------- QP

    def make_qp(self, qp_init):
        """Create the QP of the identifier, in INIT, and the CQs that ``qp_init`` does not name."""
        with self.lock:
            self._check_device()
            if self.qp is not None:
                raise InvalidValue("Failed to Create QP: the CMID has one")
            given = replace(qp_init, cap=replace(qp_init.cap))
            for name, size in (("scq", given.max_send_wr), ("rcq", given.max_recv_wr)):
                if getattr(given, name) is None:
                    setattr(given, name, CQ(self.held.context, max(1, size)))
                    self._cqs.append(getattr(given, name))
            self.qp = QP(self.held.pd, given, init_attr(), psn=self.psn)

    def use_qp(self, qp):
        """Adopt a QP that is in RESET; it goes to INIT."""
        with self.lock:
            qp.to_init(init_attr())
            self.qp = qp

    def _ready_qp(self, offer):
        self.qp.to_rts(connection_attr(self, offer))

    # ------------------------------------------------------------------------------------- closing

    def finish(self):
        """End the identifier: cancel requests, end an established connection, destroy QP and CQs."""
        if self.closed:
            return
        self.closed = True
        with self.lock:
            if self.agent is not None:
                self._leave_agent()
            if self.qp is not None:
                self.qp.close()
            for cq in self._cqs:
                cq.close()
        self.channel.users.pop(self, None)
        if self.held is not None:
            self.held.release()

    def _leave_agent(self):
        self.agent.forget_user(self)
        if self.connection is not None:
            self.connection.abandon(self.agent.now())
        if self.listener is not None:
            self.listener.close()
        for record in [record for record in self.channel.records if record.id is self]:
            self.channel.records.remove(record)
            if record.connection is not None:
                record.connection.abandon(self.agent.now())
