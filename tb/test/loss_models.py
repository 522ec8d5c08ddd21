"""Loss models of tests: outages, one burst, and losses at regular distances."""

import random
from dataclasses import dataclass

from weft.model.loss import Loses


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
