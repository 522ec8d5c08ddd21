"""Calls at times of an RTL simulation, with the interface of an event loop."""

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time


class SimulatorLoop:
    """Calls of functions in the order of simulated time, in whole picoseconds."""

    @property
    def now_ns(self):
        return get_sim_time("ns")

    def call_at(self, time_ns, function, *args):
        """Call ``function`` at a time, or now if that has passed."""
        cocotb.start_soon(self._call(time_ns, function, args))

    async def _call(self, time_ns, function, args):
        left_ps = round((time_ns - self.now_ns) * 1000)
        if left_ps > 0:
            await Timer(left_ps, "ps")
        function(*args)
