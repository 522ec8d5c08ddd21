"""Socket of a function: one client at a time, without blocking."""

import array
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from .closer import Closer
from .messages import FILES_OF_KERNEL, Framer, Violation
from .server import Server
from .simulated_function import SimulatedFunction

MESSAGES_PER_TURN = 16


class Endpoint:
    """Listening socket of a function, and the connection of its client. The next client is served when that has left.

    While a reply does not fit into the socket, no request is read: a client cannot make the server keep more than one.
    While many descriptors of earlier messages cannot be closed, no client is served.

    Parameters
    ----------
    path : path
        Of the socket, which replaces one that is there.
    function : SimulatedFunction
    report : callable(sentence)
    """

    def __init__(self, path: Path | str, function: SimulatedFunction,
                 report: Callable[[str], object] = lambda sentence: None) -> None:
        self.path, self.function, self.report = str(path), function, report
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._client: socket.socket | None = None
        self._closer = Closer()
        self._renew()

    def _renew(self) -> None:
        self._server, self._unsent = Server(self.function, self._closer.close), b""
        self._framer = Framer(self._closer.close)

    @property
    def connected(self) -> bool:
        return self._client is not None

    @property
    def reads(self) -> list[socket.socket]:
        """Sockets to wait for, until one is readable."""
        if self._client is None:
            return [] if self._closer.full else [self._listener]
        return [] if self._unsent else [self._client]

    @property
    def writes(self) -> list[socket.socket]:
        """Sockets to wait for, until one is writable."""
        return [self._client] if self._client is not None and self._unsent else []

    def turn(self) -> bool:
        """Accept a client, or serve some of its messages; return false if there was nothing to do."""
        if self._client is None:
            return self._accept()
        try:
            for served in range(MESSAGES_PER_TURN):
                if not self._serve(self._client):
                    return served > 0
        except EOFError:
            self._end("has left")
        except (Violation, OSError) as error:
            self._end(f"is disconnected: {error}")
        return True

    def _accept(self) -> bool:
        if self._closer.full:
            return False
        try:
            self._client, _ = self._listener.accept()
        except OSError:         # no client waits, it has left already, or this process has no descriptor left for it
            return False
        self._client.setblocking(False)
        self._renew()
        self.report(f"{self.path}: a machine is connected")
        return True

    def _serve(self, client: socket.socket) -> bool:
        """Send what is left of a reply, or receive part of a message; return false if that would block."""
        try:
            if self._unsent:
                self._unsent = self._unsent[client.send(self._unsent):]
                return True
            data, ancillary, flags, _ = client.recvmsg(
                self._framer.wanted, socket.CMSG_SPACE(4 * FILES_OF_KERNEL), socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        files = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(content[:len(content) // files.itemsize * files.itemsize])
        if flags & socket.MSG_CTRUNC:
            self._closer.close(list(files))
            raise Violation("descriptors are missing")
        if not data:
            raise EOFError
        if self._closer.full:
            self._closer.close(list(files))
            raise Violation("its descriptors cannot be closed")
        message = self._framer.feed(data, files)
        if message is not None and (reply := self._server.receive(message)) is not None:
            self._unsent = reply
        return True

    def _end(self, reason: str) -> None:
        assert self._client is not None
        self._client.close()
        self._client, self._unsent = None, b""
        self._framer.close()
        self.function.disconnected()
        self.report(f"{self.path}: the machine {reason}")

    def close(self) -> None:
        """End the connection, and remove the socket."""
        if self._client is not None:
            self._end("is disconnected: the server ends")
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
