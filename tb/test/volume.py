"""How much of the random a test tries: what its cases need, or more of it."""

import os

LONG = "WEFT_LONG"


def volume(short, long):
    """``short``, or ``long`` with ``WEFT_LONG=1`` in the environment: the same cases, and more draws of them."""
    return long if os.environ.get(LONG) == "1" else short
