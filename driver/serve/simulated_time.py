"""Daemon in simulated time: the time stands still while any program has something to do.

The computation of a program takes no simulated time, except that each reading of a clock advances the program's clock,
which may be ahead of the session. Work that a program posts begins at the time of that clock. Time advances when every
program waits in the library or was inactive for a millisecond. While a program that computes is inactive, time advances
no faster than wall-clock time.

The order in which programs prepare depends on wall-clock time. So that their measurements depend on the seed alone,
preparations take no time of the session, and work that is posted afterwards finds idle cards and new random sequences.
"""

import contextlib
import functools
import mmap
import os
import struct
import time

from ..ibverbs.rings import CLOCK
from .activity import AHEAD_NS_MAX, Program, State
from .daemon import Daemon
from .process import credentials_of
from .shared_memory import fence

_NS = struct.Struct("<Q")
START_NS = 1_000                          # of the session: 0 means no time
GLIMPSE_NS, GLIMPSE_PART = 10_000, 16     # a waiting program is woken after this time, or this part of its waiting time
REST_S, REST_S_MAX = 0.001, 0.05          # the same in wall-clock time, while simulated time stands still
IDLE_S = 0.5                              # polling interval while no program waits: the process must handle signals
DOZE_S = 0.0005                           # longest interval between two checks for running programs
STRETCH_S = 0.002                         # longest wall-clock time between two checks of the programs


