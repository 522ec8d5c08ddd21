"""Objects of programs whose requests the engine executes. The daemon has the control path alone."""

import enum

from weft.hdl.contract import wire

from ...ibverbs.rings import COMP_EVENT
from ...protocol.aeth import RNR_TIMER_NS
from ...protocol.path import Path
from ...protocol.timer import ack_timeout_ns
from ...terms.checks import between
from ...terms.enums import AccessFlag, EventType, QPAttrMask, QPState, QPType, WCStatus
from ...terms.errors import InvalidValue, OutOfResources
from ...verbs.addr import ipv4_of
from ...verbs.events import AsyncEvent
from ...verbs.qp_attr import QPAttr
from ..client import Client
from ..completion_queue import ServedCQ
from ..object_types import ObjectTypes
from ..program_memory import ServedMR
from ..ring import Violation
from ..work_queues import ServedQP, ServedSRQ
from .engine import Attributes, address_of, ring_arguments


class NoticeKind(enum.IntEnum):
    """Kind of a notice (``notice_kind`` in ``direct.h``)."""

    OF_QP = 1
    OF_CQ = 2
    OF_SRQ = 3
    OF_CHANNEL = 4
    VIOLATED = 5
    ENDED = 6


class DirectMR(ServedMR):
    """Memory region of a program; the card has no page of it."""

    def _place(self, lent, buffer, address, length):
        self.buffer, self.buf = buffer, address or buffer.va
        self.length = between("length", length, 1, buffer.va + buffer.size - self.buf)
        self.page_bytes, self._ptes = buffer.page_bytes, (0, 0)
        buffer.hold(lent)

    def _register(self):
        self.install()

    def install(self):
        client, place = self.context.client, self.buffer
        if not client.engine.call("region", client.address, self.index, self.lkey, self.rkey, self.pd.handle,
                                  int(self.access), self.buf, self.length, (place.address - place.va) % (1 << 64),
                                  place.memory.fileno(), place.memory.process):
            raise OutOfResources("no memory is left for another region")
        self.installed = True

    def uninstall(self):
        """Remove the region from the engine, which accesses it no more."""
        client = self.context.client
        client.engine.call("region_close", client.host, self.index)
        self.installed = False

    def forget(self):
        self.uninstall()
        super().forget()

    def close(self):
        if not self.closed:
            self.forget()


def _close_in_engine(queue, function):
    """Close the QPs of a CQ or SRQ, and then its object in the engine."""
    queue._engine.objects.pop(queue._tag, None)
    for qp in list(queue.qps):
        qp.close()
    if queue.address:
        address, queue.address = queue.address, None
        queue._engine.call(function, address)


class DirectCQ(ServedCQ):
    """Completion queue of a program; the engine writes the completions."""

    def __init__(self, context, cqe, *, client, **options):
        super().__init__(context, cqe, client=client, **options)
        self._engine = client.engine
        self._tag = self._engine.tag(self)
        try:
            self.address = self._engine.new("cq", client.address, self._tag, self.user, self._channel_file,
                                            *ring_arguments(self.ring))
        except OutOfResources:
            self.address = None
            self.close()
            raise

    @property
    def _channel_file(self):
        return -1 if self.served_channel is None else self.served_channel.fileno()

    @property
    def overrun(self):
        """True if completions were lost."""
        address = getattr(self, "address", None)
        return bool(address and self._engine.call("cq_overrun", address))

    @overrun.setter
    def overrun(self, _value):
        """Ignore the initial value: the engine has the current one."""

    def on_notice(self, kind, event):
        if kind == NoticeKind.OF_CQ:
            self.context.async_events.append(AsyncEvent(EventType(event), self))
        else:
            self.client.guarded(self.served_channel.notify, COMP_EVENT.pack(user=self.user))

    def resize(self, cqe, allow=lambda ring: None):
        with self._engine.held():
            self.ring.own = self._engine.call("cq_own", self.address)
            super().resize(cqe, allow)
            self._engine.call("cq_ring", self.address, *ring_arguments(self.ring), self.ring.own)

    def close(self):
        if not self.closed:
            _close_in_engine(self, "cq_close")
            super().close()


class DirectReceives:
    """Receive requests of an SRQ, as far as the control path needs them; see
    :class:`~weft.driver.operation.receives.Receives`."""

    def __init__(self, engine, address, limit):
        self._engine, self._address, self.limit = engine, address, limit

    def __len__(self):
        return self._engine.call("srq_filled", self._address)

    @property
    def limit(self):
        return self._engine.call("srq_limit", self._address)

    @limit.setter
    def limit(self, value):
        self._engine.call("srq_set_limit", self._address, value)

    def clear(self):
        """Do nothing: the requests are in the program's memory, and end with the ring."""


