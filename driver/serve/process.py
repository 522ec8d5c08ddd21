"""Processes of programs: their numbers, and the end of one that blocks the daemon."""

import os
import signal
import socket
import struct
import threading

_CREDENTIALS = struct.Struct("=iII")     # struct ucred
_SO_PEERPIDFD = 77          # since Linux 6.5
LOOK_S, LIMIT_S = 1, 5      # a copy that lasts longer than LIMIT_S ends its program


def credentials_of(connection):
    """Return the process number and the user of a program that connected; the former is 0 in another PID namespace."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(found)[:2]


def owner_of(file, connection):
    """Return the number of the process that connected, if ``file`` is its memory and it runs as the daemon's user.

    Otherwise return 0: the number must not be used for accesses to the memory.

    Parameters
    ----------
    file : int
        Descriptor of ``/proc/PID/mem``.
    connection : socket
    """
    number, user = credentials_of(connection)
    if not number or user != os.geteuid():
        return 0
    try:
        there, users = os.stat(f"/proc/{number}/mem"), _users_of(number)
    except OSError:
        return 0
    return number if os.path.samestat(there, os.fstat(file)) and users == {user} else 0


def _users_of(number):
    """Return the real, effective, saved and file system user of a process."""
    with open(f"/proc/{number}/status", "rb") as status:
        return next(set(map(int, line.split()[1:])) for line in status if line.startswith(b"Uid:"))


def end(connection):
    """Kill the process that connected. Return false if it may not be killed."""
    try:
        process = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        number, _ = credentials_of(connection)
        if not number:
            return False
        try:
            process = os.pidfd_open(number)
        except OSError:
            return False
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(process)


class CopyWatch:
    """Thread that ends programs whose memory blocks a copy, such as pages of a file system that the program serves.

    Parameters
    ----------
    copying : callable()
        Returns the copy that takes place and the client whose memory it accesses, or None. Copies are compared.
    """

    def __init__(self, copying):
        self._copying, self._looks, self._stopped = copying, max(1, round(LIMIT_S / LOOK_S)), threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-copy-watch", daemon=True)
        self._thread.start()

    def _run(self):
        last, seen = None, 0
        while not self._stopped.wait(LOOK_S):
            found = self._copying()
            seen = seen + 1 if found is not None and found == last else 0
            last = found
            if seen >= self._looks:
                seen = 0
                _copy, client = found
                client.blocks(end(client.socket))

    def close(self):
        self._stopped.set()
        self._thread.join()
