"""An experiment: path, load, scheme, in the units people use. Everything a run depends on is here."""

from dataclasses import dataclass, replace

from weft.hdl.contract import abi

from ..settings import check

WIRE_BYTES = 82   # around a payload: BTH, ICRC, UDP, IP, Ethernet with FCS, preamble and gap
SCHEMES = ("go-back-n", "irn-128", "irn-512", "irn-bdp", "melo", "dcp", "hole-fifo", "adamap-raw", "adamap",
           "adamap-lanes", "timer-only", "oracle")
_RANGES = (("rate_gbps", 1, 800), ("rtt_ms", 0.01, 400), ("qps", 1, 16384), ("message_kib", 1, 1 << 21),
           ("transfer_mib", 0, 1 << 20), ("warmup_rtts", 0, 1000), ("measured_rtts", 0.1, 100_000), ("loss", 0, 0.5),
           ("drift_loss", 0, 0.5), ("drift_ms", 0, 1e6), ("burst", 1, 1e6), ("burst_loss", 0, 0.5),
           ("outage_ms", 0, 1000), ("outage_at_rtts", 0, 1e6), ("outage_every_ms", 0, 1e6), ("comb", 0, 1e9),
           ("back_loss", 0, 0.9), ("header_loss", 0, 1), ("swap", 0, 1), ("swap_us", 0, 10_000), ("skew_us", 0, 10_000),
           ("switch_at_rtts", 0, 1e6), ("switch_us", 0, 10_000), ("depth", 0, 64), ("watermark", 0, 64),
           ("window_bits", 64, 512), ("reorder", 1, 512), ("builder_slots", 1, 1 << 20), ("cache_entries", 1, 1 << 20),
           ("fetch_blocks", 1, 16), ("match_queue", 1, 1 << 16), ("slack", 1, 1 << 20),
           ("node_age_us", 0, abi.NODE_AGE_MAX_NS / 1e3), ("host_us", 0, 1e5), ("dma_us", 0, 1000),
           ("blocks", 1, 1 << 24), ("alpha", 1, 1 << 20), ("seed", 0, (1 << 63) - 1))


@dataclass(frozen=True)
class Experiment:
    """One sender and one receiver, some QPs that always have something to send, and a path between.

    Attributes
    ----------
    scheme : str
        One of :data:`SCHEMES`.
    rate_gbps, rtt_ms, qps, pmtu
        The line's rate, round trip time of a small packet, number of QPs, payload bytes of each packet.
    message_kib : int
        Length of a message; its last packet asks for an acknowledgement.
    transfer_mib : float
        What each QP has to send; 0: without end, and goodput is measured for ``measured_rtts`` after ``warmup_rtts``.
    loss, drift_loss, drift_ms
        Chance of each packet to be lost; it moves to ``drift_loss`` and back after times of this mean.
    burst, burst_loss
        Gilbert-Elliott: mean length of a burst in packets, and the share of packets it loses.
    outage_ms, outage_at_rtts, outage_every_ms
        Length of an outage, when it begins, when it comes again (0: never).
    comb : int
        Every so many packets one is lost; 0: none.
    back_loss : float
        Chance of each message to the sender to be lost.
    header_loss : float or None
        Of ``dcp``: share of lost packets whose header is lost, too; None: like ``loss``.
    swap, swap_us
        Chance of a packet to be held back, and for how long at most.
    paths, skew_us
        Number of paths that originals are sprayed over, by PSN; how much longer the last one takes than the first.
    switch_at_rtts, switch_us
        When everything begins to take so much less time.
    depth, watermark, fetch_blocks, cache_entries, match_queue, dma_us
        Adamap's head cache: nodes kept of a list (n), when to fetch more, nodes of a read, places in all, headers that
        may wait, how long a read of host memory takes.
    window_bits, reorder, slack, builder_slots, node_age_us
        Adamap's window and builder, as the registers of those names.
    host_us : float
        From a sealed node to its link and loss report.
    blocks, alpha
        Blocks of the knitting buffer, and the share of the free ones that a QP may hold.
    marker : bool
        The sender probes as soon as it has nothing more to send, not only after a silence. (The driver does not, yet.)
    seed : int
        Of every random choice; the k-th packet on the line meets the same loss under every scheme.
    """

    scheme: str = "adamap"
    rate_gbps: float = 100.0
    rtt_ms: float = 30.0
    qps: int = 1
    pmtu: int = 1024
    message_kib: int = 1024
    transfer_mib: float = 0.0
    warmup_rtts: float = 10.0
    measured_rtts: float = 20.0
    loss: float = 0.0
    drift_loss: float = 0.0
    drift_ms: float = 0.0
    burst: float = 1.0
    burst_loss: float = 0.0
    outage_ms: float = 0.0
    outage_at_rtts: float = 5.0
    outage_every_ms: float = 0.0
    comb: int = 0
    back_loss: float = 0.0
    header_loss: float | None = None
    swap: float = 0.0
    swap_us: float = 50.0
    paths: int = 1
    skew_us: float = 0.0
    switch_at_rtts: float = 5.0
    switch_us: float = 0.0
    depth: int = 4
    watermark: int = 4
    fetch_blocks: int = 4
    cache_entries: int = 256
    match_queue: int = 32
    dma_us: float = 1.0
    window_bits: int = 128
    reorder: int = 1
    slack: int = 1
    builder_slots: int = 64
    node_age_us: float = 2.0
    host_us: float = 2.0
    blocks: int = 32768
    alpha: int = 8
    marker: bool = False
    seed: int = 1

    def __post_init__(self):
        """Raise ValueError with a sentence if something is impossible."""
        if self.scheme not in SCHEMES:
            raise ValueError(f"scheme is {self.scheme!r}; choose one of {', '.join(SCHEMES)}")
        check(self, _RANGES)
        if self.paths not in (1, 2, 4, 8):
            raise ValueError(f"paths is {self.paths!r}; choose 1, 2, 4 or 8")
        if self.window_bits & (self.window_bits - 1):
            raise ValueError(f"window_bits is {self.window_bits}; choose a power of two")
        if self.reorder > self.window_bits:
            raise ValueError(f"reorder is {self.reorder}, more than the {self.window_bits} bits of the window")
        if self.blocks < self.qps:
            raise ValueError(f"blocks is {self.blocks}; {self.qps} QPs are owed one each")

    def with_(self, **changes):
        """A copy with some fields changed, checked again."""
        return replace(self, **changes)

    @property
    def slot_ns(self):
        """Time of a packet on the line."""
        return (self.pmtu + WIRE_BYTES) * 8 / self.rate_gbps

    def slots(self, *, ms=0.0, us=0.0):
        """A time in slots, rounded."""
        return round((ms * 1e6 + us * 1e3) / self.slot_ns)

    @property
    def bdp(self):
        """Packets of a round trip."""
        return self.slots(ms=self.rtt_ms)

    @property
    def packets(self):
        """Packets of the transfer of a QP, or 0 for one without end."""
        return -(-round(self.transfer_mib * (1 << 20)) // self.pmtu)

    @property
    def message_packets(self):
        return max(1, self.message_kib * 1024 // self.pmtu)
