"""The link to the hosts of another daemon, on this machine or on another one: a datagram for each frame."""

import socket

from weft.tb.app.serve.switch import HEADER_BYTES
from weft.tb.sim.flow.failure import Failure

FRAMES_PER_LOOK, DATAGRAM_BYTES_MAX = 64, 1 << 16
BUFFER_BYTES = 1 << 22
AWAY_NS = 1_000_000      # one way, about: two daemons have to get their turn


class UdpLink:
    """An end of the link. What the other daemon does not get, as in a burst, is lost.

    Parameters
    ----------
    family : int
        Of addresses, as :mod:`socket` has it.
    peer : tuple
        Such an address: where the other daemon listens. Nobody else is heard.
    port : int
        Where this one listens.

    Raises
    ------
    Failure
        If others have the port, or it is not for everybody.
    """

    def __init__(self, family, peer, port):
        self._socket, self._peer = socket.socket(family, socket.SOCK_DGRAM), peer
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self._socket.setblocking(False)
        try:
            self._socket.bind(("", port))
        except OSError as error:
            self._socket.close()
            raise Failure(f"UDP port {port} cannot be had: {error.strerror}") from None

    def fileno(self):
        return self._socket.fileno()

    def send(self, frame):
        """Hand a frame to the other daemon."""
        try:
            self._socket.sendto(bytes(frame), self._peer)
        except (BlockingIOError, ConnectionError):      # it is not there, or not yet
            return

    def frames(self):
        """Frames that came, not too many at once."""
        for _ in range(FRAMES_PER_LOOK):
            try:
                frame, sender = self._socket.recvfrom(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            if sender[:2] == self._peer[:2] and len(frame) >= HEADER_BYTES:
                yield frame

    def close(self):
        self._socket.close()
