"""Seeds of random tests: given, fresh, or drawn from the tree that is tested."""

import os
import random
import zlib


def drawn_seed(name=""):
    """A seed of 31 bits for one random test.

    ``WEFT_SEED`` repeats a run (of several, parted by commas, the first). Otherwise it is fresh; where ``WEFT_DRAW``
    is set, as by ``.ci/run``, it follows from that text and from the test: the same tree gets the same verdict, and
    the next one other seeds.

    Args:
        name: tells tests apart that draw when their module is imported; pytest's name of the running test is added.
    """
    given = os.environ.get("WEFT_SEED", "").partition(",")[0]
    if given:
        return int(given)
    draw = os.environ.get("WEFT_DRAW")
    if not draw:
        return random.SystemRandom().getrandbits(31)
    running = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    return zlib.crc32(f"{draw} {name} {running}".encode()) >> 1
