"""Rate matching for long paths: the limit follows the measured delivery rate and the smallest round trip.

The model of the path is that of BBR: its bandwidth is the largest recent delivery rate, its length the smallest recent
round trip (Cardwell et al., "BBR Congestion Control", draft-cardwell-iccrg-bbr-congestion-control-02, sections 4.1.1
and 4.1.2). The rules differ where BBR's standing queue grows with the number of flows:

- Start-up keeps two bandwidth-delay products in flight, which doubles the rate in a round trip, until the delivery rate
  has not grown by a quarter for a while, or a queue is seen (section 4.3.1). It measures in quarters of a round trip.
  The longest queue depends on the target too: a share of a long round trip would starve flows with a short one.
- Then the limit of the next round is ``delivery rate × (smallest round trip + target)``. The flow keeps ``target`` of
  queueing delay. The target grows with the logarithm of the line divided by the flow's rate, so that flows of
  different round trips converge to one rate, and the queue grows with the logarithm of the number of flows. A
  target per flow is that of FAST TCP (Wei et al., IEEE/ACM Transactions on Networking 14(6), 2006, section III).
- Packets are paced slightly above the delivery rate, so that a gap in the flow closes and a short buffer suffices.
- Without a queue the limit grows in addition, each round by twice the share of the one before.
- Loss counts as delivery up to ``loss_share`` of a round. More of it is congestion (section 4.5.1 has 2 %), which
  lowers the target of all flows by the same time.
- A round trip that was not seen for ``delay_window_s`` is measured again with half of the limit (section 4.3.4).
  The limit before it returns afterwards.
- Bytes in flight never exceed two bandwidth-delay products of the measured path (section 4.6.4.1).
"""

import math
from dataclasses import dataclass
from typing import Annotated

from weft.driver.terms.settings import Setting, check

from .algorithm import BDPS_MAX, NS_BITS

START_UP, STEADY, DRAIN, REFILL = range(4)
_GROWTH = 1.25              # of the rate: less ends start-up
_PROBE_LEAST, _PROBE_MOST = 1 / 64, 1 / 4   # growth in rounds without a queue: doubles from one to the next
_PACE = 1 + 1 / 32           # rate over the delivery rate
_QUARTERS = 4               # measurements of start-up in a round trip
_QUIET = 6                  # of them without growth end it
_START_QUEUE = 1 / 4        # of the round trip: a longer queue ends it
_START_TARGETS = 16         # of target_us: so does a queue longer than these
_BACKOFF = 1 / 2            # of target_us: reduction of the target in a congested round
_BACKOFF_DECAY = 0.9        # of that reduction in any other round


@dataclass(frozen=True)
class RateMatchSettings:
    """Settings of rate matching.

    Raises
    ------
    BadSetting
    """

    first_share: Annotated[float, Setting("Rate of the first round, as a share of the port's.",
                                          least=1 / 65536, most=1)] = 1 / 16
    target_us: Annotated[float, Setting("Queueing delay of a flow that has the whole line.",
                                        unit="microseconds", least=1, most=1e5)] = 300.0
    loss_share: Annotated[float, Setting("Share of lost packets above which loss is congestion.",
                                         least=0.001, most=0.5)] = 0.02
    bandwidth_rounds: Annotated[int, Setting("Rounds for which a delivery rate counts.", least=2, most=1000)] = 10
    delay_window_s: Annotated[float, Setting("Time for which a round trip time counts.",
                                             unit="seconds", least=0.1, most=1000)] = 10.0
    least_mbps: Annotated[float, Setting("Lowest rate.", unit="Mb/s", least=0.1, most=1e5)] = 1.0
    packet: Annotated[int, Setting("Packet on the wire.", unit="bytes", least=64, most=16384)] = 4178

    def __post_init__(self) -> None:
        check(self)