class DirectSRQ(ServedSRQ):
    """Shared receive queue of a program; the engine takes the requests."""

    def __init__(self, creator, init, *, user):
        super().__init__(creator, init, user=user)
        client = self.context.client
        self._engine = client.engine
        self._tag = self._engine.tag(self)
        try:
            self.address = self._engine.new("srq", client.address, self._tag, self.ring.sges,
                                            *ring_arguments(self.ring))
        except OutOfResources:
            self.address = None
            self.close()
            raise
        self.receives = DirectReceives(self._engine, self.address, init.srq_limit)

    def on_notice(self, _kind, _event):
        self._limit_reached()

    def take_work(self):
        """Do nothing: the engine takes the requests."""

    def query(self):
        with self._engine.held():
            return super().query()

    def modify(self, attr, comp_mask, allow=lambda ring: None):
        with self._engine.held():
            super().modify(attr, comp_mask, allow)

    def _replace(self, ring):
        """Move the requests that are left to the slots of another ring, from 0 on."""
        old, count = self.ring, min(len(self.receives), ring.slots)     # the program may have written another number
        ring.begin(count)
        ring.take_over(old, self._engine.call("srq_own", self.address), count)
        self._engine.call("srq_ring", self.address, *ring_arguments(ring))
        self.ring = ring
        old.close()

    def close(self):
        if not self.closed:
            _close_in_engine(self, "srq_close")
            super().close()


class DirectQpEngine:
    """State of a QP that the engine executes, with those names of
    :class:`~weft.driver.engine.qp_engine.QpEngine` and :class:`~weft.driver.datagram.qp_engine.DatagramEngine` that
    the verbs use."""

    def __init__(self, qp):
        self._qp = qp
        self.index, self.generation = qp.context.qps.parts(qp.qp_num)
        self.qp_num, self.sender, self.receiver, self.groups = qp.qp_num, None, None, {}

    def start_receiving(self):
        """Do nothing: the state RTR lets a UD QP receive."""

    def start_sending(self):
        """Accept send requests of a UD QP; the state RTS starts them."""
        self.sender = self

    def _call(self, name, *arguments):
        """Call a function of the engine for the QP; return 0 if the QP is closed."""
        return self._qp.context.client.engine.call(name, self._qp.address, *arguments) if self._qp.address else 0

    @property
    def in_error(self):
        return bool(self._call("qp_error"))

    @property
    def send_error(self):
        return bool(self._call("qp_send_error"))

    @property
    def draining(self):
        return bool(self._call("qp_draining"))

    def drain(self, notify):
        """Start no request any more; with ``notify``, an event follows when those that were started are complete."""
        self._call("qp_drain", int(notify))

    def resume(self):
        """End an error of the send queue; the state RTS ends a drain."""
        self._call("qp_resume")

    def fail(self, status):
        """Enter ERR."""
        self._call("qp_fail", int(status))


