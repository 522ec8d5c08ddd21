"""Parameters of an experiment: path, load, and scheme, in common units. A run depends on nothing else."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

from weft.hdl.contract import abi

from ..settings import PMTUS, BadSetting, Setting, check

WIRE_BYTES = 82   # around a payload: BTH, ICRC, UDP, IP, Ethernet with FCS, preamble and gap
SCHEMES = ("go-back-n", "irn-128", "irn-512", "irn-bdp", "melo", "dcp", "hole-fifo", "adamap-raw", "adamap",
           "adamap-lanes", "timer-only", "oracle")


@dataclass(frozen=True)
class Experiment:
    """One sender and one receiver with QPs that always have data to send, and the path between them.

    Raises
    ------
    BadSetting
    """

    scheme: Annotated[str, Setting("Scheme of recovery.", choices=SCHEMES)] = "adamap"
    rate_gbps: Annotated[float, Setting("Rate of the line, in Gb/s.", least=1, most=800)] = 100.0
    rtt_ms: Annotated[float, Setting("Round trip time of a small packet.",
                                     unit="milliseconds", least=0.01, most=400)] = 30.0
    qps: Annotated[int, Setting("Number of QPs.", least=1, most=16384)] = 1
    pmtu: Annotated[int, Setting("Payload of each packet.", unit="bytes", choices=PMTUS)] = 1024
    message_kib: Annotated[int, Setting("Length of a message, whose last packet asks for an acknowledgement.",
                                        unit="KiB", least=1, most=1 << 21)] = 1024
    transfer_mib: Annotated[float, Setting(
        "Data of each QP; 0: without end, and goodput is measured for measured_rtts after warmup_rtts.",
        unit="MiB", least=0, most=1 << 20)] = 0.0
    warmup_rtts: Annotated[float, Setting("Round trips before the measurement.", least=0, most=1000)] = 10.0
    measured_rtts: Annotated[float, Setting("Round trips of the measurement.", least=0.1, most=100_000)] = 20.0
    loss: Annotated[float, Setting("Chance of each packet to be lost.", least=0, most=0.5)] = 0.0
    drift_loss: Annotated[float, Setting("The chance of a loss moves to this one and back.", least=0, most=0.5)] = 0.0
    drift_ms: Annotated[float, Setting("Mean time between these moves.", unit="milliseconds", least=0, most=1e6)] = 0.0
    burst: Annotated[float, Setting("Gilbert-Elliott: mean length of a burst.",
                                    unit="packets", least=1, most=1e6)] = 1.0
    burst_loss: Annotated[float, Setting("Share of packets that a burst loses.", least=0, most=0.5)] = 0.0
    outage_ms: Annotated[float, Setting("Length of an outage.", unit="milliseconds", least=0, most=1000)] = 0.0
    outage_at_rtts: Annotated[float, Setting("Round trips before the outage begins.", least=0, most=1e6)] = 5.0
    outage_every_ms: Annotated[float, Setting("Time after which it comes again; 0: never.",
                                              unit="milliseconds", least=0, most=1e6)] = 0.0
    comb: Annotated[int, Setting("Interval, in packets, at which one is lost; 0: none.", least=0, most=1e9)] = 0
    back_loss: Annotated[float, Setting("Chance of each message to the sender to be lost.", least=0, most=0.9)] = 0.0
    header_loss: Annotated[float | None, Setting(
        "Of dcp: share of lost packets whose header is lost, too; by default as loss.",
        least=0, most=1)] = None
    swap: Annotated[float, Setting("Chance of a packet to be held back.", least=0, most=1)] = 0.0
    swap_us: Annotated[float, Setting("Longest time for which it is held back.",
                                      unit="microseconds", least=0, most=10_000)] = 50.0
    paths: Annotated[int, Setting("Number of paths that originals are sprayed over, by PSN.", choices=(1, 2, 4, 8))] = 1
    skew_us: Annotated[float, Setting("Delay of the last path after the first.",
                                      unit="microseconds", least=0, most=10_000)] = 0.0
    switch_at_rtts: Annotated[float, Setting("Round trips before the path becomes shorter.", least=0, most=1e6)] = 5.0
    switch_us: Annotated[float, Setting("Time by which it becomes shorter.",
                                        unit="microseconds", least=0, most=10_000)] = 0.0
    depth: Annotated[int, Setting("Nodes of a list in the head cache (n).", least=0, most=64)] = 4
    watermark: Annotated[int, Setting("Nodes of a list below which more are fetched.", least=0, most=64)] = 4
    fetch_blocks: Annotated[int, Setting("Nodes of one read.", least=1, most=16)] = 4
    cache_entries: Annotated[int, Setting("Places of the head cache.", least=1, most=1 << 20)] = 256
    match_queue: Annotated[int, Setting("Headers that may wait for their node.", least=1, most=1 << 16)] = 32
    dma_us: Annotated[float, Setting("Time of a read of host memory.", unit="microseconds", least=0, most=1000)] = 1.0
    window_bits: Annotated[int, Setting("Bits of the window, a power of two.", least=64, most=512)] = 128
    reorder: Annotated[int, Setting("Reordering distance, as the register of that name.", least=1, most=512)] = 1
    slack: Annotated[int, Setting("Slack of retransmissions, as the register of that name.", least=1, most=1 << 20)] = 1
    builder_slots: Annotated[int, Setting("QPs that can have an open node at the same time.",
                                          least=1, most=1 << 20)] = 64
    node_age_us: Annotated[float, Setting("Age at which a node is sealed.",
                                          unit="microseconds", least=0, most=abi.NODE_AGE_MAX_NS / 1e3)] = 2.0
    host_us: Annotated[float, Setting("Time from a sealed node to its link and loss report.",
                                      unit="microseconds", least=0, most=1e5)] = 2.0
    blocks: Annotated[int, Setting("Blocks of the knitting buffer.", least=1, most=1 << 24)] = 32768
    alpha: Annotated[int, Setting("Share of the free blocks that a QP may hold.", least=1, most=1 << 20)] = 8
    marker: Annotated[bool, Setting(
        "The sender probes as soon as it has nothing more to send; the driver only does so after a silence.")] = False
    seed: Annotated[int, Setting(
        "Seed of every random choice; the k-th packet on the line meets the same loss under every scheme.",
        least=0, most=(1 << 63) - 1)] = 1

    def __post_init__(self) -> None:
        check(self)
        if self.window_bits & (self.window_bits - 1):
            raise BadSetting("window_bits", self.window_bits, "choose a power of two")
        if self.reorder > self.window_bits:
            raise BadSetting("reorder", self.reorder, f"choose at most the {self.window_bits} bits of the window")
        if self.blocks < self.qps:
            raise BadSetting("blocks", self.blocks, f"{self.qps} QPs are owed one each")

    def with_(self, **changes: Any) -> "Experiment":
        """Return a copy with some fields changed, checked again."""
        return replace(self, **changes)

    @property
    def slot_ns(self) -> float:
        """Time of a packet on the line."""
        return (self.pmtu + WIRE_BYTES) * 8 / self.rate_gbps

    def slots(self, *, ms: float = 0.0, us: float = 0.0) -> int:
        """Convert a time to slots, rounded."""
        return round((ms * 1e6 + us * 1e3) / self.slot_ns)

    @property
    def bdp(self) -> int:
        """Packets of a round trip."""
        return self.slots(ms=self.rtt_ms)

    @property
    def packets(self) -> int:
        """Packets of the transfer of a QP, or 0 for one without end."""
        return -(-round(self.transfer_mib * (1 << 20)) // self.pmtu)

    @property
    def message_packets(self) -> int:
        return max(1, self.message_kib * 1024 // self.pmtu)
