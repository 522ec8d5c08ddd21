"""Holds memory writes back until they are whole."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream import Fifo
from .tlp import LANES, PAGE_BYTES, WriteTlp

STORE_BEATS = PAGE_BYTES // (4 * LANES)      # of the largest memory write


class WriteStore(wiring.Component):
    """Passes a packet on when all of it is here, so that ``o.valid`` never falls inside one, however slowly it comes.

    One beat per cycle; a packet leaves one cycle after its last beat came. It holds the largest packet that exists,
    so every packet becomes whole.

    Members
    -------
    i, o : In/Out(stream.Signature(WriteTlp))
    busy : Out(1)
        A beat is inside.
    """

    i: In(stream.Signature(WriteTlp))
    o: Out(stream.Signature(WriteTlp))
    busy: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.beats = beats = Fifo(WriteTlp, STORE_BEATS)
        whole = Signal(range(STORE_BEATS + 1))       # packets whose last beat is inside
        wiring.connect(m, wiring.flipped(self.i), beats.i)
        m.d.comb += [
            self.o.payload.eq(beats.o.payload),
            self.o.valid.eq(whole != 0),
            beats.o.ready.eq((whole != 0) & self.o.ready),
            self.busy.eq(beats.o.valid),
        ]
        m.d.sync += whole.eq(whole + (self.i.valid & self.i.ready & self.i.p.last)
                             - (self.o.valid & self.o.ready & self.o.p.last))
        return m
