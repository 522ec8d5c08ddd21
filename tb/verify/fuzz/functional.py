"""Fuzzing of two drivers over functional cards, in rounds that can be repeated individually."""

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field

from weft.model.functional.host import FunctionalDevice
from weft.model.functional.memory import HostMemory
from weft.tb.sim.judge.growth import sizes
from weft.tb.sim.pair.functional_pair import close_and_check, make_pair
from weft.tb.verify.fuzz.fuzzing import TIMEOUT, Fuzzing

ROUND = 2_000        # frames
BURST = 10           # frames for each card between two steps
STEP_NS = 2_000
LOOK = 20            # steps between two comparisons
SLACK = 64           # objects that a message may create or free
BELOW = (FunctionalDevice, HostMemory)     # not counted as part of the driver; the buffers of its memory are


@dataclass
class Outcome:
    """Outcome of a number of frames."""

    frames: int = 0
    failures: list = field(default_factory=list)        # each with the seed of its round
    kinds: Counter = field(default_factory=Counter)     # frames by the method that made them
    drops: Counter = field(default_factory=Counter)     # frames that the cards dropped, by reason


class Round(Fuzzing):
    """Round of fuzzing."""

    def __init__(self, seed):
        pair = make_pair(seed=seed)
        super().__init__(pair, random.Random(f"fuzz {seed}"), burst=BURST, settle=self.step, victim_timeout=12,
                         step=lambda: pair.loop.run(pair.loop.now_ns + STEP_NS), path_mtu=3, timeout=16,
                         receive=lambda side, frame: pair.devices[side].card.receive(frame))
        self.prepare()

    def run(self, frames):
        """Fuzz with ``frames`` frames; raise an exception if they cause one, or have another effect.

        Return counters of the frames by the method that made them, and of those that the cards dropped, by reason.
        """
        pair = self.pair
        before = [sizes(context, BELOW) for context in pair.contexts]
        self.feed(frames)
        drops = Counter()
        for device in pair.devices:
            drops.update({name: number for name, number in device.card.counters.items() if name.startswith("drop_")})
        self.end()
        for _ in range(0, TIMEOUT, LOOK):      # freed blocks return to the free list incrementally
            for _ in range(LOOK):
                self.step()
            grown = {name: (was[name], count)
                     for was, context in zip(before, pair.contexts, strict=True)
                     for name, count in sizes(context, BELOW).items() if count > was[name] + SLACK}
            if not grown:
                break
        assert not grown, f"grown: {grown}"
        close_and_check(pair, self.ends)
        return self.kinds, drops


def fuzz(frames, seed, report_progress=lambda done: None):
    """Fuzz in rounds of :data:`ROUND` frames, round ``k`` with seed ``<seed>/<k>``; return the :class:`Outcome`.

    ``report_progress`` receives the number of frames done so far.
    """
    outcome, number = Outcome(), 0
    while outcome.frames < frames:
        name = f"{seed}/{number}"
        count = min(ROUND, frames - outcome.frames)
        try:
            kinds, drops = Round(name).run(count)
            outcome.kinds += kinds
            outcome.drops += drops
        except Exception:
            last = traceback.format_exc().strip()
            outcome.failures.append(f"round of {count} frames with seed {name!r}:\n{last}")
        outcome.frames += count
        number += 1
        report_progress(outcome.frames)
    return outcome
