"""Loss models of a link, and bursts.

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
