"""Rounds of fuzzing over a pair of cards.

A round has a pair of honest QPs and a pair of victims. First the victims transfer data over a link with losses, which
yields genuine frames of every opcode. When the victims have no outstanding requests, frames derived from the genuine
ones are injected.
"""

from collections import Counter

from weft.driver.application.file_transfer import Endpoint
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.sim.hostile.fuzzed_frames import FrameFuzzer, destination
from weft.tb.sim.pair.settings import PEER, SIDES, BySide

LENGTH, PART = 16_384, 4_096
SENT, RECEIVED = 1, 7        # numbers of the work requests
LOST = 0.2                   # of the frames for a victim
TIMEOUT = 5_000             # steps
REST = 40                    # steps after the last frame


class Fuzzing:
    """Endpoints of both hosts, and the victims of the round. The methods block; all must be called from one thread.

    ``step()`` advances time, ``receive(side, frame)`` passes a frame to a card, and after ``burst`` frames for each
    card ``settle()`` waits until the cards have taken them. ``victim_timeout`` is in the encoding of the verbs;
    ``attributes`` are those of the honest connection.
    """

    def __init__(self, pair, rng, *, step, receive, settle, burst, victim_timeout, **attributes):
        self.pair, self.rng, self._burst, self._timeout = pair, rng, burst, victim_timeout
        self._step, self._receive, self._settle = step, receive, settle
        self.kinds, self.victims, self.cqs = Counter(), [], []
        # genuine frames for the victim and the honest QP of a side
        self._received = BySide(([], []) for _ in SIDES)
        self.ends = BySide(Endpoint(context, LENGTH) for context in pair.contexts)
        self.honest = [end.qps[0] for end in self.ends]
        for side, peer in PEER.items():
            self.ends[side].connect(self.ends[peer].connections, **attributes)
            pair.link(f"{peer}_to_{side}").impairments.drop_when(lambda frame, _, side=side: self._record(side, frame))

    def _record(self, side, frame):
        """Record a genuine frame; return true if the frame must be lost."""
        of_victim, of_honest = self._received[side]
        number = destination(frame)
        if number == self.ends[side].qps[0].qp_num:
            of_honest.append(bytes(frame))
        if not self.victims or number != self.victims[SIDES.index(side)].qp_num:
            return False
        of_victim.append(bytes(frame))
        return self.rng.random() < LOST

    def step(self):
        """Advance time, and let both drivers make progress."""
        self._step()
        for context in self.pair.contexts:
            context.progress()

    def _transfer(self, qps, cqs):
        """Write in both directions, to the end of the peer's memory, and check completions and bytes."""
        data = [self.rng.randbytes(PART) for _ in self.ends]
        for me, you, qp, peer, sent in zip(self.ends, self.ends[::-1], qps, qps[::-1], data, strict=True):
            me.mr.write(sent)
            peer.post_recv(RecvWR(RECEIVED))
            qp.post_send(SendWR(SENT, WROpcode.RDMA_WRITE_WITH_IMM, sg=[SGE(me.mr.buf, PART, me.mr.lkey)], imm_data=5,
                                rkey=you.mr.rkey, remote_addr=you.mr.buf + LENGTH - PART))
        for _ in range(TIMEOUT):
            self.step()
            if all(len(cq) >= 2 for cq in cqs):
                break
        for end, cq, sent in zip(self.ends, cqs, data[::-1], strict=True):
            found = sorted((wc.wr_id, wc.status) for wc in cq.take(8)[1])
            assert found == [(SENT, WCStatus.SUCCESS), (RECEIVED, WCStatus.SUCCESS)], found
            assert end.mr.read(PART, LENGTH - PART) == sent, "the bytes differ"

    def prepare(self):
        """Create new victims, and transfer data between victims and between honest QPs."""
        self.cqs = [CQ(context, 64) for context in self.pair.contexts]
        self.victims = [QP(end.pd, rc_init_attr(cq)) for end, cq in zip(self.ends, self.cqs, strict=True)]
        for qp, peer in zip(self.victims, self.victims[::-1], strict=True):
            qp.connect(peer.connection, path_mtu=1, timeout=self._timeout)
        self._transfer(self.victims, self.cqs)
        self._transfer(self.honest, [end.cq for end in self.ends])

    def feed(self, frames):
        """Inject ``frames`` frames: no request completes, and the honest QPs still work."""
        fuzzers = [FrameFuzzer(self.rng, *map(list, received)) for received in self._received]
        for number in range(frames):
            side = number % len(SIDES)
            self._receive(SIDES[side], fuzzers[side].draw())
            if number % (len(SIDES) * self._burst) == len(SIDES) * self._burst - 1:
                self._settle()
        self._settle()
        for _ in range(REST):
            self.step()
        for cq in self.cqs:
            found = [(wc.wr_id, wc.status.name) for wc in cq.take(64)[1]]
            assert not found and not cq.overrun, f"completions of nothing: {found}"
        self._transfer(self.honest, [end.cq for end in self.ends])
        self.kinds += sum((fuzzer.drawn for fuzzer in fuzzers), Counter())

    def end(self):
        """Close the victims."""
        for each in (*self.victims, *self.cqs):
            each.close()
        for frames in sum(self._received, ()):
            frames.clear()
        self.victims = []
