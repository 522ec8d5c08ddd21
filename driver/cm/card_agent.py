"""Connection management of an open card: datagrams through its Simple NIC."""

import collections
from collections.abc import Callable, Hashable
from types import SimpleNamespace
from typing import Self

from weft.hdl.contract import wire

from ..connection.agent import Agent
from ..datagram.packet import is_group
from ..terms.errors import QueueFull
from ..verbs.card import Card
from ..verbs.device_list import guid_of

SPORT = 0xC000 | wire.GSI_QPN


def parse_datagram(frame: bytes) -> SimpleNamespace | None:
    """Return ``src_ip, src_mac`` and ``data`` of a frame for the general services QP, or None for other frames.

    The ICRC must have been checked.
    """
    at = wire.RETH_OFFSET
    if len(frame) != at + wire.DETH.size_bytes + wire.MAD_BYTES + wire.ICRC_BYTES:
        return None
    bth, deth = wire.BTH.unpack(frame[wire.BTH_OFFSET:]), wire.DETH.unpack(frame[at:])
    if bth.opcode != wire.UD_SEND_ONLY or bth.dest_qp != wire.GSI_QPN or bth.pad_count or deth.qkey != wire.GSI_QKEY:
        return None
    at += wire.DETH.size_bytes
    return SimpleNamespace(src_ip=wire.IPV4.unpack(frame[wire.ETH.size_bytes:]).src, src_mac=wire.ETH.unpack(frame).src,
                           data=bytes(frame[at : at + wire.MAD_BYTES]))


class CardAgent:
    """:class:`~weft.driver.connection.agent.Agent` of a card, as one of its engine's services.

    All methods run under the lock of the card.

    Parameters
    ----------
    card : Card

    Attributes
    ----------
    agent : Agent
    users : dict of Identifier to callable()
        Functions to call when the card loses its state, by user.
    """

    outstanding = False     # messages of connection management are not send requests

    def __init__(self, card: Card) -> None:
        self.card, self.engine = card, card.engine
        self.agent = Agent(ip=card.ip, guid=guid_of(card.mac), random=card.config.random, send=self._send,
                           timeout=card.config.cm_timeout)
        self._own: collections.deque[bytes] = collections.deque()     # datagrams of this card to itself
        # key -> (IP, deadline, function to call with the result)
        self._wanted: dict[Hashable, tuple[int, int, Callable[[bool], object]]] = {}
        self.users: dict[Hashable, Callable[[], object]] = {}
        self.engine.host_qpns.claim_qp1()

    @classmethod
    def of(cls, card: Card) -> Self:
        """Return the agent of a card, which has exactly one."""
        found = [service for service in card.engine.services if isinstance(service, cls)]
        if not found:
            found = [cls(card)]
            card.engine.services.append(found[0])
        return found[0]

    def now(self) -> int:
        return int(self.card.device.now_ns())

    # ------------------------------------------------------------------------------------- datagrams

    def _send(self, ip: int, mac: int | None, data: bytes) -> None:
        if ip == self.card.ip:
            self._own.append(data)
            return
        mac = self.engine.neighbours.find(ip) or mac
        if mac is None:
            self.engine.counts["datagrams_dropped"] += 1
            return
        frame = wire.build_frame(
            opcode=wire.UD_SEND_ONLY, dst_mac=mac, src_mac=self.card.mac, src_ip=self.card.ip, dst_ip=ip, sport=SPORT,
            dest_qp=wire.GSI_QPN, psn=0, extensions=wire.DETH.pack(qkey=wire.GSI_QKEY, src_qp=wire.GSI_QPN),
            payload=data)
        try:
            self.engine.nic.send(frame, self)
        except QueueFull:
            self.engine.counts["datagrams_dropped"] += 1

    def on_frame(self, frame: bytes, entry: SimpleNamespace) -> None:
        """Process a raw frame that the card received; ignore it as forged if its source address is the card's."""
        datagram = parse_datagram(frame) if entry.host else None
        if datagram is not None and datagram.src_ip != self.card.ip:
            self.agent.on_datagram(datagram.data, datagram.src_ip, datagram.src_mac, self.now())

    # ------------------------------------------------------------------------------------ neighbours

    def resolve(self, key: Hashable, ip: int, timeout_ns: int, done: Callable[[bool], object]) -> None:
        """Find the neighbour ``ip`` and call ``done(found)``, where ``found`` is false after ``timeout_ns``.

        A multicast group is always found.
        """
        now = self.now()
        if ip != self.card.ip and not is_group(ip):
            self.engine.neighbours.want(ip, now)
        self._wanted[key] = ip, now + timeout_ns, done

    def forget_user(self, key: Hashable) -> None:
        """Cancel the pending resolution and the notification of a user that ends."""
        self._wanted.pop(key, None)
        self.users.pop(key, None)

    def add_user(self, key: Hashable, gone: Callable[[], object]) -> None:
        """Register ``gone()``, to be called when the card loses its state."""
        self.users[key] = gone

    def _resolve_due(self, now: int) -> None:
        for key, (ip, until, done) in list(self._wanted.items()):
            found = is_group(ip) or self.engine.neighbours.find(ip) is not None
            if found or now >= until:
                del self._wanted[key]
                done(found)
            else:
                self.engine.neighbours.want(ip, now)

    # ---------------------------------------------------------------------------------------- engine

    @property
    def deadline(self) -> int | None:
        """Time of the next call of :meth:`progress`, or None."""
        if self._own:
            return 0
        times = [until for _, until, _ in self._wanted.values()]
        return min((at for at in (self.agent.deadline, *times) if at is not None), default=None)

    def progress(self, now: int) -> None:
        """Deliver the datagrams of the card to itself, and do everything that is due."""
        for _ in range(len(self._own)):
            self.agent.on_datagram(self._own.popleft(), self.card.ip, self.card.mac, now)
        self.agent.progress(now)
        self._resolve_due(now)

    def forget(self) -> None:
        """Drop all state after a reset of the card, and notify the users."""
        self._own.clear()
        self._wanted.clear()
        self.agent.forget_all()
        users, self.users = self.users, {}
        for gone in users.values():
            gone()
