"""Two hosts with a card each and open drivers, whatever the cards are made of."""

import random
from dataclasses import replace

from weft.driver.verbs.context import Context
from weft.model.functional.parse import parse
from weft.tb.sim.judge.dma_guard import DmaGuard
from weft.tb.sim.judge.ending import Ending
from weft.tb.sim.judge.scoreboard import Scoreboard
from weft.tb.sim.pair.sides import IP, MAC, PEER, SIDES, BySide

LINGER_NS = 3_000          # lets reports and writes that nobody waits for reach the hosts


class Pair:
    """Contexts, links and judges of two hosts; :class:`~weft.tb.sim.pair.rtl_pair.RtlPair` has the cards as RTL,
    :class:`~weft.tb.sim.pair.loop_pair.LoopPair` as models.

    Parameters
    ----------
    context_config : ContextConfig
        Of both drivers.
    seed : hashable
        Of the drivers' random numbers.
    guarded : bool
        Watch where the cards write.
    judged : bool
        Compare what the cards do with the functional model.

    Attributes
    ----------
    contexts : BySide
    guards, scoreboards : dict of side
        A scoreboard that a bench takes out is not checked.
    """

    def __init__(self, context_config, *, seed, guarded=True, judged=True):
        self._configs = BySide(replace(context_config, random=random.Random(f"{seed}/{side}/driver"))
                               for side in SIDES)
        self.contexts, self.guards, self.scoreboards = BySide(SIDES), dict.fromkeys(SIDES if guarded else ()), {}
        self._judged, self._endpoints = judged, {}

    def host(self, side):
        """Return what has the ``memory`` of a side."""
        raise NotImplementedError

    def device(self, side):
        """Return the driver's :class:`~weft.driver.device.device.Device` of a side."""
        raise NotImplementedError

    def link(self, way):
        """Return the :class:`~weft.model.link.LinkBase` ``"a_to_b"`` or ``"b_to_a"``."""
        raise NotImplementedError

    def window_bits(self, side):
        """Return the width of a card's window."""
        raise NotImplementedError

    def _open(self, side):
        """Bring the card of a side up. Runs in the side's thread."""
        context = self.contexts[side] = Context(self.device(side), mac=MAC[side], ip=IP[side],
                                                config=self._configs[side])
        context.neighbours.add(IP[PEER[side]], MAC[PEER[side]])
        if side in self.guards:
            self.guards[side] = DmaGuard(self.host(side), context)

    def _watch_links(self):
        """Both cards are up."""
        for side, peer in PEER.items():
            # Some bits are protected by nothing: a frame with one of them damaged is no lost frame.
            self.link(f"{side}_to_{peer}").impairments.usable = (
                lambda frame, to=peer: parse(frame, mac=MAC[to], ip=IP[to])[0].kind in ("DATA", "PROBE"))
            if self._judged:
                self.scoreboards[side] = Scoreboard(self.contexts[side], self.host(side),
                                                    self.link(f"{peer}_to_{side}"), self.window_bits(side))

    def _connect(self, side, **attributes):
        """Connect the QPs of the endpoint of a side with those of its peer. Runs in the side's thread."""
        end = self._endpoints[side]
        end.connect(self._endpoints[PEER[side]].connections, **attributes)
        if side in self.scoreboards:
            for qp in end.qps:
                self.scoreboards[side].follow(qp)

    def _ending(self):
        return Ending(self.contexts, self._endpoints, self.guards, self.scoreboards)
