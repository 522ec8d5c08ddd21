"""Random numbers: SplitMix64, with a separate stream for each purpose, so that purposes do not affect each other.

Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
"""

import math

import numpy as np

from ...machine_code import compiled

LOSS, BURST, DRIFT, SWAP, ACKS, HEADER = range(6)
STREAMS = 6
STATE = [("random", "u8", (STREAMS,))]

_STEP, _MIX1, _MIX2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 1.0 / (1 << 53)
FOREVER = 1 << 62


def streams(seed):
    """Return the initial state of all streams, (STREAMS,) of uint64."""
    return np.random.SeedSequence(seed).generate_state(STREAMS, np.uint64)


@compiled
def uniform(states, stream):
    """Return a number from 0 (inclusive) to 1 (exclusive)."""
    states[stream] += _STEP
    z = states[stream]
    z = (z ^ (z >> _S30)) * _MIX1
    z = (z ^ (z >> _S27)) * _MIX2
    z = z ^ (z >> _S31)
    return (z >> _S11) * _UNIT


@compiled
def geometric(states, stream, chance):
    """Return the trials up to and including the first success, at least 1; FOREVER if ``chance`` is 0."""
    if chance <= 0.0:
        return FOREVER
    if chance >= 1.0:
        return 1
    return 1 + int(math.log(1.0 - uniform(states, stream)) / math.log1p(-chance))
