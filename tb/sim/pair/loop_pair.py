"""Two functional cards or two cards in time, with an open driver on each side, on an event loop."""

from weft.model.functional.host import connected_pair, run_apps
from weft.tb.sim.link.pcap import Captures
from weft.tb.sim.pair.pair import LINGER_NS, Pair
from weft.tb.sim.pair.sides import SIDES, BySide

LIMIT_NS = 1 << 62


class LoopPair(Pair):
    """:class:`Pair` with cards of :mod:`weft.model`.

    Parameters
    ----------
    device_type : type
        Of the hosts with their cards.
    context_config : ContextConfig
    forward, backward : LinkConfig
        From A to B and from B to A; by default both are alike.
    seed : hashable
    captures : Path or None
        Folder of the captures.
    guarded, judged : bool
        As :class:`Pair` has them.
    limit_ns : int
        Of simulated time that :meth:`run` takes.
    card_options
        Passed to ``device_type``.

    Attributes
    ----------
    loop : EventLoop
    devices, links : BySide
    """

    def __init__(self, device_type, context_config, *, forward=None, backward=None, seed=0, captures=None, guarded=True,
                 judged=True, limit_ns=LIMIT_NS, **card_options):
        super().__init__(context_config, seed=seed, guarded=guarded, judged=judged)
        self._captures, self._limit_ns = Captures(captures), limit_ns
        self.loop, devices, links = connected_pair(seed=seed, forward=forward, backward=backward,
                                                   taps=self._captures.taps, device_type=device_type, **card_options)
        self.devices, self.links = BySide(devices), BySide(links)
        for side in SIDES:
            self._open(side)
        self._watch_links()

    def host(self, side):
        return self.devices[side]

    def device(self, side):
        return self.devices[side]

    def link(self, way):
        return self.links[way]

    def window_bits(self, side):
        return self.devices[side].card.params.window_bits

    def connect(self, endpoints, **attributes):
        """Connect the QPs of two endpoints, ``{side: Endpoint}``; they are closed with the pair."""
        self._endpoints = endpoints
        for side in SIDES:
            self._connect(side, **attributes)

    def run(self, *functions):
        """Run a function on each side at the same time; return their results."""
        return run_apps(self.loop, list(zip(self.devices, functions, strict=False)), self._limit_ns)

    def close(self):
        """Wait for the last frames, check the scoreboards, destroy everything.

        Returns
        -------
        (dict, dict, list of str)
            As :meth:`~weft.tb.sim.pair.rtl_pair.RtlPair.close` has them.
        """
        while any(link.in_flight for link in self.links):
            self.loop.step()
        self.loop.run(self.loop.now_ns + LINGER_NS)
        ending = self._ending()
        for step in (ending.judge, ending.leave):
            for side in SIDES:
                step(side)
        self._captures.close()
        return ending.counters, ending.blocks, ending.complaints
