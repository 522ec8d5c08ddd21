"""Straddle setting of a bench's blocks, passed to the simulator in the environment."""

import os

VARIABLE = "WEFT_STRADDLE"
STRADDLE = VARIABLE in os.environ       # in this simulator


def environment(straddle=True):
    """Return the environment variables of a simulator with or without straddle."""
    return {VARIABLE: "1"} if straddle else {}
