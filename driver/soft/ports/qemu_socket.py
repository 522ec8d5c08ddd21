"""A QEMU socket netdev as a port: Ethernet frames over a stream, each behind its length in four bytes."""

import socket
import struct

_LENGTH = struct.Struct(">I")
FRAME_MAX = 1 << 16


class QemuSocketPort:
    """The other end of ``-netdev socket``.

    Parameters
    ----------
    stream : socket.socket
        Connected to QEMU.
    depth : int
        Bytes that wait to be sent; while there are that many the port takes no frames.

    Attributes
    ----------
    closed : bool
        QEMU is gone, or sent what is no frame.
    """

    def __init__(self, stream, *, depth=1 << 20):
        stream.setblocking(False)
        self._stream, self.depth = stream, depth
        self._came, self._waiting = bytearray(), bytearray()
        self.closed = False

    @classmethod
    def connect(cls, host, port, **options):
        """To a guest that was started with ``-netdev socket,listen=HOST:PORT``."""
        return cls(socket.create_connection((host, port)), **options)

    def fileno(self):
        """For ``select``."""
        return self._stream.fileno()

    def receive(self):
        """The frames that came, oldest first."""
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
    def room(self):
        """Frames it takes now."""
        return 0 if self.closed or len(self._waiting) >= self.depth else 64

    def send(self, frame):
        """Send a frame, or keep it until there is place in the stream."""
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
        """Leave QEMU."""
        self.closed = True
        self._stream.close()
