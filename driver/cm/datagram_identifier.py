"""Implementation of a CMID of the port space UDP: a service, a request for one, or a member of multicast groups."""

from typing import Any

from ..connection.connection import Connection
from ..connection.resolution import Resolution, ResolutionState, SidrStatus
from ..datagram.packet import MULTICAST_QPN
from ..terms.enums import QPAttrMask, QPState, QPType
from ..terms.errors import InvalidValue
from ..verbs.addr import GID
from ..verbs.qp import QPAttr
from ..verbs.qp_states import necessary
from .card_agent import CardAgent
from .conn_param import ConnParam
from .enums import UDP_QKEY, EventType
from .events import DatagramAddress
from .identifier import Identifier


class DatagramIdentifier(Identifier):
    """Identifier of a UD queue pair. ``connection`` is a :class:`~weft.driver.connection.resolution.Resolution`."""

    datagrams = True
    connection: Any
    qkey = UDP_QKEY

    def init_attr(self) -> QPAttr:
        return QPAttr(qkey=self.qkey)

    def state_attr(self, state: QPState) -> tuple[QPAttr, QPAttrMask]:
        """Return the ``(QPAttr, mask)`` that bring a QP of the program to INIT; later states need nothing from here."""
        if state is not QPState.INIT:
            raise InvalidValue(f"Failed to get QP attributes: a UD QP needs none for {state.name}")
        return self.init_attr(), necessary(QPState.RESET, QPState.INIT, QPType.UD)

    def adopt(self, connection: Connection | Resolution) -> None:
        """Become the responder of a request."""
        self.connection, self.private_data = connection, connection.private_data
        self.peer_ip, self.peer_port = connection.peer_ip, connection.peer_port
        self.connection.notify = lambda _: None

    def request(self, param: ConnParam | None) -> None:
        """Ask for the queue pair of the service. Event: ESTABLISHED or UNREACHABLE."""
        with self.lock:
            _, agent = self._check_device()
            if self.connection is not None or not self.peer_ip:
                raise InvalidValue("Failed to Connect: " + ("it was requested already" if self.peer_ip
                                                           else "the peer's address was not resolved"))
            data = param.private_data if param is not None else b""
            self.connection = agent.agent.resolutions.resolve(
                self.peer_ip, self.peer_port, data, agent.now(), self._on_answer, src_port=self.src_port)

    def _on_answer(self, resolution: Resolution) -> None:
        self.private_data = resolution.private_data
        if resolution.status == SidrStatus.VALID:
            self.notify(EventType.ESTABLISHED, 0, self.private_data).datagram = DatagramAddress(
                self.peer_ip, resolution.qpn, resolution.qkey)
        else:
            self.notify(EventType.UNREACHABLE, resolution.status, self.private_data)

    def accept_request(self, param: ConnParam | None) -> None:
        """Answer the request with the queue pair. There is no event."""
        with self.lock:
            agent = self._check_received("Failed to Accept Connection")
            qpn = self.qp.qp_num if self.qp is not None else param.qp_num if param is not None else 0
            if not 0 < qpn < MULTICAST_QPN:
                raise InvalidValue("there is no QP: create one with create_qp, or name one in the ConnParam")
            self.connection.answer(agent.now(), SidrStatus.VALID, param.private_data if param is not None else b"",
                                   qpn=qpn, qkey=self.qkey)

    def reject_request(self, private_data: bytes) -> None:
        with self.lock:
            agent = self._check_received("Failed to Reject Connection")
            self.connection.answer(agent.now(), SidrStatus.REJECTED, private_data)

    def _check_received(self, subject: str) -> CardAgent:
        """Return the agent; the request must be unanswered."""
        _, agent = self._check_device()
        if self.connection is None or self.connection.state is not ResolutionState.RECEIVED:
            raise InvalidValue(f"{subject}: there is no request that was not answered")
        return agent

    def establish(self) -> None:
        raise InvalidValue("a datagram service has no connection to establish")

    def end(self) -> None:
        raise InvalidValue("Failed to Disconnect: a datagram service has no connection")

    def join(self, ip: int) -> None:
        """Join a multicast group; its packets come to the QP of the identifier. Event: MULTICAST_JOIN, at once."""
        with self.lock:
            self._check_device()
            if self.qp is not None:
                self.qp.attach_mcast(GID.of_ipv4(ip))
            self.notify(EventType.MULTICAST_JOIN).datagram = DatagramAddress(ip, MULTICAST_QPN, self.qkey)

    def leave(self, ip: int) -> None:
        """Leave a multicast group."""
        with self.lock:
            self._check_device()
            if self.qp is not None:
                self.qp.detach_mcast(GID.of_ipv4(ip))
