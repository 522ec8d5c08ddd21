"""Hazards for the lanes of a run: hosts with read faults, and outages of cards."""

import contextlib
import logging
from collections import Counter

from cocotb.task import resume
from cocotb.triggers import Timer

from weft.hdl.contract import abi
from weft.tb.sim.pcie import outage
from weft.tb.sim.pcie.faults import DAMAGED, ENDS_BADLY, HARMLESS, FaultAgent
from weft.tb.verify.soak.bins import AREAS, REMOVAL

AWAY_NS, MOMENT_NS, NOTICE_NS = 10_000, 2_000, 300_000
PAYLOAD = "payload"
SHARES = {PAYLOAD: 0.1, "nodes": 0.5, "page lists": 0.3}
HARMLESS_SHARE, RING_SHARE, DAMAGED_PART = 0.05, 0.06, 0.5
RINGS = dict(zip((abi.Ring.SEND, abi.Ring.RETRANSMIT, abi.Ring.COMMAND, abi.Ring.NIC_TX), AREAS, strict=False))


class BadHost:
    """Host of a side with read faults.

    Faults are frequent for reads of page lists, and of payload and nodes of the fragile lane; less frequent for ring
    entries. Any read may get a harmless fault. ``met`` counts faults by the names of
    :data:`~weft.tb.verify.soak.bins.BINS`.
    """

    def __init__(self, host, context, lanes, side, rng):
        self._context, self._lanes, self._side, self._rng = context, lanes, side, rng
        self._lists = []           # page lists that the card is about to read: (address, bytes)
        self.met = Counter()
        host.strict = False
        host.device.log.setLevel(logging.ERROR)      # each fault is logged with its packet
        call = context.commands.call

        def watched(opcode, **fields):
            if opcode is not abi.CommandOpcode.PAGE_TABLE_WRITE or not any(lane.registering for lane in lanes):
                return call(opcode, **fields)
            self._lists.append((fields["address"], fields["count"] * abi.PTE_BYTES))
            try:
                return call(opcode, **fields)
            finally:
                self._lists.pop()

        context.commands.call = watched
        FaultAgent(host, rng, self._choose)

    def _choose(self, address):
        rng, area = self._rng, self._area(address)
        chance = rng.random()
        if area is not None and chance < SHARES.get(area, RING_SHARE):
            kind = DAMAGED if area != PAYLOAD and rng.random() < DAMAGED_PART else rng.choice(ENDS_BADLY)
            if area != PAYLOAD:
                self.met[f"{'damaged' if kind == DAMAGED else 'unreadable'} {area}"] += 1
        elif chance > 1 - HARMLESS_SHARE:
            kind = rng.choice(HARMLESS)
        else:
            return None
        if kind != DAMAGED:
            self.met[f"PCIe fault, {kind}"] += 1
        return kind

    def _area(self, address):
        """Return the kind of memory at an address, if its reads may get faults."""
        for ring, area in RINGS.items():
            buffer = self._context.rings[ring].buffer
            if 0 <= address - buffer.physical(0) < buffer.size:
                return area
        if any(start <= address < start + length for start, length in self._lists):
            return "page lists"
        fragile = self._lanes[0]
        mr, qp = fragile.mrs.get(self._side), fragile.qps.get(self._side)
        if mr is not None and address // abi.PAGE_4K in mr.buffer.frames:
            return PAYLOAD
        if qp is not None and qp.receiver is not None and any(
                node.line == address // abi.BLOCK_BYTES for node in qp.receiver.holes.nodes):
            return "nodes"
        return None


def take_away(env, side, context, kind):
    """Cause an outage of a side's card and bring the card up again, except after a removal.

    The card is reset by its driver or its host, loses bus mastering for a while, or is removed. Called from the side's
    thread.
    """
    host = env.host(side)
    if kind == "function reset":
        resume(outage.reset_function)(host)
    elif kind == "hot reset":
        resume(outage.hot_reset)(env, side, AWAY_NS)
        context.get_async_event(NOTICE_NS)
    elif kind == "bus master cleared":
        resume(outage.clear_bus_master)(env, side)
        resume(_pass)(MOMENT_NS)
        resume(outage.set_bus_master)(env, side)
        with contextlib.suppress(TimeoutError):    # possibly no read or write was due in the meantime
            context.get_async_event(NOTICE_NS)
    elif kind == REMOVAL:
        resume(outage.pull_out)(env, side)
        context.get_async_event(NOTICE_NS)
        return
    context.reset()


async def _pass(nanoseconds):
    await Timer(nanoseconds, "ns")
