"""Two cards with an open driver and a guard of the host's memory on each side."""

import random
from dataclasses import replace

from cocotb.task import bridge
from cocotb.triggers import gather

from weft.driver.verbs.context import Context
from weft.tb.sim.judge.dma_guard import DmaGuard
from weft.tb.sim.pair.sides import IP, MAC, PEER, SIDES
from weft.tb.sim.pair.two_hosts import TwoCards


class OpenPair:
    """:class:`~weft.tb.sim.pair.two_hosts.TwoCards` with its drivers.

    Parameters
    ----------
    dut
    env_config : EnvConfig
    context_config : ContextConfig
        Of both drivers.
    seed : int

    Attributes
    ----------
    env : TwoCards
    contexts, guards : dict of side
    """

    def __init__(self, dut, env_config, context_config, *, seed):
        self.env = TwoCards(dut, env_config, seed=seed)
        self._configs = {side: replace(context_config, random=random.Random(f"{seed}/{side}/driver")) for side in SIDES}
        self.contexts, self.guards = {}, {}

    async def start(self):
        """Enumerate the hosts and bring the cards up, both at the same time."""
        await self.env.start()
        await gather(*(bridge(self._open)(side) for side in SIDES))
        for held in (self.contexts, self.guards):       # whichever was first: who goes through them begins with a
            held |= {side: held.pop(side) for side in SIDES}

    def _open(self, side):
        """Runs in the side's thread."""
        self.contexts[side] = Context(self.env.device(side), mac=MAC[side], ip=IP[side], config=self._configs[side])
        self.contexts[side].neighbours.add(IP[PEER[side]], MAC[PEER[side]])
        self.guards[side] = DmaGuard(self.env.host(side), self.contexts[side])
