"""Build-time parameters of the card and their presets. Standard library only."""

from dataclasses import dataclass, replace
from typing import Any

from .abi import INLINE_MAX, Ring

NODE_ENCODINGS = ("LIST", "RUNS", "BITMAP")
REQUEST_LINES_MAX = 4     # largest number of descriptors or nodes that one read fetches
COMMAND_PREFETCH = 16     # largest number of commands fetched ahead: they are executed one after the other
NODE_READS_MAX = 16       # of nodes, in flight or kept beside the head cache
# examined entries, in addition to 4 per cache entry, before a node that is being matched is evicted
EVICT_LIMIT = 128
NS_PER_CYCLE = 4          # of ``time_ns``, which the card counts
# largest number of Meta Reports in one write: 512 bytes, the payload that hosts commonly allow
REPORTS_TOGETHER = 8
REPORT_PACE = 32          # cycles between such writes that are not full: at 64 million reports a second all are
STATUS_PACE = 64          # cycles between writes of the status block
PACE_SLOT_LOG2 = 6        # log2 of the nanoseconds of a slot of the pacer's timing wheel
PACE_BURST_NS = 4096      # of lateness for which a paced QP makes up
# Early drop of the receive subsystem: above this number of waiting packets or eighths of the payload buffer, original
# data packets are dropped, until fewer than the second number wait. The space above is for retransmissions,
# probes and control frames; the hysteresis makes losses come in runs, of which a node holds many.
SHED_FROM, SHED_UNTIL = 40, 12
SHED_FROM_EIGHTHS, SHED_UNTIL_EIGHTHS = 5, 3
# Priority-based flow control: from the first number on the peer must pause, until fewer wait. The rest is headroom.
PAUSE_FROM, PAUSE_UNTIL = 12, 6
PAUSE_FROM_EIGHTHS, PAUSE_UNTIL_EIGHTHS = 2, 1
# Descriptors and reads in flight for 77 million messages of 64 bytes a second, when a read takes 1 µs.
DEEP: dict[str, Any] = {"ring_prefetch": 128, "bulk_tags": 128, "line_tags": 64}


def exact_log2(value: int) -> int:
    """Return the log2 of a power of two.

    Raises
    ------
    ValueError
        If ``value`` is not a positive power of two.
    """
    if value < 1 or value & (value - 1):
        raise ValueError(f"{value} is not a power of two")
    return value.bit_length() - 1


