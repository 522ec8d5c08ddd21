"""Meters of payload rates in simulated time, on the wire and in host memory.

A rate is measured in the steady middle of a transfer: from the time when the last of the observed streams has passed
20 % of its bytes to the time when the first has passed 80 %. Transmitted payload counts when the last byte of its frame
is on the wire, received payload when its packet is in host memory. The latter time varies with other traffic on PCIe,
so that a rate at the limit may be measured some tenths of a per cent above it.
"""

from cocotb.utils import get_sim_time
from cocotbext.pcie.core.tlp import TlpType

from weft.hdl.contract import wire
from weft.model.impairments import FrameKind

STEADY_FROM, STEADY_TO = 0.2, 0.8


class Meter:
    """Bytes that passed a point: events ``(nanoseconds, bytes)``."""

    def __init__(self):
        self.events, self.total = [], 0

    def add(self, count):
        self.events.append((get_sim_time("ns"), count))
        self.total += count

    def passed(self, part):
        """Return the time at which ``part`` of all bytes had passed."""
        seen = 0
        for at, count in self.events:
            seen += count
            if seen >= part * self.total:
                return at
        raise AssertionError("nothing passed")

    def gbps(self, begin, end):
        """Return the rate between the first and the last event within a window."""
        inside = [event for event in self.events if begin <= event[0] <= end]
        assert len(inside) > 10, f"{len(inside)} events are too few for a rate"
        return 8 * sum(count for _, count in inside[1:]) / (inside[-1][0] - inside[0][0])


def steady_gbps(meters):
    """Return the rates of all meters over the window in which every one of them is steady."""
    begin = max(meter.passed(STEADY_FROM) for meter in meters)
    end = min(meter.passed(STEADY_TO) for meter in meters)
    return [meter.gbps(begin, end) for meter in meters]


def meter_sent(env, direction):
    """Return a :class:`Meter` of the payload sent in a direction of the link, and a function that ends it."""
    meter = Meter()

    def look(frame, kind):
        if kind is FrameKind.DATA:
            meter.add(wire.RETH.unpack(frame[wire.RETH_OFFSET:]).dma_length)
        return False  # the frame is not lost

    return meter, env.link(direction).impairments.drop_when(look)


def meter_placed(host, pmtu):
    """Return a :class:`Meter` of the packets in the host's memory, counted at the last write of each.

    Also return ``watch(buffer, offset, length)``, which selects the memory that counts.
    """
    meter, pages, packet = Meter(), set(), [0]

    async def written(tlp):
        await host.handle_mem_write_tlp(tlp)
        if tlp.address >> 12 in pages:
            packet[0] += tlp.get_be_byte_count()
            if (tlp.address + tlp.length * 4) % pmtu == 0:
                meter.add(packet[0])
                packet[0] = 0

    for kind in (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64):
        host.register_rx_tlp_handler(kind, written)

    def watch(buffer, offset, length):
        pages.update(buffer.physical(at) >> 12 for at in (*range(offset, offset + length, 4096), offset + length - 1))

    return meter, watch
