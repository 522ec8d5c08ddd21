"""Two cards in time, their drivers, their links and who judges them: what the gateware's bench has, without it."""

import random
from dataclasses import replace

from weft.driver.verbs.context import Context
from weft.model.card.host import TimedDevice
from weft.model.functional.host import run_apps
from weft.model.functional.parse import parse
from weft.model.link import EventLoop, Link
from weft.tb.sim.judge.dma_guard import DmaGuard
from weft.tb.sim.judge.ending import Ending
from weft.tb.sim.judge.scoreboard import Scoreboard
from weft.tb.sim.link.pcap import Captures
from weft.tb.sim.pair.sides import IP, MAC, PEER, SIDES

LINGER_NS = 3_000          # lets reports and writes that nobody waits for reach the hosts
LIMIT_NS = 1 << 62


class TimedPair:
    """The same with cards of :mod:`weft.model.card` as :class:`~weft.tb.sim.pair.card_pair.CardPair`.

    Parameters
    ----------
    a_to_b, b_to_a : LinkConfig
    host : HostConfig
        Of both hosts; what takes time counts.
    context_config : ContextConfig
    card : str
        Preset of the cards.
    seed : int
    captures : Path or None
        Folder of the captures.
    device_type : type
        Of the hosts with their cards.

    Attributes
    ----------
    loop : EventLoop
    devices, contexts, scoreboards, guards : dict of side
    links : dict of direction
    """

    def __init__(self, *, a_to_b, b_to_a, host, context_config, card="test", seed=0, captures=None,
                 device_type=TimedDevice):
        self.loop, self.seed, self._captures = EventLoop(), seed, Captures(captures)
        self.devices = {side: device_type(self.loop, seed=f"{seed}/{side}", preset=card, host=host)
                        for side in SIDES}
        self.links = {}
        for side, config in (("a", a_to_b), ("b", b_to_a)):
            name = f"{side}_to_{PEER[side]}"
            link = Link(self.loop, self.devices[PEER[side]].card.receive, config, f"{seed}/{name}",
                        *self._captures.taps(name))
            # Some bits are protected by nothing: a frame with one of them damaged is no lost frame.
            link.impairments.usable = (
                lambda frame, peer=PEER[side]: parse(frame, mac=MAC[peer], ip=IP[peer])[0].kind in ("DATA", "PROBE"))
            self.links[name], self.devices[side].transmit = link, link.send
        self.contexts, self.guards, self.scoreboards, self._endpoints = {}, {}, {}, {}
        for side in SIDES:
            self._open(side, replace(context_config, random=random.Random(f"{seed}/{side}/driver")))

    def _open(self, side, config):
        device = self.devices[side]
        context = self.contexts[side] = Context(device, mac=MAC[side], ip=IP[side], config=config)
        context.neighbours.add(IP[PEER[side]], MAC[PEER[side]])
        self.guards[side] = DmaGuard(device, context)
        self.scoreboards[side] = Scoreboard(context, device, self.links[f"{PEER[side]}_to_{side}"],
                                            device.card.params.window_bits)

    def connect(self, endpoints, **attributes):
        """Connect the QPs of two endpoints, ``{side: Endpoint}``; they are closed with the pair."""
        self._endpoints = endpoints
        for side, peer in PEER.items():
            endpoints[side].connect(endpoints[peer].connections, **attributes)
            for qp in endpoints[side].qps:
                self.scoreboards[side].follow(qp)

    def run(self, functions, limit_ns=LIMIT_NS):
        """Run a function on each side, ``{side: function}``, at the same time; their results."""
        return run_apps(self.loop, [(self.devices[side], function) for side, function in functions.items()], limit_ns)

    def close(self):
        """Wait for the last frames, check the scoreboards, destroy everything.

        Returns
        -------
        (dict, dict, list of str)
            As :meth:`~weft.tb.sim.pair.card_pair.CardPair.close` has them.
        """
        while any(link.in_flight for link in self.links.values()):
            self.loop.step()
        self.loop.run(self.loop.now_ns + LINGER_NS)
        ending = Ending(self.contexts, self._endpoints, self.guards, self.scoreboards)
        for step in (ending.judge, ending.leave):
            for side in SIDES:
                step(side)
        self._captures.close()
        return ending.counters, ending.blocks, ending.complaints
