"""One direction of an Ethernet link inside an RTL simulation."""

from weft.model.link import LinkBase


class LinkDirection(LinkBase):
    """Link direction in simulated time; it wakes only for frames."""

    @property
    def now_ns(self):
        from cocotb.utils import get_sim_time

        return get_sim_time("ns")

    def _carry(self, now, at, arriving):
        import cocotb

        cocotb.start_soon(self._wait(now, at, arriving))

    async def _wait(self, now, at, arriving):
        from cocotb.triggers import Timer

        if at > now:
            await Timer(round((at - now) * 1000), "ps")
        self._arrive(at, arriving)
