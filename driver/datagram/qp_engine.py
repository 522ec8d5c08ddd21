"""Engine of a UD queue pair: takes requests and packets; issues frames and completions."""

import collections
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.hdl.contract import wire

from ..device.attached import MemoryFault
from ..operation.memory import AccessError, total
from ..operation.queues import Queues
from ..operation.receives import Receive
from ..terms.enums import EventType, WCFlags, WCOpcode, WCStatus
from ..terms.errors import QueueFull
from ..terms.wc import WC
from .packet import GRH_BYTES, HEADER_KIND, MULTICAST_QPN, Packet, build, group_mac, is_group
from .request import DatagramRequest

if TYPE_CHECKING:
    from .service import DatagramService

_OWN_QKEY = 1 << 31      # a request with such a Q_Key sends that of its QP (IBTA 10.2.5)
_UNREACHABLE = -1        # instead of a MAC address


@dataclass
class _Started:
    """Request whose packet the card has; ``sent``: it has sent the packet."""

    request: DatagramRequest
    sent: bool = False


class DatagramEngine:
    """Engine of a UD queue pair: one incarnation, from RESET to RESET.

    A send completes when the card has sent its frame, because there is no acknowledgement. A packet that finds no
    receive request, or one that is too short, is dropped and consumes no request (IBTA 9.8.3, responder class D).

    Parameters
    ----------
    service : DatagramService
    queues : Queues
        Of this incarnation.
    pd : int
        Protection domain.
    attr : callable()
        Returns the current QPAttr; used are ``qkey`` and ``sq_psn``.
    notify : callable(EventType)
        Receives asynchronous events.

    Attributes
    ----------
    receiving : bool
        From RTR on.
    sender : DatagramEngine or None
        The engine itself, from RTS on: requests can be posted.
    in_error, send_error : bool
        The QP is in ERR; its send queue is, in SQE.
    draining : bool
        No new request starts, and some that were started are incomplete.
    refill : callable()
        Called when a packet finds no receive request; posts those that are ready, if there are any.
    groups : dict of int
        Multicast groups to which the QP is attached, as keys.
    """

    on_card = looped = False
    receiver = card_notified = None
    index = generation = 0

    def __init__(self, service: "DatagramService", queues: Queues, *, pd: int, attr: Callable[[], Any],
                 notify: Callable[[EventType], object]) -> None:
        self.service, self.queues, self.qp_num = service, queues, queues.qp_num
        self.card, self._memory, self._pd = service.card, service.card.lender.memory, pd
        self._attr, self._notify = attr, notify
        queues.wake, queues.notify = lambda: None, notify
        self.waiting: collections.deque[DatagramRequest] = collections.deque()
        self._started: collections.deque[_Started] = collections.deque()
        self.groups: dict[int, None] = {}
        self.receiving = self.in_error = self.send_error = self._paused = self._notify_drained = False
        self.sender: DatagramEngine | None = None
        self.refill: Callable[[], object] = lambda: None
        self._psn = 0

    # ------------------------------------------------------------------------------- from the QP

    def start_receiving(self) -> None:
        """Accept packets."""
        self.receiving = True
        self.service.qps[self.qp_num] = self

    def start_sending(self) -> None:
        """Send packets, from the PSN of the attributes on."""
        self.sender, self._psn = self, self._attr().sq_psn
        self._wake()

    def drain(self, notify: bool) -> None:
        """Stop starting requests; with ``notify``, raise SQ_DRAINED when those that were started are complete."""
        self._paused, self._notify_drained = True, notify
        self._note_drained()

    def _note_drained(self) -> None:
        if self._notify_drained and not self._started:
            self._notify_drained = False
            self._notify(EventType.SQ_DRAINED)

    def resume(self) -> None:
        """Start requests again, after a pause or an error of the send queue."""
        self._paused = self.send_error = self._notify_drained = False
        self._wake()

    def stop(self) -> None:
        """Stop without completions."""
        self.service.remove(self)
        self.waiting.clear()
        self._started.clear()
        self.receiving, self.sender, self._notify_drained = False, None, False
        self.queues.forget_receives()

    def post_send(self, requests: Iterable[DatagramRequest]) -> None:
        """Accept requests, in order."""
        self.waiting.extend(requests)
        if self.in_error or self.send_error:
            self._flush_sends()
        else:
            self._wake()

    def post_recv(self, receive: Receive) -> None:
        """Accept a receive request."""
        if self.in_error:
            self.queues.complete_receive(receive, WCStatus.WR_FLUSH_ERR)
        else:
            self.queues.receives.post(receive)

    @property
    def draining(self) -> bool:
        return self._paused and bool(self._started)

    @property
    def outstanding(self) -> int:
        """Number of incomplete send requests."""
        return len(self.waiting) + len(self._started)

    @property
    def receives(self) -> int:
        """Number of receive requests that no packet has consumed."""
        return len(self.queues.receives)

    def fail(self, status: WCStatus) -> None:
        """Enter ERR: the oldest send request completes with ``status``, everything else is flushed."""
        self.in_error, self._notify_drained = True, False
        self.waiting.extendleft(started.request for started in reversed(self._started))
        self._started.clear()
        if self.waiting:
            self.queues.complete_sends([self.waiting.popleft()], status)
        self._flush_sends()
        self.queues.flush_receives()

    def contain(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a method for this QP, or 0 after an exception, which :meth:`on_unexpected` gets."""
        try:
            return method(*arguments)
        except Exception as problem:
            self.on_unexpected(problem)
            return 0

    def on_unexpected(self, problem: Exception) -> None:
        """Raise an exception of work for this QP. An owner that must not fail as a whole replaces this function."""
        raise problem

    @property
    def sendable(self) -> bool:
        """True if a request waits that may start."""
        return bool(self.waiting) and self.sender is not None and not self._paused

    def _wake(self) -> None:
        if self.sendable:
            self.service.wake(self)

    def _flush_sends(self) -> None:
        while self.waiting:
            self.queues.complete_sends([self.waiting.popleft()], WCStatus.WR_FLUSH_ERR)

    # ---------------------------------------------------------------------------------- sending

    def progress(self, now: int, most: int) -> int:
        """Send up to ``most`` packets, and return their number."""
        count = 0
        while self.waiting and count < most and not self._paused:
            started = _Started(self.waiting[0])
            status = self._send(started, now)
            if self.in_error:        # the QP sent the datagram to itself, and could not receive it
                break
            if status is None or status is not WCStatus.SUCCESS and self._started:
                break
            request = self.waiting.popleft()
            count += 1
            if status is WCStatus.SUCCESS:
                self._started.append(started)
                self._complete()
            else:
                self.queues.complete_sends([request], status)
                self.send_error = True
                self._flush_sends()
        return count

    def _complete(self) -> None:
        """Complete the requests whose packets were sent, in order."""
        while self._started and self._started[0].sent:
            self.queues.complete_sends([self._started.popleft().request], WCStatus.SUCCESS)
        self._note_drained()

    def _send(self, started: "_Started", now: int) -> WCStatus | None:
        """Pass the packet of a request to the card; return the error of the request, or None if it has to wait."""
        request = started.request
        if request.status is not None:
            return request.status
        if request.length > self.service.payload_max:
            return WCStatus.LOC_LEN_ERR
        mac = self._mac_of(request, now)
        if mac is None:
            return None
        try:
            data = self._data(request)
        except AccessError:
            return WCStatus.LOC_PROT_ERR
        except MemoryFault:
            return WCStatus.LOC_QP_OP_ERR
        if mac == _UNREACHABLE:
            self.card.counts["datagrams_unreachable"] += 1
            started.sent = True
            return WCStatus.SUCCESS
        qkey = self._attr().qkey if request.remote_qkey & _OWN_QKEY else request.remote_qkey
        packet = Packet(self.card.ip, self.qp_num, request.ip, request.remote_qpn, qkey, data, request.solicited,
                        request.imm)
        frame = build(packet, src_mac=self.card.mac, dst_mac=mac, sport=self._sport(request), psn=self._psn)

        def sent() -> None:
            started.sent = True
            self.contain(self._complete)

        try:
            self.service.transmit(frame, request.ip, self, sent)
        except QueueFull:
            return None
        self._psn = self._psn + 1 & (1 << wire.PSN_BITS) - 1
        return WCStatus.SUCCESS

    def _mac_of(self, request: DatagramRequest, now: int) -> int | None:
        """Return the MAC address of a destination, or :data:`_UNREACHABLE`; None until that is known."""
        if is_group(request.ip):
            return group_mac(request.ip) if request.remote_qpn == MULTICAST_QPN else _UNREACHABLE
        neighbours = self.card.neighbours
        mac = neighbours.find(request.ip)
        if mac is None and not request.asked:
            request.asked = True
            neighbours.want(request.ip, now)
        elif mac is None and request.ip not in neighbours.asked:
            return _UNREACHABLE
        return mac

    def _data(self, request: DatagramRequest) -> bytes:
        if request.inline is not None:
            return request.inline
        parts = []
        for va, length, key in request.sges:
            if length:
                mr = self._memory.local(self._pd, va, length, key)
                parts.append(mr.read(length, va - mr.buf))
        return b"".join(parts)

    def _sport(self, request: DatagramRequest) -> int:
        """Return the UDP source port: see :attr:`~weft.driver.engine.qp_engine.QpEngine.sport`."""
        label = request.flow_label
        return 0xC000 | ((label ^ label >> 14) if label else self.qp_num * 0x9E37 >> 2) & 0x3FFF

    # --------------------------------------------------------------------------------- receiving

    def receive(self, packet: Packet) -> None:
        """Take a packet for this QP, or drop it."""
        counts = self.card.counts
        if not self.receiving or self.in_error:
            counts["datagrams_without_qp"] += 1
            return
        if packet.qkey != self._attr().qkey:
            counts["datagrams_with_wrong_qkey"] += 1
            return
        receives = self.queues.receives
        if not len(receives):
            self.refill()
        first = receives.first
        if first is None:
            counts["datagrams_without_receive"] += 1
            return
        length = GRH_BYTES + len(packet.data)
        if total(first.sges) < length:
            counts["datagrams_too_long"] += 1
            return
        receives.take(self.queues.wake)
        try:
            self._memory.store(self._pd, first.sges, packet.grh + packet.data)
        except AccessError:
            self.queues.complete_receive(first, WCStatus.LOC_PROT_ERR)
            self.fail(WCStatus.WR_FLUSH_ERR)
            return
        flags = WCFlags.GRH if packet.imm is None else WCFlags.GRH | WCFlags.WITH_IMM
        self.queues.rcq.push(WC(first.wr_id, WCStatus.SUCCESS, WCOpcode.RECV, byte_len=length, qp_num=self.qp_num,
                                src_qp=packet.src_qp, imm_data=packet.imm or 0, wc_flags=flags, sl=HEADER_KIND),
                            packet.solicited)
