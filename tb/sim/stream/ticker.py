"""One callback per rising edge of a clock, shared by all clients."""

import weakref

import cocotb
from cocotb.triggers import Event, RisingEdge
from cocotb.utils import get_sim_time

_tickers = weakref.WeakKeyDictionary()


class Ticker:
    """Caller of registered functions at each rising edge of a clock while they are awake.

    A separate task for each function would cost several times as much. There is no callback while all of them sleep.
    During the calls, ``now_ps`` is the time of the edge.
    """

    def __init__(self, clk):
        self.clk, self.now_ps = clk, 0
        self._awake, self._woken = {}, Event()
        self._task = cocotb.start_soon(self._run())

    @classmethod
    def of(cls, clk):
        """Return the ticker of a clock in the running test."""
        ticker = _tickers.get(clk)
        if ticker is None or ticker._task.done():
            ticker = _tickers[clk] = cls(clk)
        return ticker

    def wake(self, edge):
        """Call ``edge`` from the next rising edge on, but not at the one that is being handled."""
        if edge not in self._awake:
            self._awake[edge] = None
            self._woken.set()

    def sleep(self, edge):
        """Stop calling ``edge``."""
        del self._awake[edge]

    async def _run(self):
        rising = RisingEdge(self.clk)
        while True:
            if not self._awake:
                self._woken.clear()
                await self._woken.wait()
            await rising
            self.now_ps = get_sim_time("ps")
            for edge in tuple(self._awake):
                edge()
