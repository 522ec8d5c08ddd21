"""Which tags are out: nothing comes back for another, and none stays out for ever."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..logic import one_hot
from .tlp import TAGS, CompletionBeat, ReadTlp


class ReadWatch(wiring.Component):
    """Passes read requests, and the completions of tags that are out; others' are dropped.

    While ``gone`` says that nothing will come from the hard block any more, each tag that is still out is answered
    with an error: the hard block drops reads while the card is no bus master, and says nothing of them.
    One request and one completion beat per cycle, no latency.

    Members
    -------
    i_read, o_read : In/Out(stream.Signature(ReadTlp))
    i_completion, o_completion : In/Out(stream.Signature(CompletionBeat))
        ``ready`` of neither is looked at.
    gone : In(1)
    """

    i_read: In(stream.Signature(ReadTlp))
    o_read: Out(stream.Signature(ReadTlp))
    i_completion: In(stream.Signature(CompletionBeat))
    o_completion: Out(stream.Signature(CompletionBeat))
    gone: In(1)

    def elaborate(self, platform):
        m = Module()
        out = Signal(TAGS)
        at = Signal(range(TAGS))         # looked at while all is gone
        known, lost = Signal(), Signal()
        back, answer = self.i_completion.p, self.o_completion.p
        wiring.connect(m, wiring.flipped(self.i_read), wiring.flipped(self.o_read))
        m.d.comb += [
            known.eq(self.i_completion.valid & out.bit_select(back.tag, 1)),
            lost.eq(self.gone & ~self.i_completion.valid & out.bit_select(at, 1)),
            self.i_completion.ready.eq(1),
            self.o_completion.valid.eq(known | lost),
        ]
        m.d.sync += at.eq(at + 1)
        with m.If(self.i_completion.valid):
            m.d.comb += answer.eq(back)
        with m.Else():
            m.d.comb += answer.end_badly(at)
        sent = one_hot(self.o_read.valid & self.o_read.ready, self.o_read.p.tag, TAGS)
        ended = one_hot(self.o_completion.valid & answer.done, answer.tag, TAGS)
        m.d.sync += out.eq((out | sent) & ~ended)
        return m
