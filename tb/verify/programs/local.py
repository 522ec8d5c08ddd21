"""A daemon in the process of the test, over small functional cards."""

import contextlib
import tempfile

from weft.driver.serve.daemon import Daemon
from weft.driver.serve.simulated_time import SimulatedDaemon
from weft.tb.app.serve.functional import FunctionalWorld
from weft.tb.app.serve.simulated import LoopWorld


@contextlib.contextmanager
def local_daemon(hosts=("a", "b"), *, preset="test", most=None, simulated=False, world_type=None, **options):
    """A :class:`Daemon` and what it said, in simulated time if that is wanted, of another world than that of functional
    cards if there is a ``world_type``; it ends with the block."""
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
    """What programs left on the cards: numbers that are 0 when all is given back."""
    found = {}
    for context in world.contexts:
        card = context.card
        found[context.name] = (len(card.mrs), len(card.engine.qps) - len(card.engine.departed), len(card.contexts) - 1,
                               card.capabilities.max_pte - card.pte_ranges.free_total,
                               card.capabilities.max_mr - card.mr_indices.free)
    return found
