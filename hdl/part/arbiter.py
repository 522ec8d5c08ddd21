"""Round-robin arbiters that merge streams."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .logic import encode_one_hot


class RoundRobin:
    """Pairwise round-robin priorities in registers; the input after the last owner has the highest."""

    def __init__(self, n):
        self.n = n
        self.bits = {(j, k): Signal(init=self._first(j, k, 0), name=f"turn_{j}_{k}")
                      for k in range(n) for j in range(k)}

    def _first(self, j, k, owner):
        return (j - owner - 1) % self.n < (k - owner - 1) % self.n

    def before(self, j, k):
        """Return whether input ``j`` has priority over ``k``."""
        return self.bits[j, k] if j < k else ~self.bits[k, j]

    def another(self, requests, k):
        """Return whether a requesting input has priority over ``k``."""
        return Cat(requests[j] & self.before(j, k) for j in range(self.n) if j != k).any()

    def behind(self, owner):
        """Return the next value of each of ``bits``, in the cycle in which one bit of ``owner`` (one-hot) is set."""
        return {(j, k): Cat(owner[each] for each in range(self.n) if self._first(j, k, each)).any()
                for j, k in self.bits}


class PacketArbiter(wiring.Component):
    """Merges streams round-robin; a packet that has begun is passed whole.

    The output is registered: one item per cycle, latency 1, no bubble between packets.

    Parameters
    ----------
    shape : ShapeLike
        Payload with a 1-bit field ``last`` (:class:`~weft.hdl.part.layouts.Beat`, ``DmaRequest``).
    n : int
        Number of inputs.
    late : int, optional
        Input whose ``valid`` is late in the cycle: the choice among the others does not wait for it.

    Members
    -------
    i : In(stream.Signature(shape)).array(n)
    o : Out(stream.Signature(shape))
    source : Out(range(n))
        Input that ``o`` comes from; valid with ``o``.
    """

    def __init__(self, shape, n, late=None):
        if n < 1:
            raise ValueError(f"an arbiter needs at least one input, not {n}")
        self.n, self.late = n, late if n > 1 else None
        super().__init__({
            "i": In(stream.Signature(shape)).array(n),
            "o": Out(stream.Signature(shape)),
            "source": Out(range(max(n, 2))),
        })

    def is_last(self, payload):
        """Return whether the grant may move on after this item."""
        return payload.last

    def elaborate(self, platform):
        m, n = Module(), self.n
        # `keeps`: the input in the middle of a packet keeps its grant; `free`: there is none.
        keeps, free, load = Signal(n), Signal(init=1), Signal()
        early = [k for k in range(n) if k != self.late]
        granted, valid = Signal(n), Cat(s.valid if k in early else Const(0, 1) for k, s in enumerate(self.i))
        m.d.comb += load.eq(~self.o.valid | self.o.ready)
        order = RoundRobin(n)

        def chosen(inputs):
            """Return the payload of the granted input among ``inputs``.

            A pair of inputs is decided by a separate small function of `valid`, so that the select of a wide payload
            loads no net that other logic waits for.
            """
            if len(inputs) == 1:
                return Value.cast(self.i[inputs[0]].payload)
            half = 1 << (len(inputs) - 1).bit_length() - 1
            low, high = inputs[:half], inputs[half:]
            second = Cat(granted[k] for k in high).any()
            if len(inputs) == 2:
                j, k = inputs
                second = keeps[k] | (valid[k] & ~keeps[j] & ~(valid[j] & order.before(j, k)))
            return Mux(second, chosen(high), chosen(low))

        # `ready` depends on the `valid` of the other inputs only, so an input with a late `valid` gets an early
        # `ready`.
        open_ = Cat(keeps[k] | (free & ~order.another(valid, k)) for k in range(n))     # granted if valid
        more = [s.valid & ~self.is_last(s.payload) for s in self.i]
        stays = Cat(open_[k] & more[k] for k in range(n))
        m.d.comb += granted.eq(open_ & valid)
        any_, takes, payload = (valid & (free.replicate(n) | keeps)).any(), granted, chosen(early)
        ends, moves = ~Cat(stays[k] for k in early).any(), order.behind(granted)
        if self.late is None:
            m.d.comb += [s.ready.eq(load & open_[k]) for k, s in enumerate(self.i)]
        else:
            m.submodules.last_word = word = LateGrant(len(Value.cast(self.o.payload)), n, self.late)
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
        with m.If(load):    # load whether or not an input is valid: the enable of a wide payload is early
            m.d.sync += [self.o.valid.eq(any_), Value.cast(self.o.payload).eq(payload),
                         self.source.eq(encode_one_hot(takes))]
        with m.If(load & any_):
            m.d.sync += [keeps.eq(stays), free.eq(ends), *(order.bits[bit].eq(value) for bit, value in moves.items())]
        return m


class LateGrant(wiring.Component):
    """Final grant of an arbiter with one late input, after the choice among the others. Combinational.

    Kept as a block: there is one level of logic from ``valid`` to the outputs, which per-module mapping would trade for
    area (docs/development.md, "Size and longest paths").

    Parameters
    ----------
    width, n, late : int
        Bits of a payload; number of inputs; index of the late input.

    Members
    -------
    load : In(1)
        The output register accepts an item.
    open, yields : In(n)
        Inputs granted if valid while the late input is not; inputs with lower priority than the late one.
    others, other : In(1), In(width)
        One of the other inputs is granted if the late one is not, and its payload.
    valid, payload : In(1), In(width)
        Of the late input.
    ready : Out(n)
    any, wins, o : Out(1), Out(1), Out(width)
        An input is granted; the late input is; the payload of the granted one.
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
    """:class:`PacketArbiter` for single items of any shape: the grant may move on after each item."""

    def is_last(self, payload):
        return Const(1)
