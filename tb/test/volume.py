"""Number of random cases of a test: the minimum, or more."""

import os

LONG = "WEFT_LONG"


def volume(short, long):
    """Return ``short``, or ``long`` with ``WEFT_LONG=1`` in the environment: the same cases, and more draws of them."""
    return long if os.environ.get(LONG) == "1" else short
