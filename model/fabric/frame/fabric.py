"""Fabric for real frames: a discrete-event object without input and output whose time is given.

It has the rules of the compiled engine (:mod:`weft.model.fabric.forwarding`), and the same description.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from weft.hdl.contract import wire

from ...impairments import CONTROL_KINDS, Frame, FrameKind, frame_kind
from ...settings import BadSettings
from ..description import Fabric
from ..forwarding import ADDRESS, admits, mark_chance, spread, tuple_hash
from .header import can_be_marked, can_be_trimmed, hash_of, is_control, is_group, marked, trimmed
from .port import DATA, FramePort, Packet

CARD_GBPS = 100.0
HOST_BYTES_MAX = 1 << 24        # waits at a link that is slower than its card; further frames are dropped
PATHS_MAX = 4096                # paths with a count for each; further ones have one together
BACKGROUND_NS = 100_000         # background traffic pauses when no host has sent for this time
OTHER_PATHS = ()


class FrameFabric:
    """Switches and links between cards.

    The schedules of links begin with the first frame. Background traffic runs only while hosts send: for
    :data:`BACKGROUND_NS` after each frame.

    Parameters
    ----------
    description
        Its flows have no effect.
    macs
        MAC addresses of the hosts, in the order of the description.
    seed
        Seed of losses, delays, marks and background traffic.
    hosts
        Names of the hosts in reports; without them, those of the description.

    Attributes
    ----------
    names
        Names of the nodes in reports, by number.
    ports : list of FramePort
        In the order of ``description.ports``.
    no_path, used_peak
        By number of a node: packets without a path to their destination, largest use of the buffer in bytes.
    paths
        Delivered packets by path, of numbers of nodes; :data:`OTHER_PATHS` for those beyond :data:`PATHS_MAX`.
    delivered_data
        Delivered packets with data, with retransmissions.
    destroyed
        Packets that did not arrive, by kind.

    Raises
    ------
    BadSettings
        If the number of hosts is another one, or a link of a host is faster than a card.
    """

    def __init__(self, description: Fabric, macs: Sequence[bytes], seed: int | str = 0,
                 hosts: Sequence[str] = ()) -> None:
        check_cards(description, len(macs))
        self.names = (*(hosts or description.hosts), *(switch.name for switch in description.switches))
        self.description = description
        self._host = {mac: number for number, mac in enumerate(macs)}
        number = {name: n for n, name in enumerate(description.nodes)}
        self._hosts, self._first = range(len(macs)), len(macs)       # the first switch has the number after the hosts
        self.ports = [FramePort(number[a], number[b], description.links[n // 2])
                      for n, (a, b) in enumerate(description.ports)]
        self._of_host = {port.node: port for port in self.ports if port.node < len(macs)}
        self._routes = [[[self.ports[n] for n in ports] for ports in rows] for rows in description.routes()]
        self._used = [0] * len(number)
        self._pause_bytes = [(0, 0)] * self._first + [switch.pause_bytes for switch in description.switches]
        self.no_path, self.used_peak = [0] * len(number), [0] * len(number)
        self.paths: Counter[tuple[int, ...]] = Counter()
        self.destroyed: Counter[FrameKind] = Counter()
        self.in_flight = self.delivered_data = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number, self._now, self._began = 0, 0.0, False
        self._arrived: list[tuple[int, bytes]] = []
        self._active_until = 0.0
        self._asleep = set(range(len(description.background)))
        self.seed(seed)

    def seed(self, seed: int | str) -> None:
        """Begin all random sequences."""
        self._marks, self._gaps = random.Random(f"{seed}/marks"), random.Random(f"{seed}/background")
        for (a, b), port in zip(self.description.ports, self.ports, strict=True):
            port.seed(f"{seed}/{a} to {b}")

    # --------------------------------------------------------------------------------- interface

    @property
    def next_ns(self) -> float | None:
        """Time of the next event, or None."""
        return self._events[0][0] if self._events else None

    def send(self, host: int, frame: Frame, now: float) -> None:
        """Take a frame of a host whose transmission by its card, at line rate, ends at ``now``."""
        frame = bytes(frame)
        if not self._began:
            self._begin(now)
        self.in_flight += 1
        self._active_until = max(self._active_until, now + BACKGROUND_NS)
        packet = Packet(frame, wire.line_bytes(len(frame)), is_control(frame), frame_kind(frame), hash_of(frame),
                        self._destinations(host, frame[:6]))
        self._at(now, self._enter, self._of_host[host], packet)
        for source in sorted(self._asleep):
            self._at(now + self._gap(source), self._background, source)
        self._asleep.clear()

    def advance(self, now: float) -> list[tuple[int, bytes]]:
        """Run all events until ``now``; return the frames that arrive, with the number of their host."""
        events = self._events
        while events and events[0][0] <= now:
            self._now, _, function, arguments = heapq.heappop(events)
            function(*arguments)
        arrived, self._arrived = self._arrived, []
        return arrived

    # ------------------------------------------------------------------------------------ events

    def _at(self, at: float, function: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (at, self._number, function, arguments))
        self._number += 1

    def _begin(self, now: float) -> None:
        """Start the schedules of the links."""
        self._began = True
        for number, link in enumerate(self.description.links):
            for pair in link.down_us:
                for up, at in enumerate(pair):
                    for port in self.ports[2 * number:2 * number + 2]:
                        self._at(now + at * 1e3, self._change, port, up)

    def _destinations(self, host: int, mac: bytes) -> tuple[int, ...]:
        if mac in self._host:
            return (self._host[mac],)
        return tuple(other for other in self._hosts if other != host) if is_group(mac) else ()

    def _enter(self, port: FramePort, packet: Packet) -> None:
        """Pass a frame from its card to the link of the host, which may be slower than the card, or paused."""
        if not port.up:
            self._cut(port, packet)
            return
        begin = max(port.free_at, self._now - packet.size * 8 / CARD_GBPS)
        if (begin - self._now) * port.rate + port.bytes[DATA] > HOST_BYTES_MAX:
            port.counters.dropped[packet.queue] += 1
            self._destroy(packet)
            return
        if not packet.control and (port.paused or port.waiting[DATA]):
            port.push(packet)
            return
        port.counters.queued[packet.queue] += 1
        port.free_at = max(self._now, begin + packet.size / port.rate)
        self._at(port.free_at, self._sent, port, packet, port.epoch)

    def _sent(self, port: FramePort, packet: Packet, epoch: int) -> None:
        """End a transmission: the packet is on the line now, unless it is lost."""
        count = port.counters
        count.sent += 1
        count.sent_bytes += packet.size
        if epoch != port.epoch:
            self._cut(port, packet)
        elif port.lost(self._now):
            count.lost += 1
            self._destroy(packet)
        else:
            packet.trail += (port.node,)
            self._at(port.arrival(self._now), self._arrive, port, packet, epoch)
        port.busy = False
        self._transmit(port)

    def _transmit(self, port: FramePort) -> None:
        """Transmit the next packet that waits for a port, unless the port is busy or down."""
        if port.busy or not port.up or (packet := port.pop()) is None:
            return
        self._release(port, packet)
        port.busy = True
        port.free_at = max(self._now, port.free_at) + packet.size / port.rate
        self._at(port.free_at, self._sent, port, packet, port.epoch)

    def _release(self, port: FramePort, packet: Packet) -> None:
        """Free the space of a packet that leaves the queue of a port, in the buffer of its switch."""
        if port.node >= self._first:
            self._used[port.node] -= packet.size
            self._hold(port.node, packet, -packet.size)

    def _hold(self, node: int, packet: Packet, size: int) -> None:
        """Count data of a link in the buffer of a switch; signal when its pause begins or ends."""
        came = packet.came
        if came and not packet.control and came.hold(size, self._pause_bytes[node]):
            self._at(self._now + came.delay, self._obey, came)

    def _obey(self, port: FramePort) -> None:
        """Pause a port, or end its pause."""
        port.obey()
        self._transmit(port)

    def _arrive(self, port: FramePort, packet: Packet, epoch: int) -> None:
        """Pass a packet that has reached the end of a link to the node there."""
        node = port.peer
        if epoch != port.epoch:
            self._cut(port, packet)
        elif node >= self._first:
            packet.came = port
            self._forward(node, packet)
        else:
            path = (*packet.trail, node)
            self.paths[path if path in self.paths or len(self.paths) < PATHS_MAX else OTHER_PATHS] += 1
            self.in_flight -= 1
            if packet.frame is not None:
                self.delivered_data += packet.kind not in CONTROL_KINDS
                self._arrived.append((node, packet.frame))

    def _forward(self, node: int, packet: Packet) -> None:
        """Queue a packet at the ports of a switch towards its destinations: a copy for each further port."""
        ways: dict[FramePort, list[int]] = {}
        for to in packet.to:
            if port := self._way(node, to, packet.hash):
                ways.setdefault(port, []).append(to)
        self.in_flight += max(0, len(ways) - 1)
        if not ways:
            self.no_path[node] += 1
            self._destroy(packet)
        for port, hosts in ways.items():
            self._admit(node, port, packet if len(ways) == 1 else packet.copy(tuple(hosts)))

    def _way(self, node: int, to: int, value: int) -> FramePort | None:
        """Return the port towards a host: by hash, one of those on shortest paths whose links are up."""
        up = [port for port in self._routes[node][to] if port.up]
        return up[spread(value, node) % len(up)] if up else None

    def _admit(self, node: int, port: FramePort, packet: Packet) -> None:
        """Queue a packet at a port of a switch, or its headers, or drop it."""
        switch, length = self.description.switches[node - self._first], port.bytes[DATA]
        if not (self._fits(node, port, packet) or switch.trim and self._trim(port, packet)
                and self._fits(node, port, packet)):
            port.counters.dropped[packet.queue] += 1
            self._destroy(packet)
            return
        if not packet.control:
            chance = mark_chance(length, *switch.mark_bytes, switch.mark_chance)
            if chance >= 1 or chance > 0 and self._marks.random() < chance:
                self._mark(port, packet)
        self._used[node] += packet.size
        self.used_peak[node] = max(self.used_peak[node], self._used[node])
        port.push(packet)
        self._hold(node, packet, packet.size)
        self._transmit(port)

    def _fits(self, node: int, port: FramePort, packet: Packet) -> bool:
        switch = self.description.switches[node - self._first]
        free = (switch.buffer_kib << 10) - self._used[node]
        return admits(packet.size, packet.control or switch.pfc, port.bytes[DATA], free, switch.alpha)

    def _trim(self, port: FramePort, packet: Packet) -> bool:
        """Destroy the payload of a data packet; its headers become a control frame. Return false for other packets."""
        if packet.frame is None or packet.control or not can_be_trimmed(packet.frame):
            return False
        port.counters.trimmed += 1
        self.destroyed[packet.kind] += 1
        packet.frame, packet.control, packet.kind = trimmed(packet.frame), True, FrameKind.OTHER
        packet.size = wire.line_bytes(len(packet.frame))
        return True

    def _mark(self, port: FramePort, packet: Packet) -> None:
        if packet.frame is None or not can_be_marked(packet.frame):
            port.counters.unmarkable += packet.frame is not None
            return
        port.counters.marked += 1
        packet.frame = marked(packet.frame)

    def _change(self, port: FramePort, up: int) -> None:
        """Take a direction of a link down or up."""
        if up:
            port.up = True
            self._transmit(port)
            return
        for packet in port.take_down():
            self._release(port, packet)
            self._cut(port, packet)

    def _cut(self, port: FramePort, packet: Packet) -> None:
        port.counters.cut += 1
        self._destroy(packet)

    def _destroy(self, packet: Packet) -> None:
        self.in_flight -= 1
        if packet.frame is not None:
            self.destroyed[packet.kind] += 1

    def _gap(self, source: int) -> float:
        """Return the random time to the next packet of background traffic."""
        one = self.description.background[source]
        return self._gaps.expovariate(one.rate_gbps / (8 * one.packet))

    def _background(self, source: int) -> None:
        """Send a packet of background traffic, and schedule the next one."""
        if self._now > self._active_until:
            self._asleep.add(source)
            return
        one, hosts = self.description.background[source], self.description.hosts
        a, b = hosts.index(one.source), hosts.index(one.destination)
        self.in_flight += 1
        self._enter(self._of_host[a], Packet(None, one.packet, False, FrameKind.OTHER,
                                             tuple_hash(ADDRESS + a, ADDRESS + b, source), (b,)))
        self._at(self._now + self._gap(source), self._background, source)


def check_cards(description: Fabric, cards: int) -> None:
    """Check that a number of cards fits a fabric: one for each host, none slower than its link. Raises BadSettings."""
    hosts = description.hosts
    if len(hosts) != cards:
        raise BadSettings(f"the fabric has {len(hosts)} hosts ({', '.join(hosts)}), and {cards} are given")
    for link in description.links:
        if link.rate_gbps > CARD_GBPS and (host := next((end for end in (link.a, link.b) if end in hosts), None)):
            raise BadSettings(f"the link of host {host!r} has {link.rate_gbps:g} Gb/s; a card has {CARD_GBPS:g}")
