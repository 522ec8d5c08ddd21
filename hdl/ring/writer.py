"""Card-to-host ring: writes entries with their phase and raises the ring's interrupt."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .. import abi
from ..counting import Refusal
from ..layouts import BEAT_BITS, Beat, DmaRequest
from ..params import CardParams
from .size import INDEX_WIDTH, RingSize


class RingWriter(wiring.Component):
    """Writes 64-byte entries into a ring, one DMA group each.

    Up to one entry per cycle; latency 1 to ``o_request`` and ``o_data``. A full ring stalls ``i``. An entry
    counts as written, and may raise the interrupt, when both its request and its data were accepted: they
    must go straight to ``DmaWrite``, so that the interrupt is ordered behind the entry.

    The interrupt fires once per arming, as soon as an unconsumed entry exists.

    While ``enable`` is 0 entries wait (with ``discard`` they are dropped) and both indices return to
    zero. ``base`` and ``log2`` may only change while ``enable`` is 0. A consumer index outside
    ``cons`` to ``prod`` is ignored, together with its arm bit, and refused.

    Parameters
    ----------
    params : CardParams
    vector : int
        MSI-X vector.
    discard : bool
        Entries that come while the ring is disabled are dropped.

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
        Half of the ring's entries are taken at least, or it is not running.
    free : Out(16)
        Entries that will be accepted before ``full``, at least.
    size : Out(16)
        Entries of the ring.
    mark : In(1)
        With the acceptance of an entry: it is a marked one.
    marked : Out(1)
        The newest marked entry is not consumed yet. From the cycle after its acceptance on.
    idle : Out(1)
        Nothing is on the way.
    refuse : Out(Refusal)
        BAD_DESCRIPTOR.
    """

    def __init__(self, params: CardParams, vector, *, discard=False):
        if not 0 <= vector < params.msix_vectors:
            raise ValueError(f"vector {vector}; the card has {params.msix_vectors}")
        self.params, self.vector, self.discard = params, vector, discard
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
            "refuse": Out(Refusal),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.ring = ring = RingSize()
        m.d.comb += [ring.log2.eq(self.log2), self.size.eq(ring.size)]

        running = Signal()
        issue, prod, cons = (Signal(INDEX_WIDTH, name=n) for n in ("issue", "prod_q", "cons_q"))
        used = Signal(INDEX_WIDTH)
        phase = Signal(init=1)
        load, settled, start = Signal(), Signal(), Signal()

        request_left = self.o_request.valid & ~self.o_request.ready
        data_left = self.o_data.valid & ~self.o_data.ready
        m.d.comb += [
            settled.eq(~request_left & ~data_left),
            start.eq(~running & self.enable & settled),
            self.full.eq(~running | (used == ring.size)),
            self.half.eq(~running | (used >= ring.size >> 1)),
            self.free.eq(Mux(running, ring.size - used, 0)),
            load.eq(self.i.valid & self.enable & ~self.full & settled),
            self.i.ready.eq(load if not self.discard else (load | ~running)),
            self.idle.eq(~self.o_request.valid & ~self.o_data.valid),
            self.prod.eq(Mux(running, prod, 0)),
        ]
        # `ready` may look at `valid`; it is only offered when the entry is taken.

        with m.If(self.o_request.ready):
            m.d.sync += self.o_request.valid.eq(0)
        with m.If(self.o_data.ready):
            m.d.sync += self.o_data.valid.eq(0)
        with m.If(settled):
            m.d.sync += prod.eq(issue)
        with m.If(load):
            m.d.sync += [
                self.o_request.valid.eq(1),
                self.o_request.p.address.eq(self.base + (self.position << 6)),
                self.o_request.p.length.eq(abi.BLOCK_BYTES),
                self.o_request.p.last.eq(1),
                self.o_data.valid.eq(1),
                self.o_data.p.data.eq(Cat(phase, self.i.payload[1:])),
                self.o_data.p.last.eq(1),
                issue.eq((issue + 1) & ring.mask),
            ]
            with m.If(self.position == ring.size - 1):
                m.d.sync += [self.position.eq(0), phase.eq(~phase)]
            with m.Else():
                m.d.sync += self.position.eq(self.position + 1)

        # Consumer index: checked in the cycle after the doorbell.
        rung, arm, armed = Signal(), Signal(), Signal()
        value, ahead, known = Signal(INDEX_WIDTH), Signal(INDEX_WIDTH), Signal(INDEX_WIDTH)
        m.d.sync += [
            rung.eq(self.cons_stb & self.enable), value.eq(self.cons), arm.eq(self.arm),
            self.refuse.stb.eq(0), self.refuse.reason.eq(abi.Reason.BAD_DESCRIPTOR),
        ]
        m.d.comb += [ahead.eq((value - cons) & ring.mask), known.eq((prod - cons) & ring.mask)]
        m.d.sync += used.eq(used + load)
        marked = Signal(INDEX_WIDTH)       # entries not consumed, up to the newest marked one
        m.d.comb += self.marked.eq(marked != 0)
        with m.If(load & self.mark):
            m.d.sync += marked.eq(used + 1)
        with m.If(rung & ~running):
            m.d.sync += armed.eq(arm)      # the ring is about to start with both indices at zero
        with m.Elif(rung & (ahead > known)):
            m.d.sync += self.refuse.stb.eq(1)
        with m.Elif(rung):
            m.d.sync += [cons.eq(value & ring.mask), used.eq(used + load - ahead), armed.eq(armed | arm),
                         marked.eq(Mux(load & self.mark, used + 1 - ahead, Mux(ahead < marked, marked - ahead, 0)))]

        # Interrupt.
        m.d.comb += self.o_interrupt.payload.eq(self.vector)
        with m.If(self.o_interrupt.ready):
            m.d.sync += self.o_interrupt.valid.eq(0)
        with m.If(running & armed & ~rung & (prod != cons) & ~self.o_interrupt.valid):
            m.d.sync += [self.o_interrupt.valid.eq(1), armed.eq(0)]

        with m.If(~self.enable):
            m.d.sync += [running.eq(0), armed.eq(0)]
        with m.Elif(start):
            m.d.sync += running.eq(1)
        with m.If(start):
            m.d.sync += [issue.eq(0), prod.eq(0), cons.eq(0), used.eq(0), marked.eq(0), self.position.eq(0),
                         phase.eq(1)]
        return m
