"""Daemon in the process of the test, with small functional cards."""

import contextlib
import tempfile

from weft.driver.serve.daemon import Daemon
from weft.driver.serve.simulated_time import SimulatedDaemon
from weft.tb.app.serve.direct import DirectBackend
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.app.serve.simulated import LoopBackend
from weft.tb.app.serve.wall_clock import STEP_NS

REST_S = 0.0002


class PolledBackend(DirectBackend):
    """Direct back end in the process of its programs, which poll: its daemon must not sleep for long."""

    def rest_s(self):
        return REST_S


class EagerBackend(FunctionalBackend):
    """Functional cards whose time advances to the next event at once, whatever the wall clock shows."""

    def progress(self):
        happened = False
        for context in self.contexts:
            happened |= self.work(context)
        due = min((due for due in (self.loop.due_ns, self.driver_due_ns) if due is not None), default=None)
        if due is not None:
            self.loop.run(max(due, self.loop.now_ns) + STEP_NS)
        return happened or due is not None

    def rest_s(self):
        return REST_S


class LocalDaemon(Daemon):
    """Daemon that waits for no further call: its programs are in its process, and make it only after the turn."""

    def _further_calls(self):
        while self._called:
            self._called = False
            self._calls(0)

    def answer(self):
        """Answer the calls that were made, without the round that follows them; without any, do a turn."""
        self._calls(0)
        if self._called:
            self._called = False
        else:
            self.turn()


class LocalSimulatedDaemon(SimulatedDaemon):
    """Daemon in simulated time: an answer takes simulated time, which passes in a turn."""

    def answer(self):
        self.turn()


BACKENDS = {"functional": FunctionalBackend, "direct": PolledBackend}     # by the name in a command
POLLED = {"functional": EagerBackend, "direct": PolledBackend}            # of programs in the process of the daemon


@contextlib.contextmanager
def local_daemon(hosts=("a", "b"), *, preset="test", most=None, simulated=False, backend_type=None, **options):
    """Yield a :class:`Daemon` and the list of its messages; close the daemon at the end of the block.

    ``simulated`` selects simulated time, and ``backend_type`` another back end than functional cards.
    """
    with tempfile.TemporaryDirectory(prefix="weft-local-") as folder:
        of_functional, daemon_type = FunctionalBackend, LocalDaemon
        if simulated:
            of_functional, daemon_type = LoopBackend, LocalSimulatedDaemon
        printed, backend = [], (backend_type or of_functional)(list(hosts), preset=preset, **options)
        daemon = daemon_type(backend, folder, report=printed.append, most=most)
        try:
            yield daemon, printed
        finally:
            daemon.close()
            backend.close()


def left_over(backend):
    """Return counts of resources that programs left on the cards: all 0 if everything was freed."""
    found = {}
    for context in backend.contexts:
        card = context.card
        found[context.name] = (len(card.mrs), len(card.engine.qps) - len(card.engine.time_wait), len(card.contexts) - 1,
                               card.capabilities.max_pte - card.pte_ranges.free_total,
                               card.capabilities.max_mr - card.mr_indices.free)
    return found
