"""What a served program is at, as far as its daemon can tell: whether simulated time may go on."""

import enum
import socket
import struct
import time
from pathlib import Path

from .client import CLOCK, POSTED, TOLD, WAITED, WAITING

SILENCE_NS = 1_000_000      # of doing nothing that the daemon sees: it spins on memory then, or waits for others
AHEAD_NS_MAX = 10**10       # no program's own clock is believed to be further ahead
_CREDENTIALS = struct.Struct("3i")


class State(enum.Enum):
    """Time stands still while a program runs."""

    RUNS = enum.auto()
    WAITS = enum.auto()     # in the library, for the daemon to tell something
    SPINS = enum.auto()     # it computes, or looks at memory again and again
    AWAY = enum.auto()      # it waits for something else: another program, a person


def process_of(client):
    """Number of the process that a client is, 0 if that is in another name space."""
    credentials = client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[0]


def _processor_ns(process):
    """Processor time that a process has used, or None if nobody says."""
    try:
        return time.clock_gettime_ns((~process << 3) | 2) if process else None
    except OSError:
        return None


def _sleeps(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "R"
    except OSError:
        return True


class Program:
    """A process and its contexts.

    Silence is counted in processor time if that is known: on a busy machine a program may not have had its turn.

    Parameters
    ----------
    process : int

    Attributes
    ----------
    clients : list of Client
    spins_since : int or None
        Wall time in ns since when it spins.
    spun_ns : int or None
        Simulated time at which that was noticed.
    due_ns : int or None
        When what it posted begins, if that is later.
    glimpsed : bool
        It was last woken to look around, and not for news.
    peeks : bool
        It posted when it had looked around: so it looks at memory between its polls.
    """

    def __init__(self, process):
        self.process, self.clients, self.due_ns = process, [], None
        self.glimpsed = self.peeks = False
        self._seen = None
        self.restart()

    def restart(self):
        """It has something to do now, or did something."""
        self._since, self._used, self._away = time.monotonic_ns(), _processor_ns(self.process), None
        self.spins_since = self.spun_ns = None

    @property
    def mark(self):
        """Changes whenever it does something in the library."""
        return [(client.bell[POSTED], client.bell[WAITED], client.bell[WAITING]) for client in self.clients]

    @property
    def waits(self):
        """A thread of it sleeps in the library and has been told nothing since."""
        return any(client.bell[WAITING] and client.bell[WAITED] == client.bell[TOLD] for client in self.clients)

    @property
    def clock_ns(self):
        """Its own simulated time."""
        return max((client.bell[CLOCK] | client.bell[CLOCK + 1] << 32 for client in self.clients), default=0)

    @property
    def has_work(self):
        return any(client.has_work for client in self.clients)

    @property
    def sends(self):
        """It posted send requests that were not taken."""
        return any(client.has_work and client.has_sends for client in self.clients)

    def state(self):
        """See :class:`State`."""
        if self.waits:
            return State.WAITS
        if (mark := self.mark) != self._seen:
            self._seen = mark
            self.restart()
            return State.RUNS
        if time.monotonic_ns() - self._since < SILENCE_NS:
            return State.RUNS
        if self.spins_since is not None:
            return State.SPINS
        return self._silent(_processor_ns(self.process))

    def _silent(self, used):
        if self._away is not None:
            if used == self._away:
                return State.AWAY
            self.restart()
            return State.RUNS
        if used is None or self._used is None or used - self._used >= SILENCE_NS:
            self.spins_since = time.monotonic_ns()
            return State.SPINS
        if not _sleeps(self.process):
            return State.RUNS
        self._away = used
        return State.AWAY
