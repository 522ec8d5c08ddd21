"""Arbiters: streams merged round-robin."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .logic import encoded


class Turns:
    """Who comes before whom when all ask, in registers: the first behind the last owner."""

    def __init__(self, n):
        self.n = n
        self._bits = {(j, k): Signal(init=self._first(j, k, 0), name=f"turn_{j}_{k}")
                      for k in range(n) for j in range(k)}

    def _first(self, j, k, owner):
        return (j - owner - 1) % self.n < (k - owner - 1) % self.n

    def before(self, j, k):
        """Input ``j`` comes before ``k``."""
        return self._bits[j, k] if j < k else ~self._bits[k, j]

    def another(self, asks, k):
        """One that asks comes before ``k``."""
        return Cat(asks[j] & self.before(j, k) for j in range(self.n) if j != k).any()

    def behind(self, owner):
        """Statements for the cycle in which the bit of a new ``owner`` is set."""
        return [bit.eq(Cat(owner[each] for each in range(self.n) if self._first(j, k, each)).any())
                for (j, k), bit in self._bits.items()]


class PacketArbiter(wiring.Component):
    """Merges streams round-robin; a packet, once begun, is passed whole.

    The output is registered: one item per cycle, latency 1, no bubble between packets.

    Parameters
    ----------
    shape : ShapeLike
        Payload with a 1-bit field ``last`` (:class:`~weft.hdl.layouts.Beat`, ``DmaRequest``).
    n : int
        Inputs.

    Members
    -------
    i : In(stream.Signature(shape)).array(n)
    o : Out(stream.Signature(shape))
    source : Out(range(n))
        Input that ``o`` comes from; valid with ``o``.
    """

    def __init__(self, shape, n):
        if n < 1:
            raise ValueError(f"an arbiter of {n} inputs has nothing to do")
        self.n = n
        super().__init__({
            "i": In(stream.Signature(shape)).array(n),
            "o": Out(stream.Signature(shape)),
            "source": Out(range(max(n, 2))),
        })

    def is_last(self, payload):
        """Whether the grant may move on behind this item."""
        return payload.last

    def elaborate(self, platform):
        m, n = Module(), self.n
        # Whose packet is under way, if any is, stands in registers.
        keeps, free, load = Signal(n), Signal(init=1), Signal()
        granted, valid = Signal(n), Cat(s.valid for s in self.i)
        m.d.comb += load.eq(~self.o.valid | self.o.ready)
        order = Turns(n)

        def chosen(inputs):
            """What the granted one of ``inputs`` has. Two of them decide without the rest: what moves a wide payload
            is no net that anything else waits for."""
            if len(inputs) == 1:
                return Value.cast(self.i[inputs[0]].payload)
            half = 1 << (len(inputs) - 1).bit_length() - 1
            low, high = inputs[:half], inputs[half:]
            second = Cat(granted[k] for k in high).any()
            if len(inputs) == 2:
                j, k = inputs
                second = keeps[k] | (valid[k] & ~keeps[j] & ~(valid[j] & order.before(j, k)))
            return Mux(second, chosen(high), chosen(low))

        open_ = [keeps[k] | (free & ~order.another(valid, k)) for k in range(n)]     # taken if he has something
        stays = Cat(open_[k] & s.valid & ~self.is_last(s.payload) for k, s in enumerate(self.i))
        m.d.comb += [granted.eq(Cat(open_) & valid), *[s.ready.eq(load & open_[k]) for k, s in enumerate(self.i)]]
        any_ = (valid & (free.replicate(n) | keeps)).any()
        with m.If(load):    # a wide payload does not wait for whether anyone has something
            m.d.sync += [self.o.valid.eq(any_), Value.cast(self.o.payload).eq(chosen(range(n))),
                         self.source.eq(encoded(granted))]
        with m.If(load & any_):
            m.d.sync += [keeps.eq(stays), free.eq(~stays.any()), *order.behind(granted)]
        return m


class Arbiter(PacketArbiter):
    """Merges streams of single items round-robin.

    The output is registered: one item per cycle, latency 1.

    Parameters
    ----------
    shape : ShapeLike
        Payload.
    n : int
        Inputs.

    Members
    -------
    i : In(stream.Signature(shape)).array(n)
    o : Out(stream.Signature(shape))
    source : Out(range(n))
        Input that ``o`` comes from; valid with ``o``.
    """

    def is_last(self, payload):
        return Const(1)
