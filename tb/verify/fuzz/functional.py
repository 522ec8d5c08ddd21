"""Fuzzing two drivers over functional cards, in rounds that repeat alone.

A round has an honest pair of QPs and a pair of victims. The victims move some data over a link that loses, so that
there are genuine frames of every opcode; then nothing of theirs is outstanding, and frames made from those come in.
"""

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from weft.driver.verbs.cq import CQ
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.model.functional.host import FunctionalDevice
from weft.model.functional.memory import HostMemory
from weft.tb.sim.judge.growth import sizes
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair
from weft.tb.verify.fuzz.traffic import LENGTH, PART, Overheard, check_quiet, check_write, has_ended, post_write

ROUND = 2_000        # frames
LOOK = 20            # frames, or steps, between two looks
STEP_NS = 2_000
PATIENCE = 5_000     # steps
SLACK = 64           # objects that may come and go with a message
BELOW = (FunctionalDevice, HostMemory)     # not the driver's; of its memory the buffers count


@dataclass
class Outcome:
    """What came of a number of frames.

    Attributes
    ----------
    frames : int
    failures : list of str
        Each with the seed of its round.
    kinds : Counter
        Frames by how they were made.
    drops : Counter
        Frames that the cards refused, by reason.
    """

    frames: int = 0
    failures: list = field(default_factory=list)
    kinds: Counter = field(default_factory=Counter)
    drops: Counter = field(default_factory=Counter)


class Round:
    """One round.

    Parameters
    ----------
    seed : hashable
    """

    def __init__(self, seed):
        self.rng = random.Random(f"fuzz {seed}")
        self.pair = make_pair(seed=seed)
        self.ends = make_endpoints(self.pair, LENGTH, timeout=16)
        self.cqs = [CQ(context, 64) for context in self.pair.contexts]
        self.victims = [QP(end.pd, rc_init_attr(cq)) for end, cq in zip(self.ends, self.cqs, strict=True)]
        for qp, peer in zip(self.victims, self.victims[::-1], strict=True):
            qp.connect(peer.connection, path_mtu=1, timeout=12)
        self.overheard = [Overheard(self.rng) for _ in self.ends]
        for link, heard, end, victim in zip(self.pair.links, self.overheard[::-1], self.ends[::-1], self.victims[::-1],
                                            strict=True):
            link.drop = partial(heard.hear, victim=victim, honest=end.qps[0])

    def _step(self):
        for context in self.pair.contexts:
            context.progress()
        self.pair.loop.run(self.pair.loop.now_ns + STEP_NS)

    def _transfer(self, qps, cqs):
        """A write each way, to the end of the peer's memory: completions and bytes are right."""
        data = [self.rng.randbytes(PART) for _ in self.ends]
        for me, you, qp, peer, sent in zip(self.ends, self.ends[::-1], qps, qps[::-1], data, strict=True):
            post_write(me, you, qp, peer, sent)
        for _ in range(PATIENCE):
            self._step()
            if all(map(has_ended, cqs)):
                break
        for end, cq, sent in zip(self.ends, cqs, data[::-1], strict=True):
            check_write(end, cq, sent)

    def run(self, frames):
        """Fuzz with so many frames.

        Raises
        ------
        AssertionError, or whatever the frames made anybody raise
        """
        pair = self.pair
        self._transfer(self.victims, self.cqs)
        self._transfer([end.qps[0] for end in self.ends], [end.cq for end in self.ends])
        before = [sizes(context, BELOW) for context in pair.contexts]
        fuzzers = [heard.fuzzer() for heard in self.overheard]
        for number in range(frames):
            side = self.rng.randrange(2)
            pair.devices[side].card.receive(fuzzers[side].draw())
            if number % LOOK == LOOK - 1:
                self._step()
        for _ in range(LOOK):
            self._step()
        for cq in self.cqs:
            check_quiet(cq)
        self._transfer([end.qps[0] for end in self.ends], [end.cq for end in self.ends])
        drops = Counter()
        for device in pair.devices:
            drops.update({name: number for name, number in device.card.counters.items() if name.startswith("drop_")})
        for cq, qp in zip(self.cqs, self.victims, strict=True):
            qp.close()
            cq.close()
        for _ in range(0, PATIENCE, LOOK):      # blocks that came back are sorted in bit by bit
            for _ in range(LOOK):
                self._step()
            grown = {name: (was[name], count)
                     for was, context in zip(before, pair.contexts, strict=True)
                     for name, count in sizes(context, BELOW).items() if count > was[name] + SLACK}
            if not grown:
                break
        assert not grown, f"grown: {grown}"
        close_and_check(pair, self.ends)
        return sum((fuzzer.drawn for fuzzer in fuzzers), Counter()), drops


def fuzz(frames, seed, tell=lambda done: None):
    """Fuzz in rounds of :data:`ROUND` frames.

    Parameters
    ----------
    frames : int
    seed : hashable
        Round ``k`` has the seed ``<seed>/<k>``.
    tell : callable(int)
        Is told how many frames are done.

    Returns
    -------
    Outcome
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
        tell(outcome.frames)
    return outcome
