"""Ethernet switch without loss and delay, and its link to another one by UDP."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

from weft.model.fabric.frame.header import is_group
from weft.model.impairments import Frame, addresses_of
from weft.tb.sim.flow.failure import Failure

HEADER_BYTES = 14
FRAMES_PER_LOOK, DATAGRAM_BYTES_MAX = 64, 1 << 16
BUFFER_BYTES = 1 << 22
AWAY_NS = 1_000_000      # approximate delay, one way: both daemons must be scheduled


class Switch:
    """Switch that passes a frame to the port of its destination, and one to a group address to all other ports.

    Attributes
    ----------
    ports
        Receivers of frames, by MAC address.
    uplink
        Receiver of frames for other addresses, and for groups.
    """

    def __init__(self) -> None:
        self.ports: dict[bytes, Callable[[Frame], object]] = {}
        self.uplink: Callable[[Frame], object] | None = None

    def carry(self, frame: Frame) -> None:
        """Pass a frame to its destination; drop it if there is none."""
        port = self.ports.get(addresses_of(frame)[:6])
        if port is not None:
            port(frame)
            return
        if self.uplink is not None:
            self.uplink(frame)
        self._deliver_to_group(frame)

    def deliver(self, frame: Frame) -> None:
        """Pass a frame to the local ports only."""
        port = self.ports.get(addresses_of(frame)[:6])
        if port is not None:
            port(frame)
        else:
            self._deliver_to_group(frame)

    def _deliver_to_group(self, frame: Frame) -> None:
        addresses = addresses_of(frame)
        if is_group(addresses[:6]):
            for mac, port in self.ports.items():
                if mac != addresses[6:]:
                    port(frame)


class UdpLink:
    """End of the link. A datagram that the other daemon cannot take, as in a burst, is lost.

    Parameters
    ----------
    family
        Address family, as in :mod:`socket`.
    peer
        Address of the other daemon. Datagrams of other senders are dropped.
    port
        Port of this daemon.

    Raises
    ------
    Failure
        If the port is in use or needs privileges.
    """

    def __init__(self, family: int, peer: tuple[Any, ...], port: int) -> None:
        self._socket, self._peer = socket.socket(family, socket.SOCK_DGRAM), peer
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self._socket.setblocking(False)
        try:
            self._socket.bind(("", port))
        except OSError as error:
            self._socket.close()
            raise Failure(f"UDP port {port} cannot be had: {error.strerror}") from None

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: Frame) -> None:
        """Send a frame to the other daemon."""
        try:
            self._socket.sendto(bytes(frame), self._peer)
        except (BlockingIOError, ConnectionError):      # the other daemon is not ready
            return

    def frames(self) -> Iterator[bytes]:
        """Yield received frames, a limited number per call."""
        for _ in range(FRAMES_PER_LOOK):
            try:
                frame, sender = self._socket.recvfrom(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            if sender[:2] == self._peer[:2] and len(frame) >= HEADER_BYTES:
                yield frame

    def close(self) -> None:
        self._socket.close()
