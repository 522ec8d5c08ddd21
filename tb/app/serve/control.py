"""Socket of `weft link`: each datagram is a command (JSON) with a socket attached, which takes the response (JSON).

Only the user of the daemon may write to it: programs cannot, unless they are that user's.
"""

import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.model.settings import BadSetting, BadSettings
from weft.tb.sim.flow.failure import Failure

COMMAND_BYTES_MAX, LIMIT_S = 1 << 18, 60


class Control:
    """Daemon's end, which calls ``obey(command)`` for each command and sends what it returns."""

    def __init__(self, path: Path, obey: Callable[[object], dict[str, Any]]) -> None:
        self._path, self._obey = path, obey
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        mask = os.umask(0o177)
        try:
            self._socket.bind(os.fsencode(path))
        finally:
            os.umask(mask)

    def fileno(self) -> int:
        return self._socket.fileno()

    def answer(self) -> None:
        """Answer a command, if there is one."""
        try:
            data, files, flags, _ = socket.recv_fds(self._socket, COMMAND_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        answer = b"" if flags & socket.MSG_TRUNC else json.dumps(self._answer(data)).encode()
        for file in files:
            with contextlib.suppress(OSError), socket.fromfd(file, socket.AF_UNIX, socket.SOCK_STREAM) as there:
                there.setblocking(False)
                there.sendall(answer)
            os.close(file)

    def _answer(self, data: bytes) -> dict[str, Any]:
        try:
            return self._obey(json.loads(data))
        except BadSetting as problem:
            return {"setting": [problem.name, str(problem.value), problem.reason]}
        except BadSettings as problem:
            return {"problem": str(problem)}
        except (ValueError, RecursionError) as problem:
            return {"problem": f"the command is no JSON: {problem}"}

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


def ask(folder: Path, command: dict[str, Any]) -> dict[str, Any]:
    """Send a command to the daemon below ``folder``; return its response.

    Raises
    ------
    Failure
        No daemon, or more than one, answers there.
    BadSettings
        The daemon rejects the command.
    """
    with contextlib.ExitStack() as ends:
        found = [there for path in sorted(folder.glob("*.link")) if (there := _reached(path, ends)) is not None]
        if len(found) != 1:
            some = "several daemons serve below {}: give each its --folder" if found else (
                "no daemon serves below {0}; start one with: weft serve --folder {0}")
            raise Failure(some.format(folder))
        ours, theirs = map(ends.enter_context, socket.socketpair())
        socket.send_fds(found[0], [json.dumps(command, ensure_ascii=False).encode()], [theirs.fileno()])
        theirs.close()
        ours.settimeout(LIMIT_S)
        try:
            data = b"".join(iter(lambda: ours.recv(COMMAND_BYTES_MAX), b""))
            response: dict[str, Any] = json.loads(data)
        except (OSError, ValueError):
            raise Failure(f"the daemon below {folder} did not answer within {LIMIT_S} s, or ended") from None
    if "setting" in response:
        raise BadSetting(*response["setting"])
    if "problem" in response:
        raise BadSettings(response["problem"])
    return response


def _reached(path: Path, ends: contextlib.ExitStack) -> socket.socket | None:
    """Return a socket that is connected to a daemon, or None if it does not exist any more."""
    there = ends.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    try:
        there.connect(os.fsencode(path))
    except PermissionError:
        raise Failure(f"{path} belongs to another user, and only that user may change the link") from None
    except OSError:
        return None
    return there
