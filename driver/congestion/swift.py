"""Swift: the window grows while the round trip is shorter than a target, and shrinks in proportion to the excess.

Source: Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter" (SIGCOMM 2020),
section 3.1 (algorithm 1), 3.4 (loss) and 3.5 (target). Three differences: the smallest measured round trip takes the
place of base delay and topology scaling; the delay of the hosts is not separate; the window never exceeds two
bandwidth-delay products.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from weft.driver.terms.settings import BadSetting, Setting, check

from .algorithm import BDPS_MAX, NS_BITS


@dataclass(frozen=True)
class SwiftSettings:
    """Settings of Swift.

    Raises
    ------
    BadSetting
    """

    queue_us: Annotated[float, Setting("Queueing delay that every flow accepts.",
                                       unit="microseconds", least=0.1, most=1e5)] = 8.0
    scaled_us: Annotated[float, Setting("Queueing delay that the smallest flows accept in addition (fs_range).",
                                        unit="microseconds", least=0, most=1e5)] = 8.0
    scaled_least: Annotated[float, Setting("Window below which the target is not raised further (fs_min_cwnd).",
                                           unit="packets", least=0.01, most=1e4)] = 0.1
    scaled_most: Annotated[float, Setting("Window above which the target is not raised (fs_max_cwnd).",
                                          unit="packets", least=0.02, most=1e6)] = 100.0
    additive: Annotated[float, Setting("Growth of the window in a round trip (ai).",
                                       unit="packets", least=0.001, most=1000)] = 1.0
    beta: Annotated[float, Setting("Reaction to excess delay (beta).", least=0.01, most=1)] = 0.8
    decrease_most: Annotated[float, Setting("Largest cut in a round trip (max_mdf).", least=0.01, most=0.99)] = 0.5
    window_least: Annotated[float, Setting("Smallest window.", unit="packets", least=0.001, most=1)] = 0.01
    packet: Annotated[int, Setting("Packet on the wire.", unit="bytes", least=64, most=16384)] = 4178

    def __post_init__(self) -> None:
        check(self)
        if self.scaled_least >= self.scaled_most:
            raise BadSetting("scaled_least", self.scaled_least, "it must be less than scaled_most")


class Swift:
    """Sender of Swift; see :class:`~weft.driver.congestion.algorithm.Algorithm`."""

    settings: SwiftSettings
    rate: float
    limit: int
    line: float
    window: float           # packets
    delay_ns: float         # smallest
    rtt_ns: float           # latest
    cut_at_ns: float        # latest decrease

    def __init__(self, settings: SwiftSettings, line_bps: float, delay_ns: float) -> None:
        self.settings, self.line, self.delay_ns, self.rtt_ns = settings, line_bps, delay_ns, delay_ns
        self.cut_at_ns = -1e18
        self.window = line_bps * delay_ns / NS_BITS / settings.packet
        _apply(self)

    def on_delay(self, now_ns: float, rtt_ns: float) -> None:
        """Keep the round trip for the acknowledgement that follows."""
        self.rtt_ns = rtt_ns
        self.delay_ns = min(self.delay_ns, rtt_ns)

    def on_ack(self, now_ns: float, acked: int, in_flight: int) -> None:
        """Grow below the target; shrink above it, once in a round trip: algorithm 1."""
        s = self.settings
        queue_ns, target_ns = self.rtt_ns - self.delay_ns, _target_ns(self)
        if queue_ns < target_ns:
            self.window += s.additive * acked / s.packet / max(self.window, 1.0)
        elif now_ns - self.cut_at_ns >= self.rtt_ns:
            excess = (queue_ns - target_ns) / self.rtt_ns
            self.window *= max(1 - s.beta * excess, 1 - s.decrease_most)
            self.cut_at_ns = now_ns
        _apply(self)

    def on_loss(self, now_ns: float, lost: int) -> None:
        """Make the largest cut, once in a round trip: section 3.4."""
        if now_ns - self.cut_at_ns >= self.rtt_ns:
            self.window *= 1 - self.settings.decrease_most
            self.cut_at_ns, rate = now_ns, self.rate
            _apply(self)
            self.rate = min(self.rate, rate)

    def on_cnp(self, now_ns: float) -> None:
        """Change nothing: delay is the signal."""

    def on_time(self, now_ns: float) -> None:
        """Change nothing: round trips are the clock."""


def _target_ns(flow: Swift) -> float:
    """Return the accepted queueing delay, larger for small windows: flow scaling of section 3.5."""
    s = flow.settings
    least, most = 1 / math.sqrt(s.scaled_most), 1 / math.sqrt(s.scaled_least)
    share = (1 / math.sqrt(flow.window) - least) / (most - least)
    return (s.queue_us + s.scaled_us * max(0.0, min(share, 1.0))) * 1e3


def _apply(flow: Swift) -> None:
    """Bound the window, and set rate and limit: a window below one packet is a pause between packets."""
    s = flow.settings
    most = max(BDPS_MAX * flow.line * flow.delay_ns / NS_BITS / s.packet, 1.0)
    flow.window = max(s.window_least, min(flow.window, most))
    flow.limit = int(max(flow.window, 1.0) * s.packet)
    flow.rate = flow.line if flow.window >= 1 else min(flow.line, flow.window * s.packet * NS_BITS / flow.rtt_ns)
