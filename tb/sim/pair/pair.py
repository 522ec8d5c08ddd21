"""Two hosts, each with a card and an open driver; independent of the back end of the cards."""

import random
from dataclasses import replace

from weft.driver.verbs.context import Context
from weft.hdl.contract import abi
from weft.model.functional.parse import parse
from weft.tb.sim.judge.dma_guard import DmaGuard
from weft.tb.sim.judge.scoreboard import Scoreboard
from weft.tb.sim.pair.settings import IP, MAC, PEER, SIDES, BySide

LINGER_NS = 3_000          # time for outstanding reports and writes to reach the hosts


def serve_until(over, context, look_ns):
    """Let a driver answer its peer until ``over()`` holds; look again after ``look_ns`` at the latest."""
    while not over():
        context.progress()
        context.wait(look_ns)


class Pair:
    """Contexts, links and scoreboards of two hosts.

    A back end provides the cards: :class:`~weft.tb.sim.pair.rtl_pair.RtlPair` as RTL,
    :class:`~weft.tb.sim.pair.loop_pair.LoopPair` as models. A bench that calls the driver through :meth:`call`,
    :meth:`each` and :meth:`gather` runs on both.

    Parameters
    ----------
    context_config : ContextConfig
        Settings of both drivers.
    seed : hashable
        Seed of the drivers' random numbers; None: use those of ``context_config``.
    guarded, judged : bool
        Check the addresses of the cards' writes, and compare the cards with the functional model.
    sides
        Names of the sides. A pair has two; for more there is :class:`~weft.tb.sim.pair.network.Network`.

    Attributes
    ----------
    contexts, hosts, devices, links : BySide
        Driver, object with the ``memory``, :class:`~weft.driver.device.device.Device`, and
        :class:`~weft.model.link.Link` on which the side sends. The back end sets all but the first.
    guards, scoreboards : dict of side
        A scoreboard that a bench removes is not checked.
    counters, blocks : dict of side
        Counters of the card; uses of its knitting blocks after the QPs are closed. Set by :meth:`close`.
    complaints : list of str
        Failures found by the scoreboards and the guards. Set by :meth:`close`.
    """

    def __init__(self, context_config, *, seed, guarded=True, judged=True, sides=SIDES):
        self.sides = tuple(sides)
        self._configs = BySide(context_config if seed is None else
                               replace(context_config, random=random.Random(f"{seed}/{side}/driver"))
                               for side in sides)
        self.contexts, self.guards, self.scoreboards = BySide(sides), dict.fromkeys(sides if guarded else ()), {}
        self._judged, self._endpoints = judged, {side: [] for side in sides}
        self.counters, self.blocks, self.complaints = {}, {}, []

    # -------------------------------------------------------------------------- specific to a back end

    def window_bits(self, side):
        """Return the width of a card's bitmap window."""
        raise NotImplementedError

    def now_ns(self):
        """Return the simulated time in nanoseconds."""
        raise NotImplementedError

    def advance(self, nanoseconds):
        """Let at most ``nanoseconds`` of simulated time pass, in a thread that may block."""
        raise NotImplementedError

    def every(self, nanoseconds, function):
        """Call ``function()`` at intervals of simulated time; return a function that stops the calls."""
        raise NotImplementedError

    def on_interrupt(self, side, function):
        """Call ``function(vector)`` at each interrupt of a side."""
        raise NotImplementedError

    async def start(self):
        """Bring both cards up."""
        raise NotImplementedError

    async def call(self, function, *arguments, **options):
        """Call a function that may block in the driver, and return its result."""
        raise NotImplementedError

    async def each(self, function):
        """Call ``function(side)`` for all sides; on RTL, at the same time."""
        raise NotImplementedError

    async def gather(self, *functions):
        """Run a function on each side at the same time; return their results."""
        raise NotImplementedError

    async def _settle(self):
        """Wait until the last frames have been delivered."""
        raise NotImplementedError

    def _finish(self):
        """Close captures and perform the final checks of the back end."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ common

    def host(self, side):
        return self.hosts[side]

    def device(self, side):
        return self.devices[side]

    def link(self, direction):
        """Return the link ``"a_to_b"`` or ``"b_to_a"``."""
        return self.links[direction]

    def _open(self, side):
        """Open the driver of a side, which brings its card up. Runs in the side's thread."""
        context = self.contexts[side] = Context(self.device(side), mac=MAC[side], ip=IP[side],
                                                config=self._configs[side])
        for peer in self.sides:
            if peer != side:
                context.neighbours.add(IP[peer], MAC[peer])
        if side in self.guards:
            self.guards[side] = DmaGuard(self.host(side), context)

    def _watch_links(self):
        """Attach damage filters and scoreboards to the links. Both cards must be up."""
        for side, peer in PEER.items():
            # Some bits are not covered by the ICRC: a frame with damage only in those is not lost.
            self.link(f"{side}_to_{peer}").impairments.usable = (
                lambda frame, to=peer: parse(frame, mac=MAC[to], ip=IP[to])[0].kind in ("DATA", "PROBE"))
            self._score(side, self.link(f"{peer}_to_{side}"))

    def _score(self, side, link):
        """Judge a card by the frames of the link on which it receives."""
        if self._judged:
            self.scoreboards[side] = Scoreboard(self.contexts[side], self.host(side), link, self.window_bits(side))

    async def connect(self, endpoints, **attributes):
        """Connect the QPs of two endpoints, ``{side: Endpoint}``; :meth:`close` closes them, and no earlier ones."""
        self._endpoints = {side: [] for side in self.sides}
        await self.join(*endpoints.items(), **attributes)

    async def join(self, first, second, **attributes):
        """Connect the QPs of two endpoints, ``(side, Endpoint)`` each; :meth:`close` closes them."""
        for (side, end), (_, peer) in ((first, second), (second, first)):
            self._endpoints[side].append(end)
            await self.call(self._connect, side, end, peer, **attributes)

    def _connect(self, side, end, peer, **attributes):
        end.connect(peer.connections, **attributes)
        if side in self.scoreboards:
            for qp in end.qps:
                self.scoreboards[side].follow(qp)

    async def close(self):
        """Wait for the last frames, check the scoreboards, and close the endpoints.

        Return :attr:`counters`, :attr:`blocks` and :attr:`complaints`.
        """
        await self._settle()
        for step in (self._judge, self._leave):
            await self.each(step)
        self._finish()
        return self.counters, self.blocks, self.complaints

    def _judge(self, side):
        """Compare the counters and QPs of a card with the traffic that the scoreboard saw."""
        context, qps = self.contexts[side], [qp for end in self._endpoints[side] for qp in end.qps]
        queries = {}
        for qp in qps:
            answer = context.commands.call(abi.CommandOpcode.QP_QUERY, qpn=qp.qp_num)
            queries[qp.qp_num] = (answer.result0, answer.result1)
        self.counters[side] = context.statistics()
        if side in self.scoreboards:
            spans = sum(qp.receiver.counts["coarsened"] for qp in qps)
            self._ask(f"scoreboard of {side}", self.scoreboards[side].check, self.counters[side], queries, spans)

    def _leave(self, side):
        for end in self._endpoints[side]:
            end.close()
        self.blocks[side] = self.contexts[side].knitting.check()
        self._ask(f"memory of {side}", self.guards[side].check)

    def _ask(self, judge, check, *about):
        try:
            check(*about)
        except AssertionError as error:
            self.complaints.append(f"{judge}: {error}")
