"""Event counters of the card."""

from operator import or_

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract import abi
from .counter_ports import DropEvent
from .logic import adder_tree as summed
from .logic import one_hot_mux, reduce_tree

COUNTS = len(abi.COUNTERS)
INDEX_WIDTH = (COUNTS - 1).bit_length()
FEW = 8             # accumulators in a group; at most one of a group is read per cycle
DROPS = {reason: f"drop_{reason.name.lower()}" for reason in abi.Reason if reason is not abi.Reason.OK}

CounterRead = wiring.Signature({"index": Out(INDEX_WIDTH), "data": In(abi.COUNTER_WIDTH)})


class Counters(wiring.Component):
    """All counters of :data:`weft.hdl.contract.abi.COUNTERS`, 48 bits each, in one small memory.

    Every counter has a small accumulator that takes its events each cycle; one accumulator per cycle is
    added to the memory in turn. No event is ever lost; a read shows events that are at least
    ``LAG`` cycles old. Counters start at zero after a reset and wrap at 2^48.

    Parameters
    ----------
    widths : dict of str to int
        Counters that have an input, and its width: 1 for a strobe, wider for an amount. The others
        count drops (``drop_*``) or stay zero.
    drops : int
        Number of blocks that report drops.
    reads : int
        Read ports.

    Members
    -------
    count_<name> : In(width)
        Added each cycle.
    drop : In({stb, reason}).array(drops)
        A strobe adds one to the ``drop_*`` counter of ``reason``; several may come at once.
    read : In({index, data}).array(reads)
        ``data`` belongs to the ``index`` of one cycle before.

    Raises
    ------
    ValueError
        If a name is unknown or a width is not from 1 to 32.
    """

    LAG = COUNTS + 7

    def __init__(self, widths, *, drops=1, reads=1):
        for name, width in widths.items():
            if name not in abi.COUNTER_INDEX:
                raise ValueError(f"unknown counter {name!r}")
            if not 1 <= width <= 32:
                raise ValueError(f"counter {name}: an amount of {width} bits; choose 1 to 32")
        self.widths, self.drops, self.reads = dict(widths), drops, reads
        members = {f"count_{name}": In(width) for name, width in self.widths.items()}
        members["drop"] = In(DropEvent).array(drops)
        members["read"] = In(CounterRead).array(reads)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=abi.COUNTER_WIDTH, depth=COUNTS, init=[])
        walk_read, write = memory.read_port(), memory.write_port()

        # Index of the counter that is updated, for each stage; `at` is that of stage 0, one-hot.
        turn, turn_1, turn_2, turn_3 = (Signal(range(COUNTS), name=f"turn{stage}") for stage in range(4))
        at = Signal(COUNTS, init=1)
        clearing = Signal(init=1)          # first round after reset: the contents of the memory are undefined
        clearing_1 = Signal(init=1)
        m.d.sync += [turn.eq(turn + 1), turn_1.eq(turn), turn_2.eq(turn_1), turn_3.eq(turn_2), clearing_1.eq(clearing),
                     at.eq(at.rotate_left(1))]
        with m.If(at[-1]):
            m.d.sync += [turn.eq(0), clearing.eq(0)]
        m.d.comb += walk_read.addr.eq(turn)

        accumulated = []
        for index, (name, _) in enumerate(abi.COUNTERS):
            amount = self._amount(m, name)
            if amount is None:
                continue
            accumulator = Signal(len(amount) + (COUNTS - 1).bit_length(), name=f"acc_{name}")
            m.d.sync += accumulator.eq(Mux(at[index], 0, accumulator) + amount)
            accumulated.append((at[index], accumulator))

        # Stage 1: one accumulator of each group; 2: the one of all groups, and the count before; 3: the sum.
        few = []
        for first in range(0, len(accumulated), FEW):
            theirs = accumulated[first:first + FEW]
            taken_1 = Signal(max(len(accumulator) for _, accumulator in theirs), name=f"taken1_{first}")
            m.d.sync += taken_1.eq(one_hot_mux(*zip(*theirs, strict=True)))
            few.append(taken_1)
        taken = Signal(max((len(taken_1) for taken_1 in few), default=1))
        before, total = Signal(abi.COUNTER_WIDTH), Signal(abi.COUNTER_WIDTH)
        started = Signal(3)                # `total` holds a sum from the third cycle on
        m.d.sync += [
            taken.eq(reduce_tree(few, or_) if few else 0), before.eq(Mux(clearing_1, 0, walk_read.data)),
            total.eq(before + taken), started.eq(started << 1 | 1),
        ]
        m.d.comb += [write.addr.eq(turn_3), write.data.eq(total), write.en.eq(started[2])]

        valid = Signal(3)                  # every counter was written since reset
        m.d.sync += valid.eq(valid << 1 | ~clearing_1)
        for port in self.read:
            memory_read = memory.read_port()
            m.d.comb += [memory_read.addr.eq(port.index), port.data.eq(Mux(valid[2], memory_read.data, 0))]
        return m

    def _amount(self, m, name):
        """Return the registered amount that is added to a counter this cycle, or None if the counter has no input."""
        terms = [getattr(self, f"count_{name}")] if name in self.widths else []
        for reason, drop in DROPS.items():
            if drop == name:
                for k, port in enumerate(self.drop):
                    dropped = Signal(name=f"dropped{k}_{name}")
                    m.d.sync += dropped.eq(port.stb & (port.reason == reason))
                    terms.append(dropped)
        if not terms:
            return None
        width = max(len(t) for t in terms) + (len(terms) - 1).bit_length()
        amount = Signal(width, name=f"amount_{name}")
        m.d.sync += amount.eq(summed(terms))
        return amount
