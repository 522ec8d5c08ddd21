"""Two arbiters side by side; one is built for an input that offers late."""

from amaranth.hdl import Module, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hdl.part.arbiter import PacketArbiter


class ArbiterTwins(wiring.Component):
    """Two arbiters with the ports of :class:`~weft.hdl.part.arbiter.PacketArbiter`.

    The items have ``width`` bits, the highest of which is ``last``.

    Members
    -------
    differ : Out(1)
        The outputs of the two arbiters differ.
    """

    def __init__(self, width, n, late):
        self.width, self.n, self.late = width, n, late
        shape = _item(width)
        super().__init__({"i": In(stream.Signature(shape)).array(n), "o": Out(stream.Signature(shape)),
                          "differ": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.one, m.submodules.other = one, other = [
            PacketArbiter(_item(self.width), self.n, late) for late in (None, self.late)]
        wiring.connect(m, one.o, wiring.flipped(self.o))
        m.d.comb += other.o.ready.eq(self.o.ready)
        for mine, a, b in zip(self.i, one.i, other.i, strict=True):
            m.d.comb += [s.valid.eq(mine.valid) for s in (a, b)]
            m.d.comb += [s.payload.eq(mine.payload) for s in (a, b)]
            m.d.comb += mine.ready.eq(a.ready)
        inputs = [(a.ready, b.ready) for a, b in zip(one.i, other.i, strict=True)]
        shown = [(one.o.payload, other.o.payload), (one.source, other.source)]
        m.d.comb += self.differ.eq(
            (one.o.valid != other.o.valid) | sum(a != b for a, b in inputs).any()
            | (one.o.valid & sum(Value.cast(a) != Value.cast(b) for a, b in shown).any()))
        return m


def _item(width):
    return data.StructLayout({"value": width - 1, "last": 1})
