"""Driver settings that fit the link between two cards."""

import math

from weft.driver.verbs.context import ContextConfig

# Packets that a reordered one may be behind: those of the link's bound at line rate, smallest frames.
REORDER_DISTANCE = 64
TIMEOUT_UNIT_US = 4.096    # of the verbs' timeout exponent
ROUND_TRIPS, HOSTS_US = 16, 10    # that a timeout lasts, and what the two hosts add to one
SERVICE_NS = 2_000         # how often a host that has finished looks whether its peer has
SILENCE_NS = 20_000_000    # beside a round trip: a receiver whose sender has ended waits this long for the rest


def context_config(rtt_us, *, reorders=False, **more):
    """:class:`ContextConfig` for a round trip time; ``reorders``: frames are late or come twice."""
    distance = REORDER_DISTANCE if reorders else 1
    return ContextConfig(**{"reorder_distance": distance, "retransmit_slack": distance,
                            "probe_timeout_ns": int(3 * rtt_us * 1000) + 20_000, "ring_log2": 8} | more)


def silence_ns(rtt_us):
    """Longest wait for a completion when the sender has ended."""
    return SILENCE_NS + int(1000 * rtt_us)


def timeout(rtt_us):
    """The QP attribute ``timeout`` for a round trip time."""
    return max(1, math.ceil(math.log2(ROUND_TRIPS * (rtt_us + HOSTS_US) / TIMEOUT_UNIT_US)))
