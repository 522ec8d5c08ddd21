"""Gate for requests while the card may not be bus master."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.stream import Fifo
from .tlp import TAG_BITS, TAGS, CompletionBeat, ReadTlp, WriteTlp


class BusMasterGate(wiring.Component):
    """Passes requests while the host lets the card be bus master.

    Otherwise a write is dropped and a read gets a completion with an error: no client waits for ever, and a reset
    of the card finds it idle. A request that was already offered at the output goes there, a packet as a whole.
    One beat per cycle, no latency. Completions generated here use cycles without a completion from the host.

    Members
    -------
    enable : In(1)
        The card may be bus master.
    i_read, o_read : In/Out(stream.Signature(ReadTlp))
    i_write, o_write : In/Out(stream.Signature(WriteTlp))
    i_completion, o_completion : In/Out(stream.Signature(CompletionBeat))
        ``ready`` of both is ignored.
    dropped : Out(1)
        Strobe: a request was dropped here.
    busy : Out(1)
        A read was accepted and not yet completed here.
    """

    enable: In(1)
    i_read: In(stream.Signature(ReadTlp))
    o_read: Out(stream.Signature(ReadTlp))
    i_write: In(stream.Signature(WriteTlp))
    o_write: Out(stream.Signature(WriteTlp))
    i_completion: In(stream.Signature(CompletionBeat))
    o_completion: Out(stream.Signature(CompletionBeat))
    dropped: Out(1)
    busy: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.failed = failed = Fifo(TAG_BITS, TAGS)
        shown_read, shown_write, inside, passing = Signal(), Signal(), Signal(), Signal()
        pass_read, pass_write = Signal(), Signal()
        m.d.comb += [
            pass_read.eq(self.enable | shown_read),
            self.o_read.payload.eq(self.i_read.payload),
            self.o_read.valid.eq(self.i_read.valid & pass_read),
            failed.i.payload.eq(self.i_read.p.tag),
            failed.i.valid.eq(self.i_read.valid & ~pass_read),
        ]
        with m.If(pass_read):
            m.d.comb += self.i_read.ready.eq(self.o_read.ready)
        with m.Else():
            m.d.comb += self.i_read.ready.eq(failed.i.ready)

        # A packet is passed or dropped as a whole, decided at its first beat.
        with m.If(inside):
            m.d.comb += pass_write.eq(passing)
        with m.Else():
            m.d.comb += pass_write.eq(self.enable | shown_write)
        m.d.comb += [
            self.o_write.payload.eq(self.i_write.payload),
            self.o_write.valid.eq(self.i_write.valid & pass_write),
            self.i_write.ready.eq(self.o_write.ready | ~pass_write),
        ]
        m.d.sync += [
            shown_read.eq(self.o_read.valid & ~self.o_read.ready),
            shown_write.eq(self.o_write.valid & ~self.o_write.ready),
        ]
        with m.If(self.i_write.valid & self.i_write.ready):
            m.d.sync += [inside.eq(~self.i_write.p.last), passing.eq(pass_write)]

        m.d.comb += [
            self.i_completion.ready.eq(1),
            self.o_completion.valid.eq(self.i_completion.valid | failed.o.valid),
            failed.o.ready.eq(~self.i_completion.valid),
            self.dropped.eq((failed.i.valid & failed.i.ready) | (self.i_write.valid & ~pass_write)),
            self.busy.eq(failed.o.valid | (failed.level != 0)),
        ]
        with m.If(self.i_completion.valid):
            m.d.comb += self.o_completion.payload.eq(self.i_completion.payload)
        with m.Else():
            m.d.comb += self.o_completion.p.end_badly(failed.o.payload)
        return m
