"""Driver settings of the main job."""

import math

from weft.driver.verbs.context import ContextConfig

# Packets that a reordered one may be behind: those of the link's bound at line rate, smallest frames.
REORDER_DISTANCE = 64
TIMEOUT_UNIT_US = 4.096    # of the verbs' timeout exponent
SERVICE_NS = 2_000         # how often a host that has finished looks whether its peer has
SILENCE_NS = 20_000_000    # a transfer without a completion for so long has failed


def context_config(job):
    """Driver settings that fit the job's link."""
    reordering = job.reorder > 0 or job.dup > 0
    return ContextConfig(
        reorder_distance=REORDER_DISTANCE if reordering else 1,
        retransmit_slack=REORDER_DISTANCE if reordering else 1,
        probe_timeout_ns=int(3 * job.rtt_us * 1000) + 20_000,
        ring_log2=8)


def wr_timeout(job):
    """The verbs' timeout exponent: 16 round trips."""
    return max(1, math.ceil(math.log2(16 * (job.rtt_us + 10) / TIMEOUT_UNIT_US)))
