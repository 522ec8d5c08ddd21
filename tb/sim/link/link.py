"""One direction of an Ethernet link inside an RTL simulation."""

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from weft.model.link import LinkBase


class LinkDirection(LinkBase):
    """Link direction in simulated time; it wakes only for frames."""

    @property
    def now_ns(self):
        return get_sim_time("ns")

    def _carry(self, now, at, arriving):
        cocotb.start_soon(self._wait(now, at, arriving))

    async def _wait(self, now, at, arriving):
        if at > now:
            await Timer(round((at - now) * 1000), "ps")
        self._arrive(at, arriving)