class DirectQP(ServedQP):
    """Queue pair of a program; the engine executes its requests."""

    address = None

    def _begin_incarnation(self, qp_num, psn=None):
        self.qp_num, client, datagrams = qp_num, self.context.client, self._datagrams
        self._direct = client.engine
        if self.address is None:
            self._tag = self._direct.tag(self)
            with self._direct.held():
                cap = self.cap
                self.address = self._direct.call(
                    "qp", client.address, self._tag, qp_num, self.pd.handle, self.scq.address, self.rcq.address,
                    self.srq.address if self.srq is not None else None, max(1, cap.max_send_wr), cap.max_send_sge,
                    cap.max_inline_data, cap.max_recv_sge, datagrams.payload_max if datagrams else 0)
                if not self.address or not self._direct.call(
                        "qp_rings", self.address, *ring_arguments(self.sends), *ring_arguments(self.receives)):
                    self._leave_engine()
                    (datagrams or self.context.qps).free_number(qp_num)
                    raise OutOfResources("no memory is left for another QP")
        self.engine = DirectQpEngine(self)
        self.attr = QPAttr(qp_state=QPState.RESET)
        self.attr.sq_psn = self.context.config.random.randrange(1 << wire.PSN_BITS) if psn is None else psn

    def on_notice(self, _kind, event):
        self._notify(event)

    def take_work(self):
        """Do nothing: the engine takes the requests."""

    def send_posted(self):
        if self.qp_type is QPType.UD:
            self._direct.call("qp_run", self.address)

    def attach_mcast(self, gid, lid=0):
        super().attach_mcast(gid, lid)
        if not self._direct.call("qp_join", self.address, ipv4_of(gid)):
            super().detach_mcast(gid, lid)
            raise OutOfResources("no memory is left for another member of a multicast group")

    def detach_mcast(self, gid, lid=0):
        super().detach_mcast(gid, lid)
        self._direct.call("qp_leave", self.address, ipv4_of(gid))

    # -------------------------------------------------------------------------------- transitions

    def modify(self, qp_attr, comp_mask):
        super().modify(qp_attr, comp_mask)
        if self.attr.qp_state is not QPState.RESET:
            self._direct.call("qp_modify", self.address, self._attributes())

    def _attributes(self):
        attr = self.attr
        connected = self.qp_type is QPType.RC and attr.qp_state not in (QPState.RESET, QPState.INIT)
        least_ns = self.context.config.probe_timeout_ns     # as the cards: each retry has a probe
        timeout_ns = ack_timeout_ns(attr.timeout)
        return Attributes(
            state=attr.qp_state, peer_ip=ipv4_of(attr.ah_attr.dgid) if connected else 0, peer_qpn=attr.dest_qp_num,
            send_psn=attr.sq_psn, expected_psn=attr.rq_psn, access=int(attr.qp_access_flags),
            max_rd_atomic=attr.max_rd_atomic, max_dest_rd_atomic=attr.max_dest_rd_atomic,
            rnr_ns=RNR_TIMER_NS[attr.min_rnr_timer], timeout_ns=timeout_ns and max(timeout_ns, least_ns),
            retry_cnt=attr.retry_cnt, rnr_retry=attr.rnr_retry, qkey=attr.qkey)

    def _start_receiving(self, attr):
        self.engine.receiver = Path(attr.path_mtu, attr.dest_qp_num, None, ipv4_of(attr.ah_attr.dgid),
                                    attr.ah_attr.flow_label)

    def _start_sending(self, attr):
        self.engine.sender = self.engine.receiver

    def _set_timers(self, attr):
        """Do nothing: :meth:`modify` hands over all attributes."""

    def _change(self, attr, mask):
        if mask & QPAttrMask.AV and attr.ah_attr != self.attr.ah_attr:
            raise InvalidValue("the card keeps the peer of a QP until it is reset")
        attr.qp_access_flags = AccessFlag(attr.qp_access_flags)

    def _stop(self):
        self.engine.fail(WCStatus.WR_FLUSH_ERR)

    def reset(self):
        self._check()
        if (datagrams := self._datagrams) is not None:
            datagrams.remove(self.engine)
        if self.address is not None:
            self._direct.call("qp_reset", self.address)
            self._begin_incarnation(self.qp_num)

    def _enter_time_wait(self):
        """Return false: the direct back end has no acknowledgement that could be lost."""
        return False

    def close(self):
        if self.address is not None:     # before its rings are closed
            self._leave_engine()
        super().close()

    def _leave_engine(self):
        self._direct.objects.pop(self._tag, None)
        address, self.address = self.address, None
        if address:
            self._direct.call("qp_close", address)


DIRECT = ObjectTypes(DirectMR, DirectCQ, DirectSRQ, DirectQP)


class DirectClient(Client):
    """Open context of a program on the direct back end.

    Parameters
    ----------
    engine : Engine
    connection, name, whole
        See :class:`~weft.driver.serve.client.Client`.
    """

    types = DIRECT

    def __init__(self, engine, connection, name, whole):
        super().__init__(connection, name, whole)
        self.engine, self.host, self._tag, self.address = engine, engine.hosts[name], engine.tag(self), None
        try:
            self.address = engine.new("client", self.host, self._tag, address_of(self._bell_mapping), self.doorbell,
                                      self._wake)
        except OutOfResources:
            self.close()
            raise

    @property
    def doorbells(self):
        """No descriptor: the engine waits for the program's doorbell."""
        return ()

    def on_notice(self, kind, _event):
        if kind == NoticeKind.ENDED:
            self.memory_ended()
        else:
            self.violated = self.violated or Violation(self.engine.call("why", self.address).decode(errors="replace"))

    def take_work(self):
        """Return false: the engine takes the requests."""
        return False

    @property
    def has_work(self):
        return False

    def fall_asleep(self):
        """Do nothing: the engine requests doorbells."""

    def wake_up(self):
        """Do nothing, as :meth:`fall_asleep`."""

    def _release_card(self):
        try:
            super()._release_card()
        finally:
            self.engine.objects.pop(self._tag, None)
            if self.address:
                self.engine.call("client_close", self.address)
