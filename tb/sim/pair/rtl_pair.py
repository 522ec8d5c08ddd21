"""Two cards as RTL with an open driver on each side."""

from cocotb.task import bridge
from cocotb.triggers import Timer, gather

from weft.hdl.contract.params import preset
from weft.tb.sim.pair.pair import LINGER_NS, Pair
from weft.tb.sim.pair.sides import SIDES
from weft.tb.sim.pair.two_hosts import TwoCards

QUIET_NS = 1_000


class RtlPair(Pair):
    """:class:`Pair` around module ``two_cards``.

    Parameters
    ----------
    dut
    env_config : EnvConfig
    context_config : ContextConfig
    card : str
        Preset of the cards.
    seed : int
    guarded, judged : bool
        As :class:`Pair` has it.

    Attributes
    ----------
    env : TwoCards
    """

    def __init__(self, dut, env_config, context_config, *, card="test", seed=0, guarded=True, judged=True):
        super().__init__(context_config, seed=seed, guarded=guarded, judged=judged)
        self.env, self.card = TwoCards(dut, env_config, seed=seed), preset(card)

    def host(self, side):
        return self.env.host(side)

    def device(self, side):
        return self.env.device(side)

    def link(self, way):
        return self.env.link(way)

    def window_bits(self, side):
        return self.card.window_bits

    async def start(self):
        """Enumerate the hosts and bring the cards up, both at the same time."""
        await self.env.start()
        await gather(*(bridge(self._open)(side) for side in SIDES))
        self._watch_links()

    async def connect(self, endpoints, **attributes):
        """Connect the QPs of two endpoints, ``{side: Endpoint}``; they are closed with the pair."""
        self._endpoints = endpoints
        for side in SIDES:
            await bridge(self._connect)(side, **attributes)

    async def close(self):
        """Wait for the last frames, check the scoreboards, destroy everything.

        Returns
        -------
        (dict, dict, list of str)
            Counters of each side; uses of its knitting blocks after the QPs are gone; complaints of the scoreboards
            and of the guards of the hosts' memories.
        """
        while self.env.frames_in_flight:
            await Timer(QUIET_NS, "ns")
        await Timer(LINGER_NS, "ns")
        ending = self._ending()
        for step in (ending.judge, ending.leave):
            await gather(*(bridge(step)(side) for side in SIDES))
        self.env.finish()
        return ending.counters, ending.blocks, ending.complaints
