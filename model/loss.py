"""How frames get lost: independently, in bursts, all for a while, or at regular distances.

A model is a description; :meth:`start` makes the process of one link, a function of the time that says whether the
next frame is lost. Independent loss with one chance is ``LinkConfig.loss``.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class GilbertElliott:
    """Bursts: a good state that loses nothing and a bad one that loses everything, a step per frame.

    Attributes
    ----------
    mean_burst : float
        Frames lost in a row, on average; the length is geometric.
    loss : float
        Share of frames lost in the long run.
    """

    mean_burst: float
    loss: float

    def __post_init__(self):
        if self.mean_burst < 1 or not 0 <= self.loss < 1:
            raise ValueError(f"no bursts of {self.mean_burst} frames on average with a loss of {self.loss}")

    def start(self, rng):
        leave = 1 / self.mean_burst
        enter = leave * self.loss / (1 - self.loss)
        bad = False

        def lost(_now_ns):
            nonlocal bad
            bad = rng.random() >= leave if bad else rng.random() < enter
            return bad

        return lost


@dataclass(frozen=True)
class Outage:
    """Everything is lost for a while, once, or again every ``period_ns``."""

    start_ns: int
    length_ns: int
    period_ns: int | None = None

    def start(self, _rng):
        def lost(now_ns):
            since = now_ns - self.start_ns
            if since >= 0 and self.period_ns:
                since %= self.period_ns
            return 0 <= since < self.length_ns

        return lost


@dataclass(frozen=True)
class Comb:
    """Every ``every``-th frame is lost, the first one of them after ``first`` others."""

    every: int
    first: int = 0

    def start(self, _rng):
        count = -self.first - 1

        def lost(_now_ns):
            nonlocal count
            count += 1
            return count >= 0 and count % self.every == 0

        return lost


@dataclass(frozen=True)
class Burst:
    """``length`` frames in a row are lost, once, after ``first`` others."""

    first: int
    length: int

    def start(self, _rng):
        count = -self.first - 1

        def lost(_now_ns):
            nonlocal count
            count += 1
            return 0 <= count < self.length

        return lost
