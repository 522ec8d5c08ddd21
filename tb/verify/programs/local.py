"""Daemon in the process of the test, with small functional cards."""

import contextlib
import tempfile

from weft.driver.serve.daemon import Daemon
from weft.driver.serve.simulated_time import SimulatedDaemon
from weft.tb.app.serve.direct import DirectBackend
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.app.serve.simulated import LoopBackend

REST_S = 0.0002


class PolledBackend(DirectBackend):
    """Direct back end in the process of its programs, which poll: its daemon must not sleep for long."""

    def rest_s(self):
        return REST_S


BACKENDS = {"functional": FunctionalBackend, "direct": PolledBackend}     # by the name in a command


@contextlib.contextmanager
def local_daemon(hosts=("a", "b"), *, preset="test", most=None, simulated=False, backend_type=None, **options):
    """Yield a :class:`Daemon` and the list of its messages; close the daemon at the end of the block.

    ``simulated`` selects simulated time, and ``backend_type`` another back end than functional cards.
    """
    with tempfile.TemporaryDirectory(prefix="weft-local-") as folder:
        of_functional, daemon_type = (LoopBackend, SimulatedDaemon) if simulated else (FunctionalBackend, Daemon)
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
