"""Card-to-host ring: writes entries with their phase and raises the ring's interrupt."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..contract.params import CardParams, exact_log2
from ..part.counter_ports import DropEvent
from ..part.layouts import BEAT_BITS, Beat, DmaRequest
from ..part.logic import sum_of_three
from ..part.stream import Fifo
from .doorbell_latch import DoorbellLatch
from .size import INDEX_WIDTH, RingSize


class RingWriter(wiring.Component):
    """Writes 64-byte entries into a ring, all waiting ones in one DMA group.

    Up to one entry per cycle; latency 1 to ``o_request`` and ``o_data`` when no group is in progress. Entries that come
    during a group, or within ``pace`` cycles of its beginning, wait for the next group, which goes at once when it is
    full: a stream of entries leaves in few large groups, a single one without delay. Groups end at multiples of
    ``together`` entries, so that one of 512 bytes is not split if the ring's base is a multiple of that. A group ends
    at the earliest in the cycle after the acceptance of its request; ``DmaWrite`` takes data later than that. A full
    ring stalls ``i``. Entries count as written, and may raise the interrupt, when both their request and their data
    were accepted: they must go straight to ``DmaWrite``, so that the interrupt is ordered after the entries.

    The interrupt fires once per arming, as soon as an unconsumed entry exists.

    While ``enable`` is 0 entries wait (with ``discard`` they are dropped), accepted entries that are in no group
    are dropped, and both indices return to zero. ``base`` and ``log2`` may only change while ``enable`` is 0. A
    consumer index outside ``cons`` to ``prod`` is ignored, together with its arm bit, and reported.

    Parameters
    ----------
    params : CardParams
    vector : int
        MSI-X vector.
    discard : bool
        Entries that come while the ring is disabled are dropped.
    together : int
        Largest number of entries in a group, a power of two.
    pace : int
        Cycles from one group to the next, unless that is full.

    Members
    -------
    base, log2, enable : In(64), In(8), In(1)
        Configuration.
    cons, arm, cons_stb : In(16), In(1), In(1)
        Doorbell: new consumer index, and whether it arms the interrupt.
    i : In(stream.Signature(512))
        Entries; bit 0, the phase, is ignored.
    o_request : Out(stream.Signature(DmaRequest))
    o_data : Out(stream.Signature(Beat))
    o_interrupt : Out(stream.Signature(5))
    prod : Out(16)
        Producer index of entries handed over, as wide as the ring's indices.
    position : Out(15)
        Slot that the next entry accepted on ``i`` gets.
    full : Out(1)
        No entry is accepted: the ring is full, or not running.
    half : Out(1)
        At least half of the ring's entries are taken, or it is not running.
    free : Out(16)
        Lower bound of the entries that will be accepted before ``full``.
    size : Out(16)
        Entries of the ring.
    mark : In(1)
        With the acceptance of an entry: it is a marked one.
    marked : Out(1)
        The newest marked entry is not consumed yet. High from the cycle after its acceptance to one cycle after
        ``cons`` has passed it.
    idle : Out(1)
        No entry waits or is being written.
    drop : Out(DropEvent)
        BAD_DESCRIPTOR.
    """

    def __init__(self, params: CardParams, vector, *, discard=False, together=1, pace=1):
        if not 0 <= vector < params.msix_vectors:
            raise ValueError(f"vector {vector}; the card has {params.msix_vectors}")
        exact_log2(together)
        self.params, self.vector, self.discard, self.together, self.pace = params, vector, discard, together, pace
        super().__init__({
            "base": In(64), "log2": In(8), "enable": In(1),
            "cons": In(INDEX_WIDTH), "arm": In(1), "cons_stb": In(1),
            "i": In(stream.Signature(BEAT_BITS)),
            "o_request": Out(stream.Signature(DmaRequest)),
            "o_data": Out(stream.Signature(Beat)),
            "o_interrupt": Out(stream.Signature(5)),
            "prod": Out(INDEX_WIDTH),
            "position": Out(INDEX_WIDTH - 1),
            "full": Out(1),
            "half": Out(1),
            "mark": In(1),
            "marked": Out(1),
            "free": Out(INDEX_WIDTH),
            "size": Out(INDEX_WIDTH),
            "idle": Out(1),
            "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.ring = ring = RingSize()
        m.d.comb += [ring.log2.eq(self.log2), self.size.eq(ring.size)]

        together = self.together
        m.submodules.waiting = waiting = Fifo(BEAT_BITS, 2 * together)
        running = Signal()
        grouped, prod, cons = (Signal(INDEX_WIDTH, name=n) for n in ("grouped", "prod_q", "cons_q"))
        used, filled = Signal(INDEX_WIDTH), Signal()        # `filled`: all entries are used
        phase = Signal(init=1)
        load, settled, start = Signal(), Signal(), Signal()
        left = Signal(range(together + 1))                  # entries of the current group that were not taken
        loose = Signal(range(2 * together + 1))             # entries that are in no group
        most, to_end = (Signal(range(together + 1), name=n, init=1) for n in ("most", "to_end"))
        edge = Signal(INDEX_WIDTH, init=1)                  # the next multiple of `together`, `to_end` entries ahead
        count = Signal(range(together + 1))
        rest = Signal(range(max(self.pace, 2)))             # cycles until a group that is not full may begin

        taken = Signal()
        m.d.comb += [
            taken.eq(self.o_data.valid & self.o_data.ready),
            settled.eq(~self.o_request.valid & ((left == 0) | (taken & (left == 1)))),
            start.eq(~running & self.enable & settled & ~waiting.o.valid),
            self.full.eq(~running | filled),
            self.half.eq(~running | (used >= ring.size >> 1)),
            self.free.eq(Mux(running, ring.size - used, 0)),
            load.eq(self.i.valid & self.enable & ~self.full & waiting.i.ready),
            self.i.ready.eq(load if not self.discard else (load | ~running)),
            self.idle.eq(~self.o_request.valid & ~waiting.o.valid),
            self.prod.eq(Mux(running, prod, 0)),
            waiting.i.payload.eq(Cat(phase, self.i.payload[1:])), waiting.i.valid.eq(load),
            waiting.o.ready.eq(Mux(left != 0, self.o_data.ready, ~running)),
            self.o_request.p.last.eq(1),
            self.o_data.valid.eq(left != 0), self.o_data.p.data.eq(waiting.o.payload), self.o_data.p.last.eq(left == 1),
        ]
        # `ready` may look at `valid`; it is only offered when the entry is taken.

        with m.If(self.o_request.ready):
            m.d.sync += self.o_request.valid.eq(0)
        with m.If(settled):
            m.d.sync += prod.eq(grouped)
        # The end of a group that begins at `grouped` is computed before the current one is settled; `load` is late.
        whole, begins = Signal(), Signal()
        m.d.comb += [
            whole.eq(Mux(load, loose + 1 >= to_end, loose >= to_end)),
            begins.eq(whole | ((rest == 0) & ((loose != 0) | load))),
            count.eq(Mux(whole, to_end, Mux(begins, loose + load, 0))),
        ]
        m.d.sync += [
            most.eq(Mux(ring.size < together, ring.size, together)),
            to_end.eq(Mux(running, most - (grouped & (most - 1)), most)),
            edge.eq(Mux(running, (grouped | (most - 1)) + 1, most)),
            left.eq(left - taken), loose.eq(loose + load), rest.eq(rest - (rest != 0)),
        ]
        with m.If(settled & self.enable & running):
            m.d.sync += [
                self.o_request.valid.eq(begins),
                self.o_request.p.address.eq(self.base + ((grouped & ring.last) << 6)),
                self.o_request.p.length.eq(count << 6),
                left.eq(count),
            ]
            with m.If(begins):
                m.d.sync += [
                    rest.eq(self.pace - 1), grouped.eq(Mux(whole, edge, grouped + loose + load) & ring.mask),
                    loose.eq(Mux(whole, Mux(load, loose + 1 - to_end, loose - to_end), 0)),
                ]
        with m.If(load):
            with m.If(self.position == ring.last):
                m.d.sync += [self.position.eq(0), phase.eq(~phase)]
            with m.Else():
                m.d.sync += self.position.eq(self.position + 1)

        # Consumer index. `arm` goes with it, and with the next one if that comes before the comparison.
        m.submodules.doorbell = bell = DoorbellLatch()
        arm, armed = Signal(), Signal()
        bad = Signal()
        ahead, step = bell.from_cons, bell.from_prod
        m.d.sync += [
            arm.eq((arm & ~bell.compared) | (self.cons_stb & self.arm)),
            self.drop.stb.eq(0), self.drop.reason.eq(abi.Reason.BAD_DESCRIPTOR),
        ]
        # The index is between `cons` and `prod` if it is no step forward from `prod`, and not a lap from both.
        m.d.comb += [
            bell.index.eq(self.cons), bell.stb.eq(self.cons_stb), bell.accept.eq(1), bell.clear.eq(~self.enable),
            bell.cons.eq(cons), bell.prod.eq(prod), bell.mask.eq(ring.mask),
            bad.eq(ring.exceeds(ahead) | ((step != 0) & ~ring.reaches(step))
                   | (ring.reaches(ahead) & ring.reaches(step) & ~ring.exceeds(step))),
        ]
        m.d.sync += [used.eq(used + load), filled.eq(Mux(load, used == ring.last, used == ring.size))]
        # Unconsumed entries up to the newest marked one. `passed`: entries consumed a cycle ago.
        marked, passed = Signal(INDEX_WIDTH), Signal(INDEX_WIDTH)
        m.d.comb += self.marked.eq(marked != 0)
        m.d.sync += [passed.eq(0), marked.eq(Mux(passed < marked, marked - passed, 0))]
        with m.If(load & self.mark):
            m.d.sync += marked.eq(used + 1)
        with m.If(bell.compared & ~running):
            m.d.sync += armed.eq(arm)      # the ring is about to start with both indices at zero
        with m.Elif(bell.compared & bad):
            m.d.sync += self.drop.stb.eq(1)
        with m.Elif(bell.compared):
            with m.If(ahead != 0):
                m.d.sync += filled.eq(0)
            m.d.sync += [
                cons.eq(bell.to), used.eq(sum_of_three(INDEX_WIDTH, used, ~ahead, load, one=1)),
                armed.eq(armed | arm), passed.eq(ahead),
            ]

        self._interrupt(m, running & armed & ~bell.pending & (prod != cons), armed)
        with m.If(~self.enable):
            m.d.sync += [running.eq(0), armed.eq(0), arm.eq(0)]
        with m.Elif(start):
            m.d.sync += running.eq(1)
        with m.If(start):
            m.d.sync += [grouped.eq(0), prod.eq(0), cons.eq(0), used.eq(0), filled.eq(0), marked.eq(0),
                         self.position.eq(0), loose.eq(0), rest.eq(0), phase.eq(1)]
        return m

    def _interrupt(self, m, due, armed):
        """Send the pending interrupt, once for each arming."""
        m.d.comb += self.o_interrupt.payload.eq(self.vector)
        with m.If(self.o_interrupt.ready):
            m.d.sync += self.o_interrupt.valid.eq(0)
        with m.If(due & ~self.o_interrupt.valid):
            m.d.sync += [self.o_interrupt.valid.eq(1), armed.eq(0)]