@dataclass(frozen=True)
class CardParams:
    """Sizes fixed when the card is elaborated.

    Attributes
    ----------
    qps, mrs, ptes : int
        Entries of the QP, MR and page tables, powers of two.
    window_bits
        Width of the per-QP bitmap window, 64 to 512, a power of two.
    builder_slots
        QPs that can have an open Adamap node at the same time.
    cache_entries
        Adamap nodes held by the shared head cache.
    prefetch_depth_max
        Largest number of nodes the cache may hold for one QP; the run-time depth is a register.
    node_encodings
        Encodings the node builder may choose from (names of :class:`abi.Encoding`); the other blocks support all.
    match_queue
        Retransmission headers that may wait for a node fetch.
    unmatched_lists
        Lists that may be without an entry of the match queue at the same time and still retire nodes passed over.
    knit_extents
        Extents of the knitting buffer the card can check pointers against.
    block_bits
        Bits of the number of a knitting block: the card keeps numbers instead of addresses. An extent holds less than
        ``2 ** extent_blocks_log2 - 1`` blocks.
    msix_vectors
        Entries of the MSI-X table.
    bulk_tags, bulk_slot_bytes : int
        Payload reads in flight and the bytes reserved for each (the largest read request used). A packet of 1 KiB at
        an odd address takes two: with 1 µs of read latency line rate needs about 40.
    line_tags
        Descriptor, node and page-table reads in flight.
    silence_log2
        After 2^n cycles without a request to the host and without a response, because the card may not be bus master
        or could not be for a while, no outstanding request will be completed. Longer than the completion timeout of the
        hard block, up to 64 ms.
    pause_limit_log2
        See :class:`~weft.hdl.mac.pause.PauseTimer`.
    rx_buffer_beats, tx_buffer_beats : int
        Beats of the store-and-forward packet buffers at the MAC.
    ring_prefetch
        Descriptors a ring reader may hold or have in flight.
    inline_bytes
        Largest inline payload of a descriptor in bytes: 0 or ``abi.INLINE_MAX``.
    pace_descriptors
        Descriptors that the pacer holds, a power of two up to 32,768, or 0: no pacer.
    straddle
        Up to two requests begin in a beat of RQ, and up to four completions in one of RC: the hard block must be
        configured accordingly. Without it a host that splits completions at 64 bytes limits reads to half the line's
        rate.
    mac_clock
        The MAC's streams have a separate clock, unrelated except that it is fast enough for the line; the
        transmit buffer is one crossing, a FIFO before the receive path the other. Without it the card has one
        clock.
    """

    name: str
    qps: int
    mrs: int
    ptes: int
    window_bits: int = 128
    builder_slots: int = 8
    cache_entries: int = 16
    prefetch_depth_max: int = 16
    node_encodings: tuple[str, ...] = NODE_ENCODINGS
    match_queue: int = 32
    unmatched_lists: int = 8
    knit_extents: int = 8
    block_bits: int = 22
    msix_vectors: int = 8
    bulk_tags: int = 64
    bulk_slot_bytes: int = 1024
    line_tags: int = 32
    silence_log2: int = 24
    pause_limit_log2: int = 22
    rx_buffer_beats: int = 512
    tx_buffer_beats: int = 256
    ring_prefetch: int = 16
    inline_bytes: int = INLINE_MAX
    pace_descriptors: int = 0
    straddle: bool = False
    mac_clock: bool = False

    def __post_init__(self) -> None:
        for field in ("qps", "mrs", "ptes", "window_bits", "cache_entries", "bulk_slot_bytes",
                      "bulk_tags", "line_tags", "rx_buffer_beats", "tx_buffer_beats", "ring_prefetch",
                      "match_queue", "builder_slots", "prefetch_depth_max", "knit_extents"):
            exact_log2(getattr(self, field))
        if not self.node_encodings or set(self.node_encodings) - set(NODE_ENCODINGS):
            raise ValueError(f"node_encodings is {self.node_encodings}; choose from {', '.join(NODE_ENCODINGS)}")
        if not 64 <= self.window_bits <= 512:
            raise ValueError(f"window_bits is {self.window_bits}; choose 64 to 512")
        if self.unmatched_lists < 1:
            raise ValueError(f"unmatched_lists is {self.unmatched_lists}; choose 1 or more")
        if self.extent_blocks_log2 < 8:
            raise ValueError(f"block_bits is {self.block_bits}; {self.knit_extents} extents need 8 bits more")
        if self.inline_bytes not in (0, INLINE_MAX):
            raise ValueError(f"inline_bytes is {self.inline_bytes}; choose 0 or {INLINE_MAX}")
        if self.pace_descriptors and not 4 <= self.pace_descriptors <= 1 << 15:
            raise ValueError(f"pace_descriptors is {self.pace_descriptors}; choose 0, or 4 to 32768")
        exact_log2(self.pace_descriptors or 1)
        if self.bulk_tags + self.line_tags > 256:
            raise ValueError("bulk_tags + line_tags exceed the 256 tags of an 8-bit tag field")

    @property
    def qpn_width(self) -> int:
        return exact_log2(self.qps)

    @property
    def extent_index_bits(self) -> int:
        return (self.knit_extents - 1).bit_length()

    @property
    def extent_blocks_log2(self) -> int:
        return self.block_bits - self.extent_index_bits

    def prefetch(self, ring: Ring) -> int:
        """Return the number of descriptors of ``ring`` that its reader may hold or have in flight."""
        return min(self.ring_prefetch, COMMAND_PREFETCH) if ring is Ring.COMMAND else self.ring_prefetch

    @property
    def mr_width(self) -> int:
        return exact_log2(self.mrs)

    @property
    def pte_width(self) -> int:
        return exact_log2(self.ptes)

    def with_(self, **changes: Any) -> "CardParams":
        """Return a copy with some fields changed, checked again."""
        return replace(self, **changes)


PRESETS = {
    "test": CardParams("test", qps=16, mrs=32, ptes=4096, silence_log2=12, pause_limit_log2=12,
                       pace_descriptors=16),
    "basic": CardParams("basic", qps=1024, mrs=1024, ptes=16384, builder_slots=32, cache_entries=64,
                        pace_descriptors=1024, **DEEP),
    "full": CardParams("full", qps=16384, mrs=16384, ptes=131072, builder_slots=64, cache_entries=64, knit_extents=64,
                       block_bits=24, unmatched_lists=32, msix_vectors=32, pace_descriptors=1024, **DEEP),
}


def preset(name: str) -> CardParams:
    """Return the preset called ``name``.

    Raises
    ------
    ValueError
        With the known names, if there is none.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise ValueError(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}") from None
