"""One callback for each rising edge of a clock, for all that looks at edges."""

import weakref

import cocotb
from cocotb.triggers import Event, RisingEdge
from cocotb.utils import get_sim_time

_tickers = weakref.WeakKeyDictionary()


class Ticker:
    """Calls ends of buses at each rising edge of a clock, those that are awake.

    A task for each end would cost several times as much. There is no callback while all ends sleep.

    Attributes
    ----------
    now_ps : int
        Time of the edge, while ends are called.
    """

    def __init__(self, clk):
        self.clk, self.now_ps = clk, 0
        self._awake, self._woken = {}, Event()
        self._task = cocotb.start_soon(self._run())

    @classmethod
    def of(cls, clk):
        """The one of a clock in the test that runs."""
        ticker = _tickers.get(clk)
        if ticker is None or ticker._task.done():
            ticker = _tickers[clk] = cls(clk)
        return ticker

    def wake(self, edge):
        """Call ``edge`` from the next rising edge on; not again at one that is being handled."""
        if edge not in self._awake:
            self._awake[edge] = None
            self._woken.set()

    def sleep(self, edge):
        """Call ``edge`` no more."""
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
