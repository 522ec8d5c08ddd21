"""Invalid frames in an RTL simulation, made from those of a pair of QPs."""

from cocotb.triggers import Timer

from weft.tb.sim.hostile.fuzzed_frames import FrameFuzzer, destination
from weft.tb.sim.pair.settings import PEER

BURST, BURST_NS = 6, 2_000
KEPT = 40              # newest genuine frames kept per victim
SHORTEST = 64          # frames must be longer, so that they contain a destination QPN


class UnknownPeers:
    """Sender of invalid frames to both hosts, made from genuine frames of two victims and aimed at them.

    Parameters
    ----------
    env : TwoCards
    victim : callable(side) -> int or None
        Returns the number of the attacked QP.
    spared : callable(side) -> set of int
        Returns the numbers of QPs that get no frame: their peers are honest, and a forged frame could pass as theirs.
    """

    def __init__(self, env, rng, *, victim, spared):
        self._env, self._rng, self._victim, self._spared = env, rng, victim, spared
        self._received = {side: [] for side in PEER}       # by destination side
        self.sent = 0
        for side, peer in PEER.items():
            env.link(f"{side}_to_{peer}").arrival_watchers.append(lambda frame, peer=peer: self._receive(peer, frame))

    def _receive(self, side, frame):
        if len(frame) > SHORTEST and destination(frame) == self._victim(side):
            self._received[side].append(bytes(frame))
            del self._received[side][:-KEPT]

    async def run(self, over):
        """Send frames until ``over()`` holds."""
        while not over():
            await Timer(BURST_NS, "ns")
            for side, genuine in self._received.items():
                if not genuine:
                    continue
                fuzzer, spared = FrameFuzzer(self._rng, genuine), self._spared(side)
                for _ in range(BURST):
                    frame = fuzzer.draw()
                    if len(frame) <= SHORTEST or destination(frame) not in spared:
                        self._env.sides[side].mac_rx.receive(frame)
                        self.sent += 1
