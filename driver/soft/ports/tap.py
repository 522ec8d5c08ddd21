"""Port for a TAP device of Linux, which the host's network stack has at its other end."""

import fcntl
import os
import struct

DEVICE = "/dev/net/tun"
_SET_INTERFACE, _TAP, _NO_HEADER, _NAME_BYTES = 0x400454CA, 0x0002, 0x1000, 16     # linux/if_tun.h, linux/if.h
FRAME_MAX = 1 << 16


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
