"""Daemon in the process of the test, with small functional cards."""

import contextlib
import tempfile

from weft.driver.serve.daemon import Daemon
from weft.driver.serve.simulated_time import SimulatedDaemon
from weft.tb.app.serve.functional import FunctionalWorld
from weft.tb.app.serve.simulated import LoopWorld


@contextlib.contextmanager
def local_daemon(hosts=("a", "b"), *, preset="test", most=None, simulated=False, world_type=None, **options):
    """Yield a :class:`Daemon` and the list of its messages; close the daemon at the end of the block.

    ``simulated`` selects simulated time, and ``world_type`` another back end than functional cards.
    """
    with tempfile.TemporaryDirectory(prefix="weft-local-") as folder:
        of_functional, daemon_type = (LoopWorld, SimulatedDaemon) if simulated else (FunctionalWorld, Daemon)
        said, world = [], (world_type or of_functional)(list(hosts), preset=preset, **options)
        daemon = daemon_type(world, folder, say=said.append, most=most)
        try:
            yield daemon, said
        finally:
            daemon.close()
            world.close()


def left_over(world):
    """Return counts of resources that programs left on the cards: all 0 if everything was freed."""
    found = {}
    for context in world.contexts:
        card = context.card
        found[context.name] = (len(card.mrs), len(card.engine.qps) - len(card.engine.departed), len(card.contexts) - 1,
                               card.capabilities.max_pte - card.pte_ranges.free_total,
                               card.capabilities.max_mr - card.mr_indices.free)
    return found
