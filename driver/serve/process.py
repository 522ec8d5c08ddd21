"""Processes of programs: their numbers, and the end of one that blocks the daemon."""

import errno
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
        return number if _is_memory_of(number, file) and _users_of(number) == {user} else 0
    except OSError:
        return 0


def _is_memory_of(number, file):
    """Return true if ``file`` is ``mem`` of the process that has this number now. Raises OSError if there is none."""
    return os.path.samestat(os.stat(f"/proc/{number}/mem"), os.fstat(file))


def _users_of(number):
    """Return the real, effective, saved and file system user of a process."""
    with open(f"/proc/{number}/status", "rb") as status:
        return next(set(map(int, line.split()[1:])) for line in status if line.startswith(b"Uid:"))


def end(connection, files):
    """Kill the process that connected. Return false if it may not be killed, or has ended.

    Parameters
    ----------
    connection : socket
    files : iterable of int
        Descriptors of the memory of the program: Linux before 6.5 has the number of the process alone, which may be
        that of another one, unless one of the files is its memory.
    """
    try:
        process = _process_of(connection, files)
    except OSError:
        return False
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(process)


def _process_of(connection, files):
    """Return a descriptor of the process that connected. Raises OSError."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as problem:
        if problem.errno != errno.ENOPROTOOPT:
            raise
    number, _ = credentials_of(connection)
    process = os.pidfd_open(number)      # before the look at its memory: both are of one process
    try:
        if any(_is_memory_of(number, file) for file in files):
            return process
        raise ProcessLookupError
    except OSError:
        os.close(process)
        raise


class Accesses:
    """Accesses of one thread to memory of programs.

    The thread sets ``client`` and increments ``count`` before an access, and increments it again after the access.

    Attributes
    ----------
    count : int
        Accesses that have begun, plus those that have ended.
    client : Client or None
        Program of the last one.
    """

    def __init__(self):
        self.count, self.client = 0, None

    @property
    def current(self):
        """Number and client of the access that has begun and not ended, or None."""
        count = self.count
        return (count, self.client) if count & 1 else None


class CopyWatch:
    """Thread that ends programs whose memory blocks a copy, such as pages of a file system that the program serves.

    Parameters
    ----------
    copying : callable()
        Returns the copy that takes place and the client whose memory it accesses, or None. Copies are compared.
    report : callable(sentence)
        Function for messages to the operator: the daemon's own thread may be the one that is blocked.
    """

    def __init__(self, copying, report):
        self._copying, self._report, self._stopped = copying, report, threading.Event()
        self._looks = max(1, round(LIMIT_S / LOOK_S))
        self._thread = threading.Thread(target=self._run, name="weft-copy-watch", daemon=True)
        self._thread.start()

    def _run(self):
        last, seen = None, 0
        while not self._stopped.wait(LOOK_S):
            found = self._copying()
            seen = seen + 1 if found is not None and found == last else 0
            last = found
            if seen == self._looks:
                _copy, client = found
                self._report(f"a program on {client.name} {client.blocks(end)}")

    def close(self):
        self._stopped.set()
        self._thread.join()
