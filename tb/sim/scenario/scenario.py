"""Scenarios of the calibration."""

import itertools
import random
from dataclasses import asdict, dataclass
from typing import Annotated

from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract.abi import INLINE_MAX
from weft.model.settings import PMTUS, BadSetting, Setting, check

KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Traffic between two cards of preset ``test``, with the settings of link and hosts.

    Raises
    ------
    BadSetting
    """

    bytes: Annotated[int, Setting("Bytes that each side sends.", least=1, most=16 << 20)] = 256 * KIB
    message_bytes: Annotated[int, Setting("Length of a message.", unit="bytes", least=1, most=1 << 20)] = 64 * KIB
    pmtu: Annotated[int, Setting("Largest payload of a packet.", unit="bytes", choices=PMTUS)] = 1024
    qps: Annotated[int, Setting("Number of QPs.", least=1, most=12)] = 1
    both: Annotated[bool, Setting("Both sides send.")] = False
    rtt_us: Annotated[float, Setting("Round trip time of the link.", unit="microseconds", least=0, most=10_000)] = 10.0
    loss: Annotated[float, Setting("Share of packets lost when they are first sent.", least=0, most=0.5)] = 0.0
    burst: Annotated[int, Setting("Packets in a row that are lost together.", least=1, most=100_000)] = 1
    again: Annotated[float, Setting("Share of retransmissions lost.", least=0, most=0.5)] = 0.0
    latency_ns: Annotated[float, Setting("Latency of host memory.", unit="nanoseconds", least=0, most=100_000)] = 1000.0
    jitter: Annotated[float, Setting("Share of the latency that varies.", least=0, most=0.9)] = 0.0
    stall: Annotated[float, Setting("Chance per cycle that the hard block holds a stream back.",
                                    least=0, most=0.9)] = 0.0
    depth: Annotated[int, Setting("Depth of the prefetcher.", least=1, most=16)] = 4
    watermark: Annotated[int, Setting("Watermark of the prefetcher.", least=1, most=16)] = 4
    node_age_ns: Annotated[int, Setting("Age at which a node is sealed.",
                                        unit="nanoseconds", least=0, most=1_000_000)] = 2000
    inline: Annotated[bool, Setting("Messages are posted inline.")] = False
    paced_gbps: Annotated[float, Setting("Rate at which the card paces each QP, on the line; 0: it does not.",
                                         least=0, most=100)] = 0.0
    seed: Annotated[int, Setting("Seed of every random choice.", least=0, most=(1 << 63) - 1)] = 1

    def __post_init__(self):
        check(self)
        if self.bytes < self.qps:
            raise BadSetting("bytes", self.bytes, f"{self.qps} QPs send one each at least")
        if self.inline and self.message_bytes > INLINE_MAX:
            raise BadSetting("message_bytes", self.message_bytes, f"inline messages have at most {INLINE_MAX}")

    def as_dict(self):
        return asdict(self)

    def host(self):
        """Return the HostConfig of both hosts."""
        from weft.tb.sim.pcie.host import HostConfig

        return HostConfig(read_latency_ns=self.latency_ns, read_jitter=self.jitter, stall=self.stall)

    def links(self):
        """Return the LinkConfig of both directions; losses are left to :class:`Losses`."""
        from weft.model.impairments import LinkConfig

        return LinkConfig(delay_ns=self.rtt_us * 500), LinkConfig(delay_ns=self.rtt_us * 500)

    def context_config(self):
        """Return the settings of both drivers."""
        return ContextConfig(congestion="swift" if self.paced_gbps else "none",
                             prefetch_depth=self.depth, prefetch_watermark=min(self.watermark, self.depth),
                             node_age_ns=self.node_age_ns, probe_timeout_ns=int(3000 * self.rtt_us) + 20_000,
                             ring_log2=8)


@dataclass(frozen=True, kw_only=True)
class Scenario(Conditions):
    """Conditions with a name."""

    name: str
    judges: bool = True      # its errors count in the verdict; the others served to choose the model's constants


def _grid(prefix, judges, **axes):
    """Yield scenarios over the product of all axes."""
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        words = "-".join(f"{name}{value:g}" if not isinstance(value, bool) else name
                         for name, value in point.items() if value is not False and len(axes[name]) > 1)
        yield Scenario(name=f"{prefix}-{words}" if words else prefix, judges=judges, **point)


# Axes of `drawn`. Settings with random behaviour inside a host differ from run to run and are left to the grids.
AXES = {
    "bytes": [96 * KIB, 160 * KIB], "message_bytes": [1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB],
    "pmtu": [256, 512, 1024, 2048, 4096], "qps": [1, 1, 1, 2, 3, 5, 8], "both": [False, False, False, True],
    "rtt_us": [2.0, 5.0, 10.0, 25.0], "loss": [0.005, 0.01, 0.02, 0.05, 0.1, 0.2], "burst": [1, 1, 1, 4, 16],
    "again": [0.0, 0.0, 0.0, 0.05, 0.2], "latency_ns": [300.0, 500.0, 1000.0, 1500.0, 2000.0, 3000.0],
    "depth": [1, 2, 3, 4, 8], "watermark": [1, 2, 4, 8], "node_age_ns": [500, 2000, 2000, 5000, 20_000],
}


def drawn(prefix, judges, seed, count):
    """Yield scenarios with a random value on each axis, the same for the same seed."""
    random_ = random.Random(f"scenarios {seed}")
    for number in range(count):
        point = {name: random_.choice(values) for name, values in AXES.items()}
        yield Scenario(name=f"{prefix}-{number}", judges=judges, seed=100 * seed + number, **point)


# For fitting: the constants of model/card/timing.py, and missing parts of the model, were found with these.
FIT = [
    *_grid("fit-pmtu", False, pmtu=[256, 1024, 4096]),
    *_grid("fit-loss", False, loss=[0.02], depth=[1, 4], latency_ns=[500, 2000]),
    *_grid("fit-burst", False, loss=[0.15], burst=[16], depth=[1, 4]),
    *_grid("fit-both", False, both=[True], loss=[0.02]),
    *_grid("fit-qps", False, qps=[4, 8], loss=[0.0, 0.02], seed=[3]),
    *_grid("fit-depth", False, depth=[1, 2], watermark=[8], loss=[0.1], latency_ns=[1000, 3000], seed=[10]),
    *_grid("fit-watermark", False, depth=[8], watermark=[1], loss=[0.1], pmtu=[256], seed=[11]),
    *_grid("fit-paced", False, paced_gbps=[15], loss=[0.0, 0.02], qps=[1, 4], bytes=[96 * KIB], seed=[18]),
    *_grid("depth", False, depth=[1, 2, 8], watermark=[8], loss=[0.1], latency_ns=[1000, 3000], seed=[20]),
    *_grid("watermark", False, depth=[8], watermark=[1, 2, 4], loss=[0.1], pmtu=[256], seed=[21]),
    *drawn("fit-drawn", False, 1, 24),
    *drawn("fit-more", False, 2, 30),
    *drawn("fit-third", False, 3, 30),      # judged until two of them were analysed
    *drawn("fit-fourth", False, 4, 30),     # judged until one of them was analysed
    *drawn("fit-fifth", False, 5, 30),      # judged until three of them were analysed
]
# For the verdict.
JUDGE = [
    *_grid("pmtu", True, pmtu=[256, 512, 1024, 2048, 4096], loss=[0.0, 0.02]),
    *_grid("message", True, message_bytes=[1 * KIB, 4 * KIB, 16 * KIB], loss=[0.0, 0.03], seed=[2]),
    *_grid("qps", True, qps=[2, 3, 6], loss=[0.0, 0.02], seed=[3]),
    *_grid("loss", True, loss=[0.005, 0.05, 0.1], seed=[4, 5]),
    *_grid("burst", True, loss=[0.15], burst=[4, 32], seed=[6, 7]),
    *_grid("again", True, loss=[0.05], again=[0.05, 0.2], seed=[8]),
    *_grid("latency", True, latency_ns=[300, 700, 1500, 3000], loss=[0.0, 0.03], seed=[9]),
    *_grid("both", True, both=[True], loss=[0.0, 0.02], pmtu=[512, 2048], seed=[12]),
    *_grid("stall", True, stall=[0.1, 0.3], loss=[0.0, 0.02], seed=[13]),
    *_grid("rtt", True, rtt_us=[2.0, 50.0], loss=[0.0, 0.03], seed=[14]),
    *_grid("jitter", True, jitter=[0.1], loss=[0.0, 0.02], seed=[15]),
    *_grid("inline", True, inline=[True], bytes=[16 * KIB], message_bytes=[16, 64], seed=[17]),
    *_grid("paced", True, paced_gbps=[10, 40, 90], loss=[0.0, 0.03], bytes=[96 * KIB], seed=[19]),
    *_grid("paced-qps", True, paced_gbps=[10], qps=[2, 5], bytes=[96 * KIB], pmtu=[1024, 4096], seed=[20]),
    *_grid("age", True, node_age_ns=[500, 20_000], loss=[0.05], seed=[16]),
    *drawn("drawn", True, 6, 30),     # take another seed after these have been analysed to correct the model
]
ALL = FIT + JUDGE


class Losses:
    """Selection of the lost packets by PSN and number of transmissions, not by their order on the link.

    Therefore both sides of a comparison lose the same packets, whatever else differs. ``side`` is that of the sender.
    """

    def __init__(self, scenario, side):
        self._scenario, self._side, self._again = scenario, side, {}

    def __call__(self, frame, kind):
        """Return whether a frame is lost; ``kind`` as :func:`weft.model.impairments.frame_kind` returns it."""
        scenario = self._scenario
        if kind not in ("data", "retx"):
            return False
        qpn, psn = int.from_bytes(frame[47:50], "big"), int.from_bytes(frame[51:54], "big")
        if kind == "data":
            return self._draw(qpn, psn // scenario.burst) < scenario.loss
        turn = self._again[qpn, psn] = self._again.get((qpn, psn), 0) + 1
        return self._draw(qpn, psn, turn) < scenario.again

    def _draw(self, *subject):
        return random.Random(f"{self._scenario.seed} {self._side} {subject}").random()
