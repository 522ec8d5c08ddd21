"""Fuzzing two drivers over functional cards, in rounds that repeat alone.

A round has an honest pair of QPs and a pair of victims. The victims move some data over a link that loses, so that
there are genuine frames of every opcode; then nothing of theirs is outstanding, and frames made from those come in.
"""

import random
import traceback
from dataclasses import dataclass, field

from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.qp import QP, QPInitAttr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.model.functional.host import FunctionalDevice
from weft.tb.fuzz.frames import QPN_AT, FrameFuzzer
from weft.tb.judge.growth import sizes
from weft.tb.software.functional_pair import close_and_check, make_endpoints, make_pair

ROUND = 2_000        # frames
LOOK = 20            # frames between two looks of the drivers
STEP_NS = 2_000
LENGTH, PART = 16_384, 4_096
PATIENCE = 5_000     # steps
SLACK = 64           # objects that may come and go with a message
LOST = 0.2


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
    kinds: dict = field(default_factory=dict)
    drops: dict = field(default_factory=dict)


def _add(sums, more):
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count


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
        self.victims = [QP(end.pd, QPInitAttr(scq=cq, rcq=cq)) for end, cq in zip(self.ends, self.cqs, strict=True)]
        for qp, peer in zip(self.victims, self.victims[::-1], strict=True):
            qp.connect(peer.connection, path_mtu=1, timeout=12)
        self.genuine, self.spared = ([], []), ([], [])
        for side in range(2):
            self.pair.links[side].drop = lambda frame, side=side: self._seen(frame, side)

    def _seen(self, frame, side):
        """Keep what is sent to the QPs of the other side; some of what is for the victim is lost."""
        qpn, other = int.from_bytes(frame[QPN_AT:QPN_AT + 3], "big"), 1 - side
        if qpn == self.ends[other].qps[0].qp_num:
            self.spared[other].append(bytes(frame))
        if qpn != self.victims[other].qp_num:
            return False
        self.genuine[other].append(bytes(frame))
        return self.rng.random() < LOST

    def _step(self):
        for context in self.pair.contexts:
            context.progress()
        self.pair.loop.run(self.pair.loop.now_ns + STEP_NS)

    def _transfer(self, qps, cqs):
        """A write each way, to the end of the peer's memory: completions and bytes are right."""
        data = []
        for me, you, qp, peer in zip(self.ends, self.ends[::-1], qps, qps[::-1], strict=True):
            data.append(self.rng.randbytes(PART))
            me.mr.write(data[-1])
            peer.post_recv(RecvWR(7))
            wr = SendWR(1, sg=[SGE(me.mr.buf, PART, me.mr.lkey)], opcode=WROpcode.RDMA_WRITE_WITH_IMM, imm_data=5)
            wr.set_wr_rdma(you.mr.rkey, you.mr.buf + LENGTH - PART)
            qp.post_send(wr)
        for _ in range(PATIENCE):
            self._step()
            if all(len(cq) >= 2 for cq in cqs):
                break
        for cq in cqs:
            found = sorted((wc.wr_id, wc.status) for wc in cq.take(8)[1])
            assert found == [(1, WCStatus.SUCCESS), (7, WCStatus.SUCCESS)], found
        for end, sent in zip(self.ends, data[::-1], strict=True):
            assert end.mr.read(PART, LENGTH - PART) == sent, "the bytes differ"

    def run(self, frames):
        """Fuzz with so many frames.

        Raises
        ------
        AssertionError, or whatever the frames made anybody raise
        """
        pair = self.pair
        self._transfer(self.victims, self.cqs)
        self._transfer([end.qps[0] for end in self.ends], [end.cq for end in self.ends])
        before = [sizes(context, (FunctionalDevice,)) for context in pair.contexts]
        fuzzers = [FrameFuzzer(self.rng, list(genuine), list(spared))
                   for genuine, spared in zip(self.genuine, self.spared, strict=True)]
        for number in range(frames):
            side = self.rng.randrange(2)
            pair.devices[side].card.receive(fuzzers[side].draw())
            if number % LOOK == LOOK - 1:
                self._step()
        for _ in range(LOOK):
            self._step()
        for cq in self.cqs:
            found = [(wc.wr_id, wc.status.name) for wc in cq.take(64)[1]]
            assert not found and not cq.overrun, f"completions of nothing: {found}"
        self._transfer([end.qps[0] for end in self.ends], [end.cq for end in self.ends])
        drops = {}
        for device in pair.devices:
            _add(drops, {name: n for name, n in device.card.counters.items() if name.startswith("drop_")})
        for cq, qp in zip(self.cqs, self.victims, strict=True):
            qp.close()
            cq.close()
        for _ in range(PATIENCE):      # blocks that came back are sorted in bit by bit
            self._step()
            grown = {name: (was[name], count)
                     for was, context in zip(before, pair.contexts, strict=True)
                     for name, count in sizes(context, (FunctionalDevice,)).items() if count > was[name] + SLACK}
            if not grown:
                break
        assert not grown, f"grown: {grown}"
        close_and_check(pair, self.ends)
        kinds = {}
        for fuzzer in fuzzers:
            _add(kinds, fuzzer.drawn)
        return kinds, drops


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
            _add(outcome.kinds, kinds)
            _add(outcome.drops, drops)
        except Exception:
            last = traceback.format_exc().strip()
            outcome.failures.append(f"round of {count} frames with seed {name!r}:\n{last}")
        outcome.frames += count
        number += 1
        tell(outcome.frames)
    return outcome
