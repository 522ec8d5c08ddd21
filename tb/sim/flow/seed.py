"""Seeds of random tests: given, random, or derived from the tested tree."""

import os
import random
import zlib


def drawn_seed(name=""):
    """Return a seed of 31 bits for one random test.

    ``WEFT_SEED`` repeats a run (the first one of a list separated by commas). Without it the seed is random, unless
    ``WEFT_DRAW`` is set, as ``.ci/run`` does: then the seed is a hash of that text and the test, so that the same
    tree gets the same verdict and the next tree gets other seeds. ``name`` distinguishes tests that draw when their
    module is imported; pytest's name of the running test is added.
    """
    given = os.environ.get("WEFT_SEED", "").partition(",")[0]
    if given:
        return int(given)
    draw = os.environ.get("WEFT_DRAW")
    if not draw:
        return random.SystemRandom().getrandbits(31)
    running = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    return zlib.crc32(f"{draw} {name} {running}".encode()) >> 1
