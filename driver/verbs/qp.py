"""Queue pairs."""

import copy
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from weft.hdl.contract import wire

from ..datagram.service import DatagramService
from ..operation.operation import FETCHES, Operation
from ..receive.receiver import RNR_TIMER, Receiver
from ..send.sender import Sender
from ..terms.checks import instance, unsigned
from ..terms.closing import Closing
from ..terms.enums import MTU, AccessFlag, QPAttrMask, QPState, QPType
from ..terms.errors import InvalidValue, NotSupported, QueueFull
from .addr import GID, AHAttr, GlobalRoute, ipv4_of
from .locking import locked, made_locked
from .pd import PD
from .qp_attr import RD_ATOMIC_MAX, QPAttr, QPConnection
from .qp_incarnation import QPIncarnation
from .qp_init_attr import QPCap, QPInitAttr, QPInitAttrEx, rc_init_attr
from .qp_states import necessary
from .requests import datagram_request, receive_request, send_operation
from .wr import RecvWR, SendWR, chain, note_bad

if TYPE_CHECKING:
    from .context import Context

__all__ = ["QP", "QPAttr", "QPCap", "QPConnection", "QPInitAttr", "QPInitAttrEx", "rc_init_attr"]

CONNECTED = QPAttrMask(0)     # attributes of all transitions from RESET to RTS
for _step in pairwise((QPState.RESET, QPState.INIT, QPState.RTR, QPState.RTS)):
    CONNECTED |= necessary(*_step)
# Defaults of :func:`connected_attr`.
_USUAL: dict[str, Any] = {"qp_access_flags": AccessFlag.REMOTE_WRITE, "timeout": 14, "retry_cnt": 7, "rnr_retry": 7,
          "min_rnr_timer": RNR_TIMER, "max_rd_atomic": RD_ATOMIC_MAX, "max_dest_rd_atomic": RD_ATOMIC_MAX}


def connected_attr(peer: QPConnection, **attributes: Any) -> QPAttr:
    """Return the :class:`QPAttr` that leads to RTS with the peer's :class:`QPConnection`."""
    route = AHAttr(is_global=1, gr=GlobalRoute(dgid=peer.gid, hop_limit=64))
    given: dict[str, Any] = {"rq_psn": peer.psn, "dest_qp_num": peer.qpn, "ah_attr": route}
    return QPAttr(**given | _USUAL | attributes)


