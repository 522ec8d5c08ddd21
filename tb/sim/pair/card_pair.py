"""Two cards, their open drivers and their scoreboards: the stage of the end-to-end benches."""

from cocotb.task import bridge
from cocotb.triggers import Timer, gather

from weft.hdl.contract.params import preset
from weft.model.functional.parse import parse
from weft.tb.sim.judge.ending import Ending
from weft.tb.sim.judge.scoreboard import Scoreboard
from weft.tb.sim.pair.open_pair import IP, MAC, PEER, OpenPair
from weft.tb.sim.pair.two_cards import SIDES

LINGER_NS = 3_000          # lets reports and writes that nobody waits for reach the hosts
QUIET_NS = 1_000


class CardPair(OpenPair):
    """:class:`~weft.tb.sim.pair.open_pair.OpenPair` with a scoreboard on each side.

    Parameters
    ----------
    dut
    env_config : EnvConfig
    context_config : ContextConfig
    card : str
        Preset of the cards.
    seed : int

    Attributes
    ----------
    scoreboards : dict of side
        A scoreboard that a bench takes out is not checked.
    """

    def __init__(self, dut, env_config, context_config, *, card="test", seed=0):
        super().__init__(dut, env_config, context_config, seed=seed)
        self.card = preset(card)
        self.scoreboards, self._endpoints = {}, {}

    async def start(self):
        """Enumerate the hosts and bring the cards up."""
        await super().start()
        for side, peer in PEER.items():
            # Some bits are protected by nothing: a frame with one of them damaged is no lost frame.
            self.env.link(f"{side}_to_{peer}").impairments.usable = (
                lambda frame, peer=peer: parse(frame, mac=MAC[peer], ip=IP[peer])[0].kind in ("DATA", "PROBE"))
            self.scoreboards[side] = Scoreboard(self.contexts[side], self.env.host(side),
                                                self.env.link(f"{peer}_to_{side}"), self.card.window_bits)

    async def connect(self, endpoints, **attributes):
        """Connect the QPs of two endpoints, ``{side: Endpoint}``; they are closed with the pair."""
        self._endpoints = endpoints
        for side, peer in PEER.items():
            await bridge(endpoints[side].connect)(endpoints[peer].connections, **attributes)
            for qp in endpoints[side].qps:
                self.scoreboards[side].follow(qp)

    async def close(self):
        """Wait for the last frames, check the scoreboards, destroy everything.

        Returns
        -------
        (dict, dict, list of str)
            Counters of each side; uses of its knitting blocks after the QPs are gone; what the scoreboards
            and the guards of the hosts' memories say.
        """
        while self.env.frames_in_flight:
            await Timer(QUIET_NS, "ns")
        await Timer(LINGER_NS, "ns")
        ending = Ending(self.contexts, self._endpoints, self.guards, self.scoreboards)
        for step in (ending.judge, ending.leave):
            await gather(*(bridge(step)(side) for side in SIDES))
        self.env.finish()
        return ending.counters, ending.blocks, ending.complaints