class ClockPage:
    """File ``NAME.clock`` next to a host's socket, in which programs read the simulated time."""

    def __init__(self, path):
        self.path = path
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "x+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def show(self, now_ns):
        _NS.pack_into(self._page, CLOCK.offset_of("now_ns") // 8, now_ns)

    def close(self):
        self._page.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


class SimulatedDaemon(Daemon):
    """Daemon in simulated time; see the module.

    Its ``backend`` is a :class:`~weft.driver.serve.simulated_backend.SimulatedBackend`.

    Attributes
    ----------
    programs : dict of int to Program
        By process number, or by a number below 0 if the process number is unknown.
    """

    def __init__(self, backend, folder, report=lambda sentence: None, **options):
        self.programs, self._skew_ns, self._rest_s = {}, START_NS, REST_S
        self._pages = [ClockPage(os.path.join(folder, f"{host}.clock")) for host in backend.hosts]
        self._progress_ns, self._glimpse_ns = 0, 0
        self._prepared = self._rests = False
        self._beginnings, self._held_ns = 0, None
        super().__init__(backend, folder, report, **options)
        backend.notices.before = self._show
        backend.introduce()
        self._show()

    @property
    def now_ns(self):
        """Simulated time of the session: that of the back end, plus the skipped intervals without events."""
        if self._held_ns is not None:
            return self._held_ns
        return round(self.backend.now_ns) + self._skew_ns

    def _show(self):
        now = self.now_ns
        for page in self._pages:
            page.show(now)

    @contextlib.contextmanager
    def _preparing(self):
        """Return a context manager that stops the session's time, unless a program waits for a posted request."""
        if self.backend.working:
            yield
            return
        self._held_ns = now = self.now_ns
        try:
            yield
        finally:
            self._held_ns = None
            self._skew_ns += now - self.now_ns

    # ------------------------------------------------------------------------------------- programs

    def drop(self, client, why=None):
        super().drop(client, why)
        for process, program in list(self.programs.items()):
            if client in program.clients:
                program.clients.remove(client)
                if not program.clients:
                    del self.programs[process]

    def _accept(self, listener, host):
        before = set(self.clients)
        super()._accept(listener, host)
        for file in set(self.clients) - before:
            client = self.clients[file]
            client.before = self._show
            process = credentials_of(client.socket)[0]
            program = self.programs.setdefault(process or -file, Program(process))
            program.clients.append(client)
            self.programs = dict(sorted(self.programs.items(), key=lambda item: item[1].clients[0].name))

    def _serve(self, client):
        with self._preparing():
            super()._serve(client)
            self._with(client, functools.partial(client.install, every=True))
        self._prepared, self._rests = True, False
        for program in self.programs.values():
            if client in program.clients:
                program.restart()

    # ---------------------------------------------------------------------------------------- turns

    def turn(self):
        """Do one round: calls and, if no program runs, posted work, drivers and time."""
        if self._calls(0) or self._called:      # the latter by calls that ended the sleep of the turn before
            self._rest_s, self._called = REST_S, False
            with self._preparing():
                self.backend.settle()
            self._notify_all()
            return
        states = {program: program.state() for program in self.programs.values()}
        if State.RUNS in states.values():
            self._doze(DOZE_S)
            return
        self._come_to_rest()
        later_ns = self._take()
        if self._notify_all():
            return
        spinning = [program for program, state in states.items() if state is State.SPINS]
        waiting = [program for program, state in states.items() if state is State.WAITS]
        if self.backend.due_ns is not None:
            self._rest_s = REST_S
            self._go_on(later_ns, spinning, waiting)
        elif later_ns is not None:
            self._skew_ns += later_ns - self.now_ns      # nothing happens until then
        else:
            self._stand_still(waiting)
        self._show()

    def _own_ns(self, program):
        """Return the time of a program's own clock, limited to a plausible value."""
        return min(program.clock_ns, self.now_ns + AHEAD_NS_MAX)

    def _take(self):
        """Take the work that is due, and return the time of the next that is posted, or None.

        After preparations, work of programs that only post receives is taken first: it may have been posted at any time
        before the sends of the others.
        """
        later = []
        for program in sorted(self.programs.values(), key=lambda program: self._prepared and program.sends):
            if not program.has_work:
                continue
            if program.due_ns is None:
                program.due_ns = self._own_ns(program)
            if program.due_ns > self.now_ns:
                later.append(program.due_ns)
                continue
            program.due_ns = None
            program.peeks |= program.glimpsed
            self._prepared &= not self.backend.working
            self._come_to_rest()
            self._rests = False
            for client in list(program.clients):
                self._with(client, client.take_work)
            self._receive_events()
            self.backend.settle()
            if self._prepared and self.backend.working:
                self._prepared = False
                self._beginnings += 1
        return min(later, default=None)

    def _come_to_rest(self):
        """Bring the back end to rest after preparations, before a program posts a request and waits for it."""
        if self._prepared and not self._rests and not self.backend.working:
            with self._preparing():
                self.backend.rest(self._beginnings)
            self._rests = True

    def _notify_all(self):
        """Report news to the programs; return true if there were any."""
        self._show()
        notified = False
        for program in list(self.programs.values()):
            if self._has_events(program):
                notified, program.glimpsed = True, False
                self._notify(program)
        if notified:
            self._receive_events()
        return notified

    @staticmethod
    def _has_events(program):
        return any(client.has_events or client.violated or client.context is not None and client.context.async_events
                   for client in program.clients)

    def _notify(self, program):
        """Wake all contexts of a program: a thread may wait in any of them."""
        for client in list(program.clients):
            client.has_events = True
            self._with(client, client.notify)
        program.restart()

    def _receive_events(self):
        self._progress_ns, self._glimpse_ns = self.now_ns, self.now_ns + GLIMPSE_NS

    # ----------------------------------------------------------------------------------------- time

    def _go_on(self, later_ns, spinning, waiting):
        """Advance time until a program has something to do, with periodic wake-ups of waiting programs."""
        self._rests = False
        limit_ns, peeking = self._limit(later_ns, spinning), [program for program in waiting if program.peeks]
        watched = {client.name for program in (*spinning, *peeking) for client in program.clients}
        if waiting:
            limit_ns = min(limit_ns, max(self._glimpse_ns, self.now_ns))
        stretch_end, hit = time.monotonic() + STRETCH_S, False
        while not hit and self.now_ns < limit_ns and self.backend.due_ns is not None:
            hit = self.backend.advance(limit_ns - self._skew_ns, watched)
            if any(map(self._has_events, self.programs.values())) or time.monotonic() > stretch_end:
                break
        self._show()
        if hit:
            for program in spinning:
                program.restart()
            self._glimpse(peeking)
        if waiting and self.now_ns >= self._glimpse_ns:
            self._glimpse(waiting)
            now = self.now_ns
            self._glimpse_ns = now + max(GLIMPSE_NS, (now - self._progress_ns) // GLIMPSE_PART)

    def _limit(self, later_ns, spinning):
        """Return the time up to which the back end may advance."""
        now = self.now_ns
        limits = [now + AHEAD_NS_MAX] if later_ns is None else [later_ns]
        for program in spinning:
            limits.append(max(self._own_ns(program), self._paced(program)))
        return round(min(limits))

    def _paced(self, program):
        """Return the simulated time that corresponds to wall-clock time since the program began to spin."""
        if program.spun_ns is None:
            program.spun_ns = self.now_ns
        return program.spun_ns + time.monotonic_ns() - program.spins_since

    def _glimpse(self, programs):
        for program in programs:
            program.glimpsed = True
            self._notify(program)

    def _stand_still(self, waiting):
        """Sleep while nothing is outstanding, and wake waiting programs periodically.

        They may wait for something that the daemon does not see.
        """
        if not waiting:
            self._doze(IDLE_S)
        elif not self._doze(self._rest_s):
            self._rest_s = min(2 * self._rest_s, REST_S_MAX)
            for program in waiting:
                self._notify(program)

    def _doze(self, timeout_s):
        """Sleep until a program does something, but at most ``timeout_s``; return true if one did."""
        clients = list(self.clients.values())
        before = [program.mark for program in self.programs.values()]
        for client in clients:
            client.fall_asleep()
        fence()
        handled = before != [program.mark for program in self.programs.values()] or self._calls(timeout_s)
        for client in clients:
            if client.socket.fileno() in self.clients:
                client.wake_up()
        if handled:
            self._rest_s = REST_S
        return handled

    def close(self):
        super().close()
        for page in self._pages:
            page.close()
