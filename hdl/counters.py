"""Event counters of the card."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from . import abi
from .counting import Refusal

COUNTS = len(abi.COUNTERS)
INDEX_WIDTH = (COUNTS - 1).bit_length()
DROPS = {reason: f"drop_{reason.name.lower()}" for reason in abi.Reason if reason is not abi.Reason.OK}

CounterRead = wiring.Signature({"index": Out(INDEX_WIDTH), "data": In(abi.COUNTER_WIDTH)})


class Counters(wiring.Component):
    """All counters of :data:`weft.hdl.abi.COUNTERS`, 48 bits each, in one small memory.

    Every counter has a small accumulator that takes its events each cycle; one accumulator per cycle is
    added to the memory in turn. No event is ever lost; a read shows events that are at least
    ``LAG`` cycles old. Counters start at zero after a reset and wrap at 2^48.

    Parameters
    ----------
    widths : dict of str to int
        Counters that have an input, and its width: 1 for a strobe, wider for an amount. The others
        count refusals (``drop_*``) or stay zero.
    refusals : int
        Blocks that report refusals.
    reads : int
        Read ports.

    Members
    -------
    count_<name> : In(width)
        Added each cycle.
    refuse : In({stb, reason}).array(refusals)
        A strobe adds one to the ``drop_*`` counter of ``reason``; several may come at once.
    read : In({index, data}).array(reads)
        ``data`` belongs to the ``index`` of one cycle before.
    """

    LAG = COUNTS + 5

    def __init__(self, widths, *, refusals=1, reads=1):
        for name, width in widths.items():
            if name not in abi.COUNTER_INDEX:
                raise ValueError(f"no counter is called {name!r}")
            if not 1 <= width <= 32:
                raise ValueError(f"counter {name}: an amount of {width} bits; choose 1 to 32")
        self.widths, self.refusals, self.reads = dict(widths), refusals, reads
        members = {f"count_{name}": In(width) for name, width in self.widths.items()}
        members["refuse"] = In(Refusal).array(refusals)
        members["read"] = In(CounterRead).array(reads)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=abi.COUNTER_WIDTH, depth=COUNTS, init=[])
        walk_read, write = memory.read_port(), memory.write_port()

        turn, turn_q, turn_2 = (Signal(range(COUNTS)) for _ in range(3))
        clearing = Signal(init=1)          # first lap after reset: the memory's old contents do not count
        clearing_q = Signal(init=1)
        m.d.sync += [turn.eq(turn + 1), turn_q.eq(turn), turn_2.eq(turn_q), clearing_q.eq(clearing)]
        with m.If(turn == COUNTS - 1):
            m.d.sync += [turn.eq(0), clearing.eq(0)]
        m.d.comb += walk_read.addr.eq(turn)

        accumulated = []
        for index, (name, _) in enumerate(abi.COUNTERS):
            amount = self._amount(m, name)
            if amount is None:
                continue
            accumulator = Signal(len(amount) + (COUNTS - 1).bit_length(), name=f"acc_{name}")
            with m.If(turn == index):
                m.d.sync += accumulator.eq(amount)
            with m.Else():
                m.d.sync += accumulator.eq(accumulator + amount)
            accumulated.append((index, accumulator))

        taken = Signal(max((len(a) for _, a in accumulated), default=1))
        m.d.sync += taken.eq(0)
        with m.Switch(turn):
            for index, accumulator in accumulated:
                with m.Case(index):
                    m.d.sync += taken.eq(accumulator)

        total = Signal(abi.COUNTER_WIDTH)
        started = Signal(2)                # `total` holds a sum from the second cycle on
        m.d.sync += [total.eq(Mux(clearing_q, 0, walk_read.data) + taken), started.eq(started << 1 | 1)]
        m.d.comb += [write.addr.eq(turn_2), write.data.eq(total), write.en.eq(started[1])]

        valid = Signal(2)                  # every counter was written since reset
        m.d.sync += valid.eq(valid << 1 | ~clearing_q)
        for port in self.read:
            memory_read = memory.read_port()
            m.d.comb += [memory_read.addr.eq(port.index), port.data.eq(Mux(valid[1], memory_read.data, 0))]
        return m

    def _amount(self, m, name):
        """What is added to a counter this cycle, registered; None if nothing ever is."""
        terms = [getattr(self, f"count_{name}")] if name in self.widths else []
        for reason, drop in DROPS.items():
            if drop == name:
                terms += [port.stb & (port.reason == reason) for port in self.refuse]
        if not terms:
            return None
        width = max(len(t) for t in terms) + (len(terms) - 1).bit_length()
        amount = Signal(width, name=f"amount_{name}")
        m.d.sync += amount.eq(sum(terms))
        return amount
