"""Size of a ring from its configuration register."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi

INDEX_WIDTH = abi.RING_LOG2_MAX + 1


class RingSize(wiring.Component):
    """Number of entries of a ring and the mask of its indices. Registered: one cycle after ``log2``.

    Members
    -------
    log2 : In(8)
        Larger values count as ``RING_LOG2_MAX``.
    size : Out(16)
        ``2 ** log2``.
    mask : Out(16)
        ``2 * size - 1``: indices are one bit wider than the ring.
    last : Out(15)
        ``size - 1``: the last entry.
    """

    def __init__(self):
        super().__init__({
            "log2": In(8),
            "size": Out(INDEX_WIDTH, init=1),
            "mask": Out(INDEX_WIDTH, init=1),
            "last": Out(INDEX_WIDTH - 1),
        })

    def elaborate(self, platform):
        m = Module()
        log2 = Signal(range(INDEX_WIDTH))
        m.d.comb += [log2.eq(self.log2), self.last.eq(self.mask[1:])]
        with m.If(self.log2 > abi.RING_LOG2_MAX):
            m.d.comb += log2.eq(abi.RING_LOG2_MAX)
        m.d.sync += [self.size.eq(1 << log2), self.mask.eq((2 << log2) - 1)]
        return m

    def reaches(self, distance):
        """Return whether a distance, at most ``mask``, is at least the ring size; without a carry chain."""
        return (distance & self.size).any()

    def exceeds(self, distance):
        """Return whether a distance, at most ``mask``, is greater than the ring size."""
        return self.reaches(distance) & (distance & self.last).any()