class QP(QPIncarnation, Closing):
    """Queue pair: reliable connection (RC) or unreliable datagrams (UD).

    Parameters
    ----------
    creator : PD or Context
        With a context ``init_attr`` is a :class:`QPInitAttrEx`, which has the PD.
    init_attr : QPInitAttr
    qp_attr : QPAttr or None
        If present, the QP goes to INIT with these attributes, a UD QP to RTS.
    psn : int or None
        First PSN that the first incarnation sends, unless the attributes contain another one. By default it is random,
        as in every later incarnation.
    """

    @made_locked
    def __init__(self, creator: "PD | Context", init_attr: QPInitAttr, qp_attr: QPAttr | None = None, *,
                 psn: int | None = None) -> None:
        instance("init_attr", init_attr, QPInitAttr)
        pd = init_attr.pd if isinstance(init_attr, QPInitAttrEx) else creator
        if not isinstance(pd, PD):
            raise InvalidValue("a QP is made by a PD, or by a context with a QPInitAttrEx that names a PD")
        pd.check_open()
        init_attr.check(pd.context)
        assert init_attr.scq is not None and init_attr.rcq is not None
        self.pd, self.context = pd, pd.context
        if psn is not None:
            unsigned("psn", psn, wire.PSN_BITS)
        self.init_attr = replace(init_attr, cap=init_attr.own_cap())
        self.cap, self.srq = self.init_attr.cap, init_attr.srq
        self.scq, self.rcq = init_attr.scq, init_attr.rcq
        self._begin(psn)
        self.closed = False
        for users in self._users:
            users[self] = None
        if qp_attr is not None:
            try:
                (self.to_rts if self.qp_type is QPType.UD else self.to_init)(qp_attr)
            except BaseException:
                self.close()
                raise

    @property
    def _users(self) -> "list[dict[QP, None]]":
        """Tables, in the objects that this QP uses, that list their QPs."""
        return [user.qps for user in (self.pd, self.scq, self.rcq, self.srq) if user is not None]

    @property
    def qp_type(self) -> QPType:
        return QPType(self.init_attr.qp_type)

    @property
    def generation(self) -> int:
        """Number of this incarnation, between card and driver."""
        return self.engine.generation

    @property
    def index(self) -> int:
        """Index of the QP in the card's table."""
        return self.engine.index

    @property
    def sender(self) -> Sender | None:
        """:class:`Sender` of the QP, from RTS on."""
        return self.engine.sender

    @property
    def receiver(self) -> Receiver | None:
        """:class:`Receiver` of the QP, from RTR on."""
        return self.engine.receiver

    @property
    def connection(self) -> QPConnection:
        """:class:`QPConnection` for the peer."""
        return QPConnection(self.qp_num, self.attr.sq_psn, str(GID.of_ipv4(self.context.ip)))

    @locked
    def connect(self, peer: QPConnection, *, path_mtu: MTU = MTU.MTU_1024, **attributes: Any) -> None:
        """Go from RESET to RTS with the peer's :class:`QPConnection` and further ``attributes`` of :class:`QPAttr`."""
        attr = connected_attr(peer, **{"path_mtu": path_mtu, "sq_psn": self.attr.sq_psn} | attributes)
        attr.check(CONNECTED)
        self.to_rts(attr)

    @locked
    def query(self, attr_mask: int | None = None) -> tuple[QPAttr, QPInitAttr]:
        """Return copies of the current ``(QPAttr, QPInitAttr)``, with all attributes whatever ``attr_mask`` is."""
        attr = copy.deepcopy(self.attr)
        attr.qp_state = attr.cur_qp_state = self.qp_state
        attr.cap, attr.sq_draining = replace(self.cap), int(self.engine.draining)
        return attr, replace(self.init_attr, cap=replace(self.cap))

    def query_data_in_order(self, op: int, flags: int = 0) -> int:
        """Return 0: the bytes of a message may be written out of order, because late and lost packets arrive later."""
        return 0

    def query_ece(self) -> NoReturn:
        raise NotSupported("Failed to query ECE: there is nothing to agree on beyond the standard")

    def set_ece(self, ece: object) -> NoReturn:
        raise NotSupported("Failed to set ECE: there is nothing to agree on beyond the standard")

    def bind_mw(self, mw: object, mw_bind: object) -> NoReturn:
        raise NotSupported("Failed to bind a memory window: there are none here")

    # --------------------------------------------------------------------------------------- work

    @locked
    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Queue a send work request, and those that follow it by ``next_wr``.

        Raises
        ------
        InvalidValue, NotSupported, TypeError
            If the QP is not in RTS, SQD or ERR, or a request is invalid. This request and the following ones are not
            queued, and its fields are copied to ``bad_wr``.
        QueueFull
            If ``max_send_wr`` requests are outstanding.
        OutOfResources
            If the card has no space for the resources that the first operation other than a write needs.
        """
        cap, memory, signal_all = self.cap, self.engine.card.lender.memory, bool(self.init_attr.sq_sig_all)
        posted: list[Any] = []
        space, datagrams = 0, self.init_attr.qp_type == QPType.UD
        try:
            for one in chain(wr, SendWR):
                try:
                    if not space:
                        self._check_able()
                    operation: Any = (datagram_request if datagrams else send_operation)(
                        one, cap, memory, signal_all=signal_all)
                    space = space or self._space_after(posted)
                    if not operation.plain:
                        self._prepare(operation)
                    elif not operation.single:
                        self.engine.check_list(operation)
                    posted.append(operation)
                    space -= 1
                except Exception:
                    note_bad(one, bad_wr)
                    raise
        finally:
            self.engine.post_send(posted)

    def _prepare(self, operation: Operation) -> None:
        if operation.opcode in FETCHES and not self.attr.max_rd_atomic and self.qp_state is not QPState.ERR:
            raise InvalidValue(f"QP {self.qp_num} has no resources for reads and atomics: max_rd_atomic is 0")
        if self.attr.standard and not self.engine.is_write(operation):
            raise NotSupported("to a standard peer this card sends RDMA writes only")
        self.engine.prepare(operation)

    def _check_able(self) -> None:
        if self.engine.sender is None or self.qp_state is QPState.RTR:
            raise InvalidValue(f"QP {self.qp_num} is {self.qp_state.name}; it cannot send")

    def _space_after(self, posted: list[Any]) -> int:
        """Post ``posted``, clear it, and return the free space of the send queue."""
        self.engine.post_send(posted)
        posted.clear()
        space = self.cap.max_send_wr - self.engine.outstanding
        if space <= 0:
            raise QueueFull(f"{self.cap.max_send_wr} send requests are outstanding")
        return space

    @locked
    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Queue a receive work request, and those that follow it by ``next_wr``.

        Each SEND and each RDMA WRITE WITH IMMEDIATE of the peer consumes one.

        Raises
        ------
        InvalidValue, TypeError
            If the QP is in RESET or uses an SRQ, or a request is invalid. This request and the following ones are not
            queued, and its fields are copied to ``bad_wr``.
        QueueFull
            If ``max_recv_wr`` requests are outstanding.
        """
        for one in chain(wr, RecvWR):
            try:
                if self.qp_state is QPState.RESET:
                    raise InvalidValue(f"QP {self.qp_num} is RESET; it cannot receive")
                if self.srq is not None:
                    raise InvalidValue(f"QP {self.qp_num} takes its receive requests from an SRQ")
                receive = receive_request(one, self.cap.max_recv_sge, self.context.engine.lender.memory)
                if self.engine.receives >= self.cap.max_recv_wr:
                    raise QueueFull(f"{self.cap.max_recv_wr} receive requests are outstanding")
                self.engine.post_recv(receive)
            except Exception:
                note_bad(one, bad_wr)
                raise

    @locked
    def attach_mcast(self, gid: GID | str, lid: int = 0) -> None:
        """Receive the packets of a multicast group, whose GID is the IPv4-mapped one of its address.

        Raises
        ------
        InvalidValue
            If the QP is not UD, or the GID is not that of a group.
        OutOfResources
            If the QP or the card is in too many groups.
        """
        datagrams, group = self._group(gid)
        datagrams.attach(self.engine, group)

    @locked
    def detach_mcast(self, gid: GID | str, lid: int = 0) -> None:
        """End :meth:`attach_mcast`; raise InvalidValue if the QP is not attached."""
        datagrams, group = self._group(gid)
        datagrams.detach(self.engine, group)

    def _group(self, gid: GID | str) -> tuple[DatagramService, int]:
        self._check()
        datagrams = self._datagrams
        if datagrams is None:
            raise InvalidValue(f"QP {self.qp_num} is RC; only UD queue pairs receive multicast packets")
        return datagrams, ipv4_of(gid)

    # ------------------------------------------------------------------------------------ closing

    @locked
    def close(self) -> None:
        """Destroy the QP: when the call returns, none of its packets is in flight and none of its writes is pending.

        Its blocks are free, unless the QP enters TIME-WAIT: see ``time_wait_qps`` of
        :class:`~weft.driver.verbs.config.ContextConfig`.
        """
        if self.closed:
            return
        if not self._enter_time_wait():
            self.reset()
            (self._datagrams or self.context.qps).free_number(self.qp_num)
        self.closed = True
        for users in self._users:
            users.pop(self, None)
