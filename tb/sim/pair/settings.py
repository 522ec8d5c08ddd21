"""Settings of the two hosts and of their contexts, for all kinds of pairs."""

import math

from weft.driver.terms.enums import AccessFlag
from weft.driver.verbs.context import ContextConfig

LETTERS = "abcdefghijklmnop"        # sides of benches with more than two cards
SIDES = ("a", "b")
DIRECTIONS = ("a_to_b", "b_to_a")
PEER = {"a": "b", "b": "a"}
MAC = {side: 0x02_00_00_00_00_0A + n for n, side in enumerate(LETTERS)}
IP = {side: 0x0A_00_00_01 + n for n, side in enumerate(LETTERS)}
# Positions by which a packet may be reordered: smallest frames at line rate within the link's bound on reordering.
REORDER_DISTANCE = 64
TIMEOUT_UNIT_US = 4.096    # unit of the verbs attribute ``timeout``
ROUND_TRIPS, HOSTS_US = 16, 10    # round trips per time-out, and latency of the two hosts per round trip
SERVICE_NS = 2_000         # interval at which a finished host polls until its peer has finished
SILENCE_NS = 20_000_000    # longest wait of a receiver after its sender has ended, besides a round trip
ALL_ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC


class BySide(list):
    """Item of each side, indexed by number or by a name that begins with the side's letter: ``"a"``, ``"a_to_b"``."""

    def __getitem__(self, key):
        return super().__getitem__(LETTERS.index(key[0]) if isinstance(key, str) else key)

    def __setitem__(self, key, thing):
        super().__setitem__(LETTERS.index(key[0]) if isinstance(key, str) else key, thing)

    def items(self):
        """Return pairs of the name of a side and its item."""
        return zip(LETTERS, self, strict=False)


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
