"""Driver settings that fit the link between two cards."""

import math

from weft.driver.terms.enums import AccessFlag
from weft.driver.verbs.context import ContextConfig

# Positions by which a packet may be reordered: smallest frames at line rate within the link's bound on reordering.
REORDER_DISTANCE = 64
TIMEOUT_UNIT_US = 4.096    # unit of the verbs attribute ``timeout``
ROUND_TRIPS, HOSTS_US = 16, 10    # round trips per time-out, and latency of the two hosts per round trip
SERVICE_NS = 2_000         # interval at which a finished host polls until its peer has finished
SILENCE_NS = 20_000_000    # longest wait of a receiver after its sender has ended, besides a round trip
ALL_ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC


def context_config(rtt_us, *, reorders=False, **more):
    """Return the :class:`ContextConfig` for a round trip time; ``reorders``: the link delays or duplicates frames."""
    distance = REORDER_DISTANCE if reorders else 1
    return ContextConfig(**{"reorder_distance": distance, "retransmit_slack": distance,
                            "probe_timeout_ns": int(3 * rtt_us * 1000) + 20_000, "ring_log2": 8} | more)


def silence_ns(rtt_us):
    """Return the longest wait for a completion after the sender has ended, in nanoseconds."""
    return SILENCE_NS + int(1000 * rtt_us)


def timeout(rtt_us):
    """Return the QP attribute ``timeout`` for a round trip time."""
    return max(1, math.ceil(math.log2(ROUND_TRIPS * (rtt_us + HOSTS_US) / TIMEOUT_UNIT_US)))
