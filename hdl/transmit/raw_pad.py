"""Input of raw frames to the transmit path."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.wire import MIN_FRAME_BYTES
from ..part.layouts import BEAT_BYTES, Beat
from ..part.stages import PipelineRegister
from .payload import used_bytes


class RawPad(wiring.Component):
    """Pads raw frames with zeros to the minimum length of Ethernet.

    One beat per cycle, latency 1.

    Members
    -------
    i, o : In/Out(stream.Signature(Beat))
    enable : In(1)
        While low no frame begins; one that began is completed.
    count : Out(1)
        Strobe: a frame without ``error`` was accepted.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Beat)),
            "o": Out(stream.Signature(Beat)),
            "enable": In(1),
            "count": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.register = register = PipelineRegister(Beat)
        wiring.connect(m, register.o, wiring.flipped(self.o))
        inside, go = Signal(), Signal()
        short = ~inside & self.i.p.last & (self.i.p.empty > BEAT_BYTES - MIN_FRAME_BYTES)
        m.d.comb += [
            go.eq(self.enable | inside),
            register.i.valid.eq(self.i.valid & go),
            self.i.ready.eq(register.i.ready & go),
            register.i.payload.eq(self.i.payload),
            register.i.p.data.eq(used_bytes(self.i.p)),
            self.count.eq(self.i.valid & self.i.ready & self.i.p.last & ~self.i.p.error),
        ]
        with m.If(short):
            m.d.comb += register.i.p.empty.eq(BEAT_BYTES - MIN_FRAME_BYTES)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += inside.eq(~self.i.p.last)
        return m
