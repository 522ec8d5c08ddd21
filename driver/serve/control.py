"""Socket of an operator beside the daemon's hosts: a datagram is a request, with a socket attached for the response.

So nothing has to be bound by the operator, whose namespaces may differ, and the daemon never waits.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

REQUEST_BYTES_MAX = 1 << 18


class CannotAsk(Exception):
    """No daemon takes the request; the message is a sentence."""


class Control:
    """Daemon's end, to which only its user may write.

    Parameters
    ----------
    path
        Place of the socket.
    answer : callable(request)
        Returns the response.
    """

    def __init__(self, path: Path, answer: Callable[[bytes], bytes]) -> None:
        self._path, self._answer = path, answer
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        mask = os.umask(0o177)
        try:
            self._socket.bind(os.fsencode(path))
        finally:
            os.umask(mask)

    def fileno(self) -> int:
        return self._socket.fileno()

    def serve(self) -> None:
        """Answer a request, if there is one."""
        try:
            request, files, flags, _ = socket.recv_fds(self._socket, REQUEST_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        response = b"" if flags & socket.MSG_TRUNC else self._answer(request)
        for file in files:
            if not stat.S_ISSOCK(os.fstat(file).st_mode):
                os.close(file)
                continue
            with contextlib.suppress(OSError), socket.socket(fileno=file) as there:
                there.setblocking(False)
                there.sendall(response)

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


def exchange(folder: Path, request: bytes, limit_s: float) -> bytes:
    """Send a request to the only daemon with a socket ``*.link`` in a folder; return its response.

    Raises
    ------
    CannotAsk
        With a sentence.
    """
    with contextlib.ExitStack() as ends:
        found = []
        for path in sorted(folder.glob("*.link")):
            there = ends.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            with contextlib.suppress(FileNotFoundError, ConnectionError):      # left by a daemon that was killed
                there.connect(os.fsencode(path))
                found.append(there)
        if len(found) > 1:
            raise CannotAsk(f"several daemons serve below {folder}; give each its --folder")
        if not found:
            raise CannotAsk(f"no daemon serves below {folder}; start one with: weft serve --folder {folder}")
        ours, theirs = map(ends.enter_context, socket.socketpair())
        ours.settimeout(limit_s)
        try:
            socket.send_fds(found[0], [request], [theirs.fileno()])
            theirs.close()
            response = b"".join(iter(lambda: ours.recv(REQUEST_BYTES_MAX), b""))
        except (TimeoutError, ConnectionError):
            response = b""
    if not response:
        raise CannotAsk(f"the daemon below {folder} ended, or did not answer within {limit_s} s")
    return response
