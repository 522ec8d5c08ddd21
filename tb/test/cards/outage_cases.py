"""A host takes the card away from its driver during traffic: for a while, or permanently."""

from collections import Counter

import cocotb
from cocotb.task import bridge, resume
from cocotb.triggers import Timer, gather

from weft.driver.device.health import DMA_LOST, GONE, RESET, DeviceFatal
from weft.driver.terms.enums import EventType, QPState, WCStatus
from weft.tb.sim.pcie import outage
from weft.tb.test.cards.reset_cases import SERVICE_NS, SILENCE_NS, ResetRun, nodes_are_fetched, payload_is_read

AWAY_NS = 20_000


def fatal_sentence(call):
    """Return the message of the DeviceFatal that a call raises, or an empty string."""
    try:
        call()
    except DeviceFatal as error:
        return str(error)
    return ""


class OutageRun(ResetRun):
    """A :class:`~weft.tb.test.cards.reset_cases.ResetRun` with an outage before the reset.

    The victim's host takes the card away; the driver detects it by itself.

    Parameters
    ----------
    take_away : coroutine(env, side)
    give_back : coroutine(env, side), optional
        Called when the driver has detected the outage.
    """

    silence_ns = 30_000

    def __init__(self, dut, victim, due, take_away, give_back=None):
        super().__init__(dut, victim, due, before=OutageRun.outage)
        self.take_away, self.give_back = resume(take_away), resume(give_back) if give_back else None
        self.reason = None

    def outage(self):
        """Run the outage in the victim's thread."""
        context, env = self.context, self.pair.env
        self.take_away(env, self.victim)
        began = context.device.now_ns()
        event = context.get_async_event(SILENCE_NS)
        assert context.device.now_ns() - began < 5 * self.silence_ns + AWAY_NS, "the driver was slow to notice"
        assert (event.event_type, event.element) == (EventType.DEVICE_FATAL, context)
        self.reason = event.reason
        assert all(qp.qp_state is QPState.ERR for qp in self.end.qps)
        context.progress()
        wcs = self.end.cq.take(1000)[1]
        self.completions[self.victim] += wcs
        statuses = Counter(wc.status for wc in self.completions[self.victim])
        assert 1 <= statuses[WCStatus.FATAL_ERR] <= len(self.end.qps), statuses
        assert set(statuses) <= {WCStatus.SUCCESS, WCStatus.FATAL_ERR, WCStatus.WR_FLUSH_ERR}, statuses
        for wait in (self.end.cq.wait, context.statistics):
            assert fatal_sentence(wait).startswith(self.reason)
        if self.give_back:
            self.give_back(env, self.victim)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def bus_master_cleared(dut):
    """Disable bus mastering until the driver has detected it.

    After that the card writes no memory, even with bus mastering enabled.
    """
    run = OutageRun(dut, "a", payload_is_read, outage.clear_bus_master, outage.set_bus_master)
    await run.run()
    assert run.reason == DMA_LOST


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def bus_master_cleared_briefly(dut):
    """Bus mastering is enabled again before the driver can detect it: lost writes stay lost, so the card stops."""
    async def for_a_moment(env, side):
        await outage.clear_bus_master(env, side)
        await Timer(1_000, "ns")
        await outage.set_bus_master(env, side)

    run = OutageRun(dut, "b", nodes_are_fetched, for_a_moment)
    await run.run()
    assert run.reason == DMA_LOST


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def hot_reset(dut):
    """The slot is reset: the card is in its power-on state and has lost all its state."""
    async def reset(env, side):
        await outage.hot_reset(env, side, AWAY_NS)

    run = OutageRun(dut, "a", payload_is_read, reset)
    await run.run()
    assert run.reason in (RESET, GONE)


class RemovalRun(OutageRun):
    """The victim's card is removed permanently."""

    def __init__(self, dut, victim, due):
        super().__init__(dut, victim, due, outage.pull_out)

    def _bring_back(self):
        assert fatal_sentence(self.context.reset).startswith(GONE)

    async def run(self):
        pair, victim, peer = self.pair, self.victim, self.peer
        await self.start()
        await gather(*(bridge(self._first_incarnation)(side) for side in "ab"))
        assert self.reason == GONE
        assert [wc.status for wc in self.completions[peer]].count(WCStatus.RETRY_EXC_ERR) == len(self.end.qps)
        writes = []
        pair.env.host(victim).memory.dma_watchers.append(lambda *where: writes.append(where))
        await bridge(self.context.close)()
        assert not pair.env.host(victim).memory.pages, "memory was not given back"
        await Timer(SERVICE_NS, "ns")
        assert not writes
        await bridge(pair.contexts[peer].close)()
        assert not pair.env.host(peer).memory.pages
        pair.guards[victim].check()
        pair.guards[peer].check()
        pair.env.finish()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def surprise_removal_of_a_sender(dut):
    await RemovalRun(dut, "a", payload_is_read).run()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def surprise_removal_of_a_receiver(dut):
    """With nodes linked and outstanding reads of nodes."""
    await RemovalRun(dut, "b", nodes_are_fetched).run()
