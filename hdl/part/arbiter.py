"""Arbiters: streams merged round-robin."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .logic import encoded


class Turns:
    """Who comes before whom when all ask, in registers: the first behind the last owner."""

    def __init__(self, n):
        self.n = n
        self.bits = {(j, k): Signal(init=self._first(j, k, 0), name=f"turn_{j}_{k}")
                      for k in range(n) for j in range(k)}

    def _first(self, j, k, owner):
        return (j - owner - 1) % self.n < (k - owner - 1) % self.n

    def before(self, j, k):
        """Input ``j`` comes before ``k``."""
        return self.bits[j, k] if j < k else ~self.bits[k, j]

    def another(self, asks, k):
        """One that asks comes before ``k``."""
        return Cat(asks[j] & self.before(j, k) for j in range(self.n) if j != k).any()

    def behind(self, owner):
        """What each of ``bits`` becomes in the cycle in which the bit of a new ``owner`` is set."""
        return {(j, k): Cat(owner[each] for each in range(self.n) if self._first(j, k, each)).any()
                for j, k in self.bits}


class PacketArbiter(wiring.Component):
    """Merges streams round-robin; a packet, once begun, is passed whole.

    The output is registered: one item per cycle, latency 1, no bubble between packets.

    Parameters
    ----------
    shape : ShapeLike
        Payload with a 1-bit field ``last`` (:class:`~weft.hdl.part.layouts.Beat`, ``DmaRequest``).
    n : int
        Inputs.
    late : int, optional
        The input that offers late in its cycle: all the others are decided on before it.

    Members
    -------
    i : In(stream.Signature(shape)).array(n)
    o : Out(stream.Signature(shape))
    source : Out(range(n))
        Input that ``o`` comes from; valid with ``o``.
    """

    def __init__(self, shape, n, late=None):
        if n < 1:
            raise ValueError(f"an arbiter of {n} inputs has nothing to do")
        self.n, self.late = n, late if n > 1 else None
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
        early = [k for k in range(n) if k != self.late]
        granted, valid = Signal(n), Cat(s.valid if k in early else Const(0, 1) for k, s in enumerate(self.i))
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

        # `ready` looks at the others' `valid` alone: whoever offers late hears early.
        open_ = Cat(keeps[k] | (free & ~order.another(valid, k)) for k in range(n))     # taken if he has something
        more = [s.valid & ~self.is_last(s.payload) for s in self.i]
        stays = Cat(open_[k] & more[k] for k in range(n))
        m.d.comb += granted.eq(open_ & valid)
        any_, takes, payload = (valid & (free.replicate(n) | keeps)).any(), granted, chosen(early)
        ends, moves = ~Cat(stays[k] for k in early).any(), order.behind(granted)
        if self.late is None:
            m.d.comb += [s.ready.eq(load & open_[k]) for k, s in enumerate(self.i)]
        else:
            m.submodules.last_word = word = LastWord(len(Value.cast(self.o.payload)), n, self.late)
            it = self.i[self.late]
            m.d.comb += [
                word.load.eq(load), word.open.eq(open_), word.valid.eq(it.valid), word.others.eq(any_),
                word.yields.eq(Cat(free & (order.before(self.late, k) if k != self.late else 0) for k in range(n))),
                word.payload.eq(it.payload), word.other.eq(payload),
                *[s.ready.eq(word.ready[k]) for k, s in enumerate(self.i)],
            ]
            any_, payload = word.any, word.o
            ends = Mux(word.wins, self.is_last(it.payload), ends)
            late = order.behind(Const(1 << self.late, n))
            moves = {bit: Mux(word.wins, late[bit], other) for bit, other in moves.items()}
            takes = Cat(Mux(word.wins, k == self.late, granted[k]) for k in range(n))
            stays = Cat(word.wins & more[k] if k == self.late else ~word.wins & stays[k] for k in range(n))
        with m.If(load):    # a wide payload does not wait for whether anyone has something
            m.d.sync += [self.o.valid.eq(any_), Value.cast(self.o.payload).eq(payload), self.source.eq(encoded(takes))]
        with m.If(load & any_):
            m.d.sync += [keeps.eq(stays), free.eq(ends), *(order.bits[bit].eq(value) for bit, value in moves.items())]
        return m


class LastWord(wiring.Component):
    """What is left of a choice among streams when all but one of them were decided on. Combinational.

    A block of its own, so that a tool does not give away the one level from ``valid`` to the answers.

    Parameters
    ----------
    width, n, late : int
        Bits of a payload; inputs; which of them is the late one.

    Members
    -------
    load : In(1)
        Something may be taken.
    open, yields : In(n)
        Who is taken if he has something and the late one has not; who gives way to that one.
    others, other : In(1), In(width)
        One of the others is taken then, and what he has.
    valid, payload : In(1), In(width)
        Of the late one.
    ready : Out(n)
    any, wins, o : Out(1), Out(1), Out(width)
        One is taken; the late one is; what he has.
    """

    def __init__(self, width, n, late):
        self.late, self.n = late, n
        super().__init__({
            "load": In(1), "open": In(n), "yields": In(n), "others": In(1), "other": In(width), "valid": In(1),
            "payload": In(width), "ready": Out(n), "any": Out(1), "wins": Out(1), "o": Out(width),
        })

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.ready.eq(self.open & ~(self.yields & self.valid.replicate(self.n)) & self.load.replicate(self.n)),
            self.wins.eq(self.valid & self.open[self.late]), self.any.eq(self.wins | self.others),
            self.o.eq(Mux(self.wins, self.payload, self.other)),
        ]
        return m


class Arbiter(PacketArbiter):
    """As :class:`PacketArbiter`, of single items of any shape: the grant may move on behind each."""

    def is_last(self, payload):
        return Const(1)