class RateMatch:
    """Sender of rate matching; see :class:`~weft.driver.congestion.algorithm.Algorithm`."""

    settings: RateMatchSettings
    rate: float
    limit: int
    line: float
    state: int
    bandwidth: float        # largest delivery rate of the last rounds, bit/s
    newer: float            # the same of the younger half of them
    rounds: int             # of that half
    grown: float            # delivery rate after its latest growth in start-up
    quiet: int              # measurements since
    delay_ns: float         # smallest round trip
    delay_at_ns: float      # time of its measurement
    rtt_ns: float           # latest round trip
    backoff_ns: float       # reduction of the target by losses
    probe: float            # growth in the next round without a queue
    round_at_ns: float
    round_acked: int
    round_lost: int
    round_first: int        # bytes in flight at its beginning
    round_rtt_ns: float     # smallest
    round_rtt_sum: float
    round_rtts: int

    def __init__(self, settings: RateMatchSettings, line_bps: float, delay_ns: float) -> None:
        self.settings, self.line, self.delay_ns, self.rtt_ns = settings, line_bps, delay_ns, delay_ns
        self.state, self.bandwidth, self.newer, self.rounds = START_UP, line_bps * settings.first_share, 0.0, 0
        self.delay_at_ns, self.backoff_ns = 0.0, 0.0
        self.rate, self.limit, self.grown, self.quiet, self.probe = 0.0, 0, 0.0, 0, _PROBE_LEAST
        _apply(self, BDPS_MAX * self.bandwidth * delay_ns / NS_BITS, delay_ns)
        self.round_at_ns, self.round_acked, self.round_lost, self.round_first = -1.0, 0, 0, 0
        self.round_rtt_ns, self.round_rtt_sum, self.round_rtts = math.inf, 0.0, 0

    def on_delay(self, now_ns: float, rtt_ns: float) -> None:
        """Update the smallest round trip, and lower the limit with it."""
        self.rtt_ns = rtt_ns
        self.round_rtt_ns = min(self.round_rtt_ns, rtt_ns)
        self.round_rtt_sum += rtt_ns
        self.round_rtts += 1
        if rtt_ns <= self.delay_ns:
            self.delay_ns, self.delay_at_ns = rtt_ns, now_ns
            _apply(self, self.limit, self.limit * NS_BITS / self.rate)

    def on_loss(self, now_ns: float, lost: int) -> None:
        """Count lost bytes of the round."""
        self.round_lost += lost

    def on_cnp(self, now_ns: float) -> None:
        """Change nothing: switches of long paths do not mark."""

    def on_time(self, now_ns: float) -> None:
        """Change nothing: rounds end with acknowledgements."""

    def on_ack(self, now_ns: float, acked: int, in_flight: int) -> None:
        """Count delivered bytes, and decide at the end of a round: one round trip."""
        if self.round_at_ns < 0:
            self.round_at_ns, self.round_first = now_ns, in_flight
            return
        self.round_acked += acked
        length_ns = self.rtt_ns / _QUARTERS if self.state == START_UP else self.rtt_ns
        if now_ns - self.round_at_ns < length_ns:
            return
        if self.state == DRAIN:
            self.delay_ns, self.delay_at_ns, self.state = min(self.round_rtt_ns, self.rtt_ns), now_ns, REFILL
            path_ns = self.delay_ns + _target_ns(self, self.bandwidth)
            _apply(self, self.bandwidth * path_ns / NS_BITS, path_ns)
        elif self.state == REFILL:      # its acknowledgements are those of packets sent with half of the limit
            self.state = STEADY
        elif now_ns - self.delay_at_ns > self.settings.delay_window_s * 1e9:
            self.state = DRAIN
            _apply(self, self.limit / 2, self.delay_ns)
        elif min(4 * self.round_first, 2 * in_flight) >= self.limit:    # otherwise the application had less to send
            _end_round(self, now_ns - self.round_at_ns)
        self.round_at_ns, self.round_acked, self.round_lost, self.round_first = now_ns, 0, 0, in_flight
        self.round_rtt_ns, self.round_rtt_sum, self.round_rtts = math.inf, 0.0, 0


def _end_round(flow: RateMatch, length_ns: float) -> None:
    """Measure the delivery rate of a round, and decide on the next one."""
    s = flow.settings
    congested = flow.round_lost > s.loss_share * (flow.round_acked + flow.round_lost)
    delivered = flow.round_acked if congested else flow.round_acked + flow.round_lost
    rate = max(s.least_mbps * 1e6, min(delivered * NS_BITS / length_ns, flow.line))
    flow.newer, flow.rounds = max(flow.newer, rate), flow.rounds + 1
    flow.bandwidth = max(flow.bandwidth, rate)
    if 2 * flow.rounds >= s.bandwidth_rounds:
        flow.bandwidth, flow.newer, flow.rounds = flow.newer, 0.0, 0
    queue_ns = flow.round_rtt_sum / max(1, flow.round_rtts) - flow.delay_ns     # on average: gaps empty the queue
    if flow.state == START_UP:
        flow.quiet += 1
        if rate >= _GROWTH * flow.grown:
            flow.grown, flow.quiet = rate, 0
        most_ns = min(_START_QUEUE * flow.delay_ns, _START_TARGETS * s.target_us * 1e3)
        if flow.quiet < _QUIET and queue_ns < most_ns and not congested:
            _apply(flow, BDPS_MAX * rate * flow.delay_ns / NS_BITS, flow.delay_ns)
            return
        flow.state = STEADY
    elif congested:
        flow.backoff_ns = min(flow.backoff_ns + _BACKOFF * s.target_us * 1e3, flow.delay_ns)
    else:
        flow.backoff_ns *= _BACKOFF_DECAY
    target_ns = _target_ns(flow, rate)
    growth, flow.probe = flow.probe, min(2 * flow.probe, _PROBE_MOST)
    if queue_ns >= target_ns / 4:
        growth, flow.probe = 0.0, _PROBE_LEAST
    path_ns = flow.delay_ns + target_ns
    _apply(flow, (1 + growth) * rate * path_ns / NS_BITS, path_ns / _PACE)


def _target_ns(flow: RateMatch, rate: float) -> float:
    """Return the queueing delay that a flow of this rate keeps."""
    return max(0.0, flow.settings.target_us * 1e3 * (1 + math.log(flow.line / rate)) - flow.backoff_ns)


def _apply(flow: RateMatch, limit: float, path_ns: float) -> None:
    """Set the limit, of a packet to two bandwidth-delay products, and the rate that sends ``limit`` in ``path_ns``.

    The rate does not follow the bound of two products: a target longer than the round trip would lower it.
    """
    s = flow.settings
    least, most = float(s.packet), BDPS_MAX * flow.bandwidth * flow.delay_ns / NS_BITS
    flow.limit = int(max(least, min(limit, most)))
    flow.rate = max(min(s.least_mbps * 1e6, flow.line), min(flow.line, max(least, limit) * NS_BITS / path_ns))
