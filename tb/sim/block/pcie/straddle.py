"""Whether a bench's blocks have straddle: its simulator hears of it in the environment."""

import os

VARIABLE = "WEFT_STRADDLE"
STRADDLE = VARIABLE in os.environ       # in this simulator


def environment(straddle=True):
    """What the simulator is to be given for that."""
    return {VARIABLE: "1"} if straddle else {}
