"""Gate before the MAC: inserts the card's pause frames, and holds frames during the peer's pauses."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import wire
from ..part.layouts import PAUSE_EMPTY, WIRE, Beat, PauseFrame, swap_bytes


class PauseGate(wiring.Component):
    """The last block before the MAC. Combinational for frames: without a pause they lose no cycle.

    A pause frame is one beat, offered in the cycle after ``i_pause`` was accepted. That is accepted when no frame is
    being sent or offered, even while ``hold`` is high.

    Members
    -------
    i, o : In/Out(stream.Signature(Beat))
        Frames. One that has begun is completed.
    hold : In(1)
        While high no frame of ``i`` begins.
    i_pause : In(stream.Signature(PauseFrame))
        Sampled when it is accepted.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Beat)), "o": Out(stream.Signature(Beat)), "hold": In(1),
            "i_pause": In(stream.Signature(PauseFrame)),
        })

    def elaborate(self, platform):
        m = Module()
        # a pause frame is offered; another frame has begun; it is offered
        own, inside, shown = Signal(), Signal(), Signal()
        in_frame, begins, passes, taken = Signal(), Signal(), Signal(), Signal()
        pause = Signal(PauseFrame)
        m.d.comb += [
            passes.eq(~own & (inside | shown | ~self.hold)), taken.eq(self.o.valid & self.o.ready),
            self.o.p.eq(self.i.p), self.o.valid.eq(own | (self.i.valid & passes)),
            self.i.ready.eq(self.o.ready & passes),
            in_frame.eq(Mux(taken, ~self.o.p.last, self.o.valid | inside)),     # after this cycle
            self.i_pause.ready.eq(~in_frame), begins.eq(self.i_pause.valid & ~in_frame),
        ]
        with m.If(own):
            m.d.comb += [self.o.p.data.eq(self._frame(m, pause)), self.o.p.empty.eq(PAUSE_EMPTY),
                         self.o.p.last.eq(1), self.o.p.error.eq(0)]
        m.d.sync += [shown.eq(self.o.valid & ~self.o.ready & ~own), own.eq(begins | (own & ~self.o.ready))]
        with m.If(begins):
            m.d.sync += pause.eq(self.i_pause.p)
        with m.If(taken):
            m.d.sync += inside.eq(~self.o.p.last)
        return m

    def _frame(self, m, pause):
        """Return the pause frame as a beat."""
        eth, pfc = Signal(WIRE["Ethernet"]), Signal(WIRE["PFC"])
        m.d.comb += [
            eth.dst.eq(wire.MAC_CONTROL_ADDRESS), eth.src.eq(pause.source),
            eth.ethertype.eq(wire.ETHERTYPE_MAC_CONTROL),
            pfc.opcode.eq(wire.MacControl.PFC), pfc.classes.eq(1 << pause.priority),
        ]
        for k in range(wire.PRIORITIES):
            with m.If(pause.priority == k):
                m.d.comb += pfc[f"time{k}"].eq(pause.quanta)
        return Cat(swap_bytes(eth.as_value()), swap_bytes(pfc.as_value()))
