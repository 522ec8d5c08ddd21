"""No congestion control: the rate of the port, and any number of bytes in flight."""

from dataclasses import dataclass

from .algorithm import UNLIMITED


@dataclass(frozen=True)
class NoneSettings:
    """No settings."""


class NoControl:
    """Constant rate, for a line without other traffic, and as the baseline of experiments."""

    rate: float
    limit: int

    def __init__(self, settings: NoneSettings, line_bps: float, delay_ns: float) -> None:
        self.rate, self.limit = line_bps, UNLIMITED

    def on_ack(self, now_ns: float, acked: int, in_flight: int) -> None:
        """Change nothing."""

    def on_delay(self, now_ns: float, rtt_ns: float) -> None:
        """Change nothing."""

    def on_cnp(self, now_ns: float) -> None:
        """Change nothing."""

    def on_time(self, now_ns: float) -> None:
        """Change nothing."""

    def on_loss(self, now_ns: float, lost: int) -> None:
        """Change nothing."""
