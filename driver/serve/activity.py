"""Activity of a served program, as far as the daemon can observe it: it decides when simulated time advances."""

import enum
import time
from pathlib import Path

from .client import CLOCK, NOTIFIED, POSTED, WAITED, WAITING

SILENCE_NS = 1_000_000      # inactivity after which the program polls memory or waits for others
AHEAD_NS_MAX = 10**10       # limit of a program's own clock ahead of the session; later values are not trusted


class State(enum.Enum):
    """Activity of a program. Time stands still while a program runs."""

    RUNS = enum.auto()
    WAITS = enum.auto()     # waits in the library for a report of the daemon
    SPINS = enum.auto()     # computes, or polls memory
    AWAY = enum.auto()      # waits for an event outside the daemon: another program, a person


def _processor_ns(process):
    """Return the processor time that a process has used, or None if it cannot be read."""
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
    """Process and its contexts.

    Inactivity is measured in processor time if that is known: on a busy machine a program may not have been scheduled.

    Parameters
    ----------
    process : int

    Attributes
    ----------
    clients : list of Client
    spins_since : int or None
        Wall time in ns since which it spins.
    spun_ns : int or None
        Simulated time at which the spinning was noticed.
    due_ns : int or None
        Start of its posted work, if that is later.
    glimpsed : bool
        Its last wake-up was a periodic one, without news.
    peeks : bool
        It posted after a wake-up without news: so it reads memory between its polls.
    """

    def __init__(self, process):
        self.process, self.clients, self.due_ns = process, [], None
        self.glimpsed = self.peeks = False
        self._seen = None
        self.restart()

    def restart(self):
        """Note activity, or new work, of the program."""
        self._since, self._used, self._away = time.monotonic_ns(), _processor_ns(self.process), None
        self.spins_since = self.spun_ns = None

    @property
    def mark(self):
        """Value that changes whenever the program does something in the library."""
        return [(client.bell[POSTED], client.bell[WAITED], client.bell[WAITING]) for client in self.clients]

    @property
    def waits(self):
        """True if a thread of the program sleeps in the library and no report was made since."""
        return any(client.bell[WAITING] and client.bell[WAITED] == client.bell[NOTIFIED] for client in self.clients)

    @property
    def clock_ns(self):
        """Simulated time of the program's own clock."""
        return max((client.bell[CLOCK] | client.bell[CLOCK + 1] << 32 for client in self.clients), default=0)

    @property
    def has_work(self):
        return any(client.has_work for client in self.clients)

    @property
    def sends(self):
        """True if the program posted send requests that the daemon has not taken."""
        return any(client.has_work and client.has_sends for client in self.clients)

    def state(self):
        """Return the :class:`State`."""
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
