"""A daemon in the process of the test, over small functional cards."""

import contextlib
import tempfile

from weft.driver.serve.daemon import Daemon
from weft.tb.serve.functional import FunctionalWorld


@contextlib.contextmanager
def local_daemon(hosts=("a", "b"), *, preset="test", most=None, **options):
    """A :class:`Daemon` and what it said; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="weft-local-") as folder:
        said, world = [], FunctionalWorld(list(hosts), preset=preset, **options)
        daemon = Daemon(world, folder, say=said.append, most=most)
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
        found[context.name] = (len(card.mrs), sum(1 for _ in card.engine.qps), len(card.contexts) - 1,
                               card.capabilities.max_pte - card.pte_ranges.free_total,
                               card.capabilities.max_mr - card.mr_indices.free)
    return found
