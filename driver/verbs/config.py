"""How a card is set up."""

from dataclasses import dataclass, field
from random import Random, SystemRandom

from ..knitting.buffer import EXTENT_BYTES, QUOTA_ALPHA
from ..protocol.segment import CHUNK_BYTES
from ..receive.hole_list import WAITING_RUNS_MAX


@dataclass
class ContextConfig:
    """Settings of a card and its driver.

    Attributes
    ----------
    ring_log2 : int or dict of Ring to int
        log2 of the ring depths.
    nic_slot_log2 : int
        log2 of the bytes of a raw-frame slot.
    reorder_distance, retransmit_slack, node_age_ns, prefetch_depth, prefetch_watermark : int
        See the registers of those names.
    probe_timeout_ns : int
        Silence before a tail probe: two round trips and a margin.
    extent_bytes, max_extents, knitting_alpha
        See :class:`~weft.driver.knitting.buffer.KnittingBuffer`.
    waiting_runs_max : int
        See :class:`~weft.driver.receive.hole_list.HoleList`.
    tx_poll_ns : int
        How often memory is looked at while descriptors are in the card, of which no interrupt tells when they are
        finished. Waits as short as this ask for no interrupt at all.
    random : random.Random
        Of first PSNs and key tags; the system's by default, which nobody can foresee.
    """

    ring_log2: object = 6
    nic_slot_log2: int = 11
    reorder_distance: int = 1
    retransmit_slack: int = 1
    node_age_ns: int = 2000
    prefetch_depth: int = 4
    prefetch_watermark: int = 4
    probe_timeout_ns: int = 50_000
    chunk_bytes: int = CHUNK_BYTES
    extent_bytes: int = EXTENT_BYTES
    max_extents: int = 8
    knitting_alpha: float = QUOTA_ALPHA
    waiting_runs_max: int = WAITING_RUNS_MAX
    tx_poll_ns: int = 2_000
    reset: bool = True
    random: Random = field(default_factory=SystemRandom)

    def log2(self, ring):
        return self.ring_log2 if isinstance(self.ring_log2, int) else self.ring_log2.get(ring, 6)
