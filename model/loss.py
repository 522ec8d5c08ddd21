"""Loss models: bursts, outages, and losses at regular distances.

Independent loss with one chance is ``LinkConfig.loss``.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Loses = Callable[[float], bool]


class LossModel(Protocol):
    """Interface of a loss model."""

    def start(self, rng: random.Random, /) -> Loses:
        """Return the process of one link: a function of the time that returns true if the next frame is lost."""


@dataclass(frozen=True)
class GilbertElliott:
    """Burst loss: a good state that loses no frame and a bad state that loses every frame, with a step per frame.

    Attributes
    ----------
    mean_burst
        Mean number of frames lost in a row; the length is geometric.
    loss
        Share of frames lost in the long run.
    """

    mean_burst: float
    loss: float

    def __post_init__(self) -> None:
        if self.mean_burst < 1 or not 0 <= self.loss < 1:
            raise ValueError(f"no bursts of {self.mean_burst} frames on average with a loss of {self.loss}")

    def start(self, rng: random.Random) -> Loses:
        leave = 1 / self.mean_burst
        enter = leave * self.loss / (1 - self.loss)
        bad = False

        def lost(_now_ns: float) -> bool:
            nonlocal bad
            bad = rng.random() >= leave if bad else rng.random() < enter
            return bad

        return lost


@dataclass(frozen=True)
class Outage:
    """Loss of all frames for a while, once or every ``period_ns``."""

    start_ns: int
    length_ns: int
    period_ns: int | None = None

    def start(self, _rng: random.Random) -> Loses:
        def lost(now_ns: float) -> bool:
            since = now_ns - self.start_ns
            if since >= 0 and self.period_ns:
                since %= self.period_ns
            return 0 <= since < self.length_ns

        return lost


@dataclass(frozen=True)
class Comb:
    """Loss of every ``every``-th frame; ``first`` frames pass before the first loss."""

    every: int
    first: int = 0

    def start(self, _rng: random.Random) -> Loses:
        count = -self.first - 1

        def lost(_now_ns: float) -> bool:
            nonlocal count
            count += 1
            return count >= 0 and count % self.every == 0

        return lost


@dataclass(frozen=True)
class Burst:
    """Loss of ``length`` frames in a row, once; ``first`` frames pass before it."""

    first: int
    length: int

    def start(self, _rng: random.Random) -> Loses:
        count = -self.first - 1

        def lost(_now_ns: float) -> bool:
            nonlocal count
            count += 1
            return 0 <= count < self.length

        return lost
