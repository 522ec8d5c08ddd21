"""Tag limiter: at most 32 outstanding reads when the host allows no extended tags."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..part.stream import Fifo
from .tlp import TAG_BITS, CompletionBeat, ReadTlp

FEW = 32


class TagLimiter(wiring.Component):
    """Passes requests and completions; without extended tags it renames the tag of every request to one of 32.

    One request and one completion beat per cycle, no latency. A request waits for a free tag, and, when the
    setting has changed, until no request is outstanding.

    Members
    -------
    extended : In(1)
        All tags may be used.
    i_read, o_read : In/Out(stream.Signature(ReadTlp))
    i_completion, o_completion : In/Out(stream.Signature(CompletionBeat))
        ``ready`` of both is ignored.
    """

    extended: In(1)
    i_read: In(stream.Signature(ReadTlp))
    o_read: Out(stream.Signature(ReadTlp))
    i_completion: In(stream.Signature(CompletionBeat))
    o_completion: Out(stream.Signature(CompletionBeat))

    def elaborate(self, platform):
        m = Module()
        m.submodules.free = free = Fifo(range(FEW), FEW, output_registers=1)
        m.submodules.inner = inner = Memory(shape=TAG_BITS, depth=FEW, init=[])
        inner_write, inner_read = inner.write_port(), inner.read_port(domain="comb")
        few = Signal()
        fresh = Signal(range(FEW + 1))      # counts tags that were never used; used ones come back through the queue
        tag = Signal(range(FEW))
        outstanding = Signal(TAG_BITS + 1)
        open_, all_used, sent, ended, rested = Signal(), Signal(), Signal(), Signal(), Signal()
        # Transfers and ends are known late in a cycle: both are counted in the next one.
        sent_q, ended_q = Signal(), Signal()
        back = self.i_completion.p
        m.d.comb += [
            rested.eq((outstanding == 0) & ~sent_q),
            all_used.eq(fresh[-1]), tag.eq(Mux(all_used, free.o.payload, fresh)),
            open_.eq((few != self.extended) & (~few | ~all_used | free.o.valid)),
            self.o_read.payload.eq(self.i_read.payload),
            self.o_read.valid.eq(self.i_read.valid & open_),
            self.i_read.ready.eq(self.o_read.ready & open_),
            sent.eq(self.o_read.valid & self.o_read.ready),
            ended.eq(self.i_completion.valid & back.done),
            inner_write.addr.eq(tag), inner_write.data.eq(self.i_read.p.tag), inner_write.en.eq(sent & few),
            inner_read.addr.eq(back.tag),
            free.o.ready.eq(sent & few & all_used),
            free.i.payload.eq(back.tag), free.i.valid.eq(ended & few),
            self.i_completion.ready.eq(1),
            self.o_completion.payload.eq(self.i_completion.payload),
            self.o_completion.valid.eq(self.i_completion.valid),
        ]
        with m.If(few):
            m.d.comb += [self.o_read.p.tag.eq(tag), self.o_completion.p.tag.eq(inner_read.data)]
        m.d.sync += [sent_q.eq(sent), ended_q.eq(ended), outstanding.eq(outstanding + sent_q - ended_q)]
        with m.If(sent & few & ~all_used):
            m.d.sync += fresh.eq(fresh + 1)
        with m.If(rested & ~sent):
            m.d.sync += few.eq(~self.extended)
        return m
