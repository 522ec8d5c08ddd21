"""Port for a QEMU socket netdev: Ethernet frames over a stream, each after its length in four bytes."""

import socket
import struct

_LENGTH = struct.Struct(">I")
FRAME_MAX = 1 << 16


class QemuSocketPort:
    """Peer of ``-netdev socket``.

    Parameters
    ----------
    stream : socket.socket
        Connected to QEMU.
    depth : int
        Limit of the bytes that wait to be sent; at the limit the port takes no frames.

    Attributes
    ----------
    closed : bool
        QEMU ended the connection, or sent an invalid length.
    """

    def __init__(self, stream, *, depth=1 << 20):
        stream.setblocking(False)
        self._stream, self.depth = stream, depth
        self._came, self._waiting = bytearray(), bytearray()
        self.closed = False

    @classmethod
    def connect(cls, host, port, **options):
        """Connect to a guest that was started with ``-netdev socket,listen=HOST:PORT``."""
        return cls(socket.create_connection((host, port)), **options)

    def fileno(self):
        """Return the descriptor, for ``select``."""
        return self._stream.fileno()

    def receive(self):
        """Return the received frames, oldest first."""
        try:
            while not self.closed and len(self._came) < FRAME_MAX:
                data = self._stream.recv(FRAME_MAX)
                self._came += data
                self.closed |= not data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        frames = []
        while len(self._came) >= _LENGTH.size:
            [length] = _LENGTH.unpack_from(self._came)
            if length > FRAME_MAX - _LENGTH.size:
                self.closed = True
                self._came.clear()
                break
            end = _LENGTH.size + length
            if len(self._came) < end:
                break
            frames.append(bytes(self._came[_LENGTH.size:end]))
            del self._came[:end]
        self._push()
        return frames

    @property
    def space(self):
        """Number of frames that the port takes now."""
        return 0 if self.closed or len(self._waiting) >= self.depth else 64

    def send(self, frame):
        """Send a frame, or keep it until the stream has space."""
        self._waiting += _LENGTH.pack(len(frame)) + frame
        self._push()

    def _push(self):
        try:
            while self._waiting and not self.closed:
                del self._waiting[:self._stream.send(self._waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def close(self):
        """Close the connection to QEMU."""
        self.closed = True
        self._stream.close()
