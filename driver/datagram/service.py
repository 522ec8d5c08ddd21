"""Datagrams of an open card: numbers, queue pairs and multicast groups, as one of its engine's services."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

from weft.hdl.contract import wire

from ..terms.enums import WCStatus
from ..terms.errors import InvalidValue, OutOfResources
from .packet import MULTICAST_QPN, Packet, is_group, parse, parse_group, payload_limit
from .qp_engine import DatagramEngine

GROUPS_MAX = 1024       # multicast groups of a card
GROUPS_OF_QP_MAX = 64
_BURST_SHIFT = 3        # a QP sends at most 1/8 of the NIC_TX ring in a round: the peer's ring holds as much


class DatagramService:
    """UD queue pairs of a card: packets through the Simple NIC.

    The card delivers the packets for a range of QPNs as frames. The range is claimed when the first UD queue pair is
    created. All methods run under the lock of the card.

    Parameters
    ----------
    card : CardEngine

    Attributes
    ----------
    qps : dict of int to DatagramEngine
        Queue pairs from RTR on, by number.
    active : dict of DatagramEngine
        Queue pairs with send requests that can start, as keys.
    groups : dict of int to dict of DatagramEngine
        Queue pairs that are attached to a multicast group, by its address.
    payload_max : int
        Largest payload of a packet in bytes.
    """

    def __init__(self, card: Any) -> None:
        self.card = card
        self.qps: dict[int, DatagramEngine] = {}
        self.active: dict[DatagramEngine, None] = {}
        self.groups: dict[int, dict[DatagramEngine, None]] = {}
        self.payload_max = payload_limit(card.nic.slot_bytes)
        self._burst = max(1, card.nic.tx.depth >> _BURST_SHIFT)
        self._ready, self._sent_ns = False, -1      # the latter: time of the last packet
        count = 1 << card.qps.host_qpns_log2
        self._first = (1 << wire.QPN_BITS) - count
        self._numbers: set[int] = set()
        self._turn = itertools.cycle(range(self._first, MULTICAST_QPN))
        for _ in range(card.config.random.randrange(count)):
            next(self._turn)
        card.host_qpns.claim(self._first, count)

    @classmethod
    def of(cls, card: Any) -> Self:
        """Return the service of a CardEngine, which has exactly one."""
        found = [service for service in card.services if isinstance(service, cls)]
        if not found:
            found = [cls(card)]
            card.services.append(found[0])
        return found[0]

    # ------------------------------------------------------------------------------------- numbers

    def new_number(self) -> int:
        """Return a free QPN, as late as possible again.

        Raises
        ------
        OutOfResources
        """
        for _ in range(self._first, MULTICAST_QPN):
            if (number := next(self._turn)) not in self._numbers:
                self._numbers.add(number)
                return number
        raise OutOfResources(f"all {MULTICAST_QPN - self._first} UD queue pairs are in use")

    def free_number(self, number: int) -> None:
        """Free the QPN of a queue pair."""
        self._numbers.discard(number)

    def wake(self, qp: DatagramEngine) -> None:
        """Schedule a queue pair with a request that may start."""
        self.active[qp] = None
        self._ready = True

    def remove(self, qp: DatagramEngine) -> None:
        """Remove a queue pair that stops."""
        if self.qps.get(qp.qp_num) is qp:
            del self.qps[qp.qp_num]
        self.active.pop(qp, None)
        for group in list(qp.groups):
            self.detach(qp, group)

    # ------------------------------------------------------------------------------------- groups

    def attach(self, qp: DatagramEngine, group: int) -> None:
        """Deliver the packets of a multicast group to a queue pair.

        Raises
        ------
        InvalidValue
            If the address is not that of a group.
        OutOfResources
        """
        if not is_group(group):
            raise InvalidValue("the address is not that of an IPv4 multicast group (::ffff:224.0.0.0 and following)")
        if group not in qp.groups and (len(qp.groups) >= GROUPS_OF_QP_MAX
                                       or group not in self.groups and len(self.groups) >= GROUPS_MAX):
            raise OutOfResources(f"a QP is in {GROUPS_OF_QP_MAX} multicast groups at most, a card in {GROUPS_MAX}")
        self.groups.setdefault(group, {})[qp] = None
        qp.groups[group] = None

    def detach(self, qp: DatagramEngine, group: int) -> None:
        """End :meth:`attach`; raise InvalidValue if the queue pair is not attached."""
        if group not in qp.groups:
            raise InvalidValue("the QP is not attached to this multicast group")
        del qp.groups[group], self.groups[group][qp]
        if not self.groups[group]:
            del self.groups[group]

    # ------------------------------------------------------------------------------------- frames

    def transmit(self, frame: bytes, ip: int, owner: DatagramEngine, sent: Callable[[], object]) -> None:
        """Send a frame, or deliver it if it is for this card; members of a group here get a copy. Then call ``sent()``.

        Raises
        ------
        QueueFull
        """
        if ip != self.card.ip:
            self.card.nic.send(frame, owner, sent)
        self._sent_ns = self.card.device.now_ns()
        if ip == self.card.ip:
            self._deliver(parse(frame))
            sent()
        elif is_group(ip) and ip in self.groups:
            self._deliver(parse_group(frame))

    def on_frame(self, frame: bytes, entry: SimpleNamespace) -> None:
        """Take a frame that the card received; one that names this card as its source is forged."""
        packet = parse(frame) if entry.host else None
        if packet is None and not entry.host and not entry.roce and self.groups:
            packet = parse_group(frame)
        if packet is not None and packet.src_ip != self.card.ip and packet.dest_qp >= self._first:
            self._deliver(packet)

    def _deliver(self, packet: Packet | None) -> None:
        if packet is None:
            return
        if is_group(packet.dest_ip):
            members = list(self.groups.get(packet.dest_ip, ()))
        else:
            members = [qp] if (qp := self.qps.get(packet.dest_qp)) is not None else []
        if not members:
            self.card.counts["datagrams_without_qp"] += 1
        for qp in members:
            qp.contain(qp.receive, packet)

    # ------------------------------------------------------------------------------------- engine

    @property
    def deadline(self) -> int | None:
        """Time of the next call of :meth:`progress`: at once if a queue pair may send more, else None."""
        return 0 if self._ready and self.active else None

    @property
    def outstanding(self) -> bool:
        """True if a send request is incomplete, or its packet is in the card or was sent at this time."""
        tx = self.card.nic.tx
        return bool(self.active) or self._sent_ns >= 0 and (
            tx.prod != tx.cons or self._sent_ns == self.card.device.now_ns())

    def progress(self, now: int) -> bool:
        """Send packets of each queue pair in turn; return true if there were any."""
        total = 0
        for qp in list(self.active):
            del self.active[qp]
            if self.card.nic.queue and len(self.card.nic.queue) >= self.card.nic.tx.depth:
                self.active[qp] = None
                continue
            total += qp.contain(qp.progress, now, self._burst)
            if qp.sendable:
                self.active[qp] = None       # after the others
        self._ready = total > 0
        return total > 0

    def forget(self) -> None:
        """Bring all queue pairs to ERR after a reset of the card."""
        self.active.clear()
        for qp in list(self.qps.values()):
            qp.contain(qp.fail, WCStatus.WR_FLUSH_ERR)
