"""DCQCN: the rate falls with each congestion notification and recovers with time and with bytes.

Source: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015), section 3.1, its equations
(1) to (4) and figure 7. Timers are evaluated at acknowledgements and when paced packets have left the card; the byte
counter counts acknowledged bytes. Alpha is 1 until the first notification, as in the simulator of HPCC
(``alibaba-edu/High-Precision-Congestion-Control``). The step of hyper increase is constant; simulators that follow QCN
multiply it by the number of increases. The limit of two bandwidth-delay products is an addition: the paper has none,
and it bounds the queue when many flows start together.
"""

from dataclasses import dataclass
from typing import Annotated

from weft.driver.terms.settings import Setting, check

from .algorithm import BDPS_MAX, NS_BITS

_PERIODS_MAX = 4096      # of a timer, at one event


@dataclass(frozen=True)
class DcqcnSettings:
    """Settings of DCQCN. Gain, times, byte counter and fast recovery are those of the paper, section 5.2.

    Raises
    ------
    BadSetting
    """

    gain: Annotated[float, Setting("Weight of a notification in alpha (g).", least=1 / 65536, most=1)] = 1 / 256
    alpha_us: Annotated[float, Setting("Time without notification after which alpha falls (K).",
                                       unit="microseconds", least=1, most=1e6)] = 55.0
    timer_us: Annotated[float, Setting("Time between two increases (T).",
                                       unit="microseconds", least=1, most=1e6)] = 55.0
    byte_counter: Annotated[int, Setting("Bytes between two increases (B).",
                                         unit="bytes", least=4096, most=1 << 40)] = 10_000_000
    recoveries: Annotated[int, Setting("Increases of fast recovery (F).", least=1, most=100)] = 5
    additive_mbps: Annotated[float, Setting("Step of additive increase (R_AI).",
                                            unit="Mb/s", least=0.1, most=1e5)] = 40.0
    hyper_mbps: Annotated[float, Setting("Step of hyper increase (R_HAI).", unit="Mb/s", least=0.1, most=1e5)] = 400.0
    least_mbps: Annotated[float, Setting("Lowest rate.", unit="Mb/s", least=1, most=1e5)] = 10.0

    def __post_init__(self) -> None:
        check(self)


class Dcqcn:
    """Reaction point of DCQCN; see :class:`~weft.driver.congestion.algorithm.Algorithm`."""

    settings: DcqcnSettings
    rate: float
    limit: int
    line: float
    target: float           # R_T
    alpha: float
    delay_ns: float         # smallest
    alpha_at_ns: float      # beginning of alpha's period; -1 before the first notification
    timer_at_ns: float      # beginning of the timer's period, after the first notification
    timer_count: int
    bytes: int
    byte_count: int

    def __init__(self, settings: DcqcnSettings, line_bps: float, delay_ns: float) -> None:
        self.settings, self.line, self.delay_ns = settings, line_bps, delay_ns
        self.rate, self.target, self.alpha = line_bps, line_bps, 1.0
        self.limit = int(BDPS_MAX * line_bps * delay_ns / NS_BITS)
        self.alpha_at_ns, self.timer_at_ns = -1.0, 0.0
        self.timer_count, self.bytes, self.byte_count = 0, 0, 0

    def on_cnp(self, now_ns: float) -> None:
        """Cut the rate by half of alpha, and raise alpha: equation (1)."""
        gain = self.settings.gain
        self.target = self.rate
        self.rate = max(self.rate * (1 - self.alpha / 2), min(self.settings.least_mbps * 1e6, self.line))
        self.alpha = (1 - gain) * self.alpha + gain
        self.alpha_at_ns, self.timer_at_ns = now_ns, now_ns
        self.timer_count, self.bytes, self.byte_count = 0, 0, 0

    def on_ack(self, now_ns: float, acked: int, in_flight: int) -> None:
        """Apply the periods of the timers and of the byte counter that have ended."""
        _end_periods(self, now_ns)
        self.bytes += acked
        periods = self.bytes // self.settings.byte_counter
        self.bytes -= periods * self.settings.byte_counter
        for _ in range(min(periods, _PERIODS_MAX)):
            self.byte_count += 1
            _increase(self)

    def on_time(self, now_ns: float) -> None:
        """Apply the periods of the timers that have ended."""
        _end_periods(self, now_ns)

    def on_delay(self, now_ns: float, rtt_ns: float) -> None:
        """Lower the limit if the path is shorter than known."""
        if rtt_ns < self.delay_ns:
            self.delay_ns = rtt_ns
            self.limit = int(BDPS_MAX * self.line * rtt_ns / NS_BITS)

    def on_loss(self, now_ns: float, lost: int) -> None:
        """Change nothing: notifications are the only signal of DCQCN."""


def _end_periods(flow: Dcqcn, now_ns: float) -> None:
    """Apply the periods of alpha, equation (2), and of the timer that have ended."""
    s = flow.settings
    if flow.alpha_at_ns < 0:
        return
    periods = int((now_ns - flow.alpha_at_ns) / (s.alpha_us * 1e3))
    flow.alpha_at_ns += periods * s.alpha_us * 1e3
    for _ in range(min(periods, _PERIODS_MAX)):
        flow.alpha *= 1 - s.gain
    periods = int((now_ns - flow.timer_at_ns) / (s.timer_us * 1e3))
    flow.timer_at_ns += periods * s.timer_us * 1e3
    for _ in range(min(periods, _PERIODS_MAX)):
        flow.timer_count += 1
        _increase(flow)


def _increase(flow: Dcqcn) -> None:
    """Raise the rate by fast recovery, additive or hyper increase: equations (3) and (4), figure 7."""
    s = flow.settings
    if max(flow.timer_count, flow.byte_count) >= s.recoveries:
        both = min(flow.timer_count, flow.byte_count) >= s.recoveries
        step = s.hyper_mbps if both else s.additive_mbps
        flow.target = min(flow.target + step * 1e6, flow.line)
    flow.rate = (flow.rate + flow.target) / 2
