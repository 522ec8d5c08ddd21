"""Ports of a software endpoint: sources and sinks of frames, and the transfer between a port and the endpoint."""

import collections
import fcntl
import os
import socket
import struct

_LENGTH = struct.Struct(">I")
FRAME_MAX = 1 << 16
DEVICE = "/dev/net/tun"
_SET_INTERFACE, _TAP, _NO_HEADER, _NAME_BYTES = 0x400454CA, 0x0002, 0x1000, 16     # linux/if_tun.h, linux/if.h


class Inbox:
    """Receive side of a port that gets frames one by one.

    Parameters
    ----------
    depth : int
        Capacity in frames; further ones are lost, and counted.

    Attributes
    ----------
    lost : int
    """

    def __init__(self, depth):
        self.depth, self.lost = depth, 0
        self._came = collections.deque()

    def arrive(self, frame):
        """Queue a received frame."""
        if len(self._came) >= self.depth:
            self.lost += 1
        else:
            self._came.append(frame)

    def receive(self):
        """Return and remove the received frames, oldest first."""
        frames, self._came = self._came, collections.deque()
        return frames


class MemoryPort(Inbox):
    """Port that hands frames to a function, and gets frames by :meth:`Inbox.arrive`.

    Parameters
    ----------
    carry : callable(frame)
        Function that takes sent frames.
    depth : int
        See :class:`Inbox`.
    space : int
        Number of frames that it takes in a round; may be changed at any time.
    """

    def __init__(self, carry, *, depth=1024, space=1024):
        super().__init__(depth)
        self._carry, self.space = carry, space

    def send(self, frame):
        """Hand a frame to the function."""
        self._carry(frame)


def for_host_qpns(_frame, entry):
    """Return true for packets to a QPN of software on the host: see :class:`~weft.driver.queue.host_qpns.HostQpns`."""
    return bool(entry.host)


class SimpleNicPort(Inbox):
    """Port for the raw frames of an open card.

    Parameters
    ----------
    context : Context
        Its :meth:`progress` delivers frames.
    wanted : callable(frame, entry)
        Returns true for raw frames, with their NIC_RX entries, that are for this port; others remain for the other
        handlers. :func:`for_host_qpns` is an example.
    depth : int
        See :class:`Inbox`.
    """

    def __init__(self, context, wanted, *, depth=1024):
        super().__init__(depth)
        self.context, self.wanted = context, wanted
        context.raw_frame_handlers.append(self._arrive)

    def _arrive(self, frame, entry):
        if self.wanted(frame, entry):
            self.arrive(bytes(frame))

    @property
    def space(self):
        """Number of frames that the NIC_TX ring takes now, 0 if frames are queued in software."""
        nic = self.context.engine.nic
        return 0 if nic.queue else nic.tx.space

    def send(self, frame):
        """Hand a frame to the card."""
        self.context.send_raw(frame)

    def close(self):
        """Stop taking frames."""
        self.context.raw_frame_handlers.remove(self._arrive)


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


class TapPort:
    """TAP interface, created if necessary and removed with the port. ``ip link set NAME up`` enables it.

    Parameters
    ----------
    name : str
        1 to 15 characters.

    Attributes
    ----------
    lost : int
        Frames that the interface did not take: it is down, or full.

    Raises
    ------
    ValueError
        If the name is invalid.
    PermissionError
        If this user may not create interfaces.
    OSError
        If this kernel has no TAP device, or another program uses the interface.
    """

    space = 64      # frames that it takes now; an interface that is full drops them, as any link does

    def __init__(self, name):
        if not 1 <= len(name.encode()) < _NAME_BYTES:
            raise ValueError(f"an interface called {name!r}; a name has 1 to {_NAME_BYTES - 1} bytes")
        self.name, self.lost = name, 0
        try:
            self._file = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK)
        except PermissionError:
            raise PermissionError(f"{DEVICE} may not be opened by this user; it takes root, or CAP_NET_ADMIN") from None
        except OSError as error:
            raise OSError(error.errno, f"{DEVICE} cannot be opened ({error.strerror}): is the module tun loaded?") \
                from None
        try:
            wanted = struct.pack(f"{_NAME_BYTES}sH22x", name.encode(), _TAP | _NO_HEADER)
            fcntl.ioctl(self._file, _SET_INTERFACE, wanted)
        except OSError as error:
            os.close(self._file)
            kind = PermissionError if isinstance(error, PermissionError) else OSError
            raise kind(error.errno, f"the interface {name} cannot be had: {error.strerror}") from None

    def fileno(self):
        """Return the descriptor, for ``select``."""
        return self._file

    def receive(self):
        """Return the received frames, oldest first."""
        frames = []
        try:
            while len(frames) < self.space:
                frames.append(os.read(self._file, FRAME_MAX))
        except BlockingIOError:
            pass
        return frames

    def send(self, frame):
        """Send a frame."""
        try:
            os.write(self._file, frame)
        except OSError:
            self.lost += 1

    def close(self):
        """Remove the interface."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Pump:
    """Connection of one endpoint and one port.

    Parameters
    ----------
    endpoint : object
        ``receive(frame, now)`` takes a frame; ``process(now)`` does everything that is due and returns the latest time
        of the next call, or None; ``take_frames(most)`` returns frames to send.
    port : object
        ``receive()`` returns the received frames; ``space`` is the number of frames that ``send(frame)`` can take now.
    """

    def __init__(self, endpoint, port):
        self.endpoint, self.port = endpoint, port

    def round(self, now):
        """Transfer all frames that can be transferred; return the latest time of the next call, or None."""
        for frame in self.port.receive():
            self.endpoint.receive(frame, now)
        deadline = self.endpoint.process(now)
        while self.port.space and (frames := self.endpoint.take_frames(self.port.space)):
            for frame in frames:
                self.port.send(frame)
            deadline = self.endpoint.process(now)
        return deadline
