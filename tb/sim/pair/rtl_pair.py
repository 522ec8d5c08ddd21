"""Two cards as RTL with an open driver on each side."""

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather
from cocotb.utils import get_sim_time

from weft.hdl.contract.params import preset
from weft.tb.sim.pair.pair import LINGER_NS, Pair
from weft.tb.sim.pair.settings import SIDES, BySide
from weft.tb.sim.pair.two_hosts import TwoCards

QUIET_NS = 1_000


@bridge
def _call(function, *arguments, **options):
    """Call a function in a thread. It may be a ``partial``, which :func:`bridge` does not accept."""
    return function(*arguments, **options)


class RtlPair(Pair):
    """:class:`Pair` around module ``two_cards``, for cards of the preset ``card``.

    Attributes
    ----------
    env : TwoCards
    """

    def __init__(self, dut, env_config, context_config, *, card="test", seed=0, guarded=True,
                 judged=True, sides=SIDES):
        super().__init__(context_config, seed=seed, guarded=guarded, judged=judged, sides=sides)
        self.env, self.card = self._made(dut, env_config, seed), preset(card)

    def _made(self, dut, env_config, seed):
        """Return the environment of the cards."""
        return TwoCards(dut, env_config, seed=seed)

    def window_bits(self, side):
        return self.card.window_bits

    def now_ns(self):
        return get_sim_time("ns")

    def advance(self, nanoseconds):
        self.device(self.sides[0]).wait(nanoseconds)

    def every(self, nanoseconds, function):
        async def calls():
            while True:
                await Timer(nanoseconds, "ns")
                function()

        return cocotb.start_soon(calls()).cancel

    def on_interrupt(self, side, function):
        self.device(side).interrupted = function

    async def start(self):
        """Enumerate the hosts and bring the cards up, both at the same time."""
        await self.env.start()
        self.hosts, self.devices, self.links = (
            BySide(getattr(self.env.sides[side], name) for side in self.sides) for name in ("host", "device", "link"))
        await self.each(self._open)
        self._watch_links()

    async def call(self, function, *arguments, **options):
        return await _call(function, *arguments, **options)

    async def each(self, function):
        await gather(*(_call(function, side) for side in self.sides))

    async def gather(self, *functions):
        return await gather(*map(_call, functions))

    async def drain(self):
        """Wait until no frame is on the link."""
        while self.env.frames_in_flight:
            await Timer(QUIET_NS, "ns")

    async def _settle(self):
        await self.drain()
        await Timer(LINGER_NS, "ns")

    def _finish(self):
        self.env.finish()
