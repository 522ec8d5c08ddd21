"""Tracking of outstanding reads: drops completions without one, and ends reads that get none."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.logic import one_hot
from .tlp import TAGS, CompletionBeat, ReadTlp


class ReadTracker(wiring.Component):
    """Passes read requests, and the completions of outstanding tags; others are dropped.

    While ``gone`` is high nothing will come from the hard block any more, and each outstanding tag gets a completion
    with an error: the hard block drops reads while the card is no bus master, without a notification.
    One request and one completion beat per cycle. Requests pass at once, completions a cycle later; the first one of a
    request must come at least two cycles after it.

    Stage 1 looks up the tag; stage 2 passes the beat on. A completed tag is cleared a cycle later; both
    stages check whether it was theirs in the cycle before.

    Members
    -------
    i_read, o_read : In/Out(stream.Signature(ReadTlp))
    i_completion, o_completion : In/Out(stream.Signature(CompletionBeat))
        ``ready`` of both is ignored.
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
        at = Signal(range(TAGS))         # the tag to end while `gone`
        wiring.connect(m, wiring.flipped(self.i_read), wiring.flipped(self.o_read))
        m.d.sync += at.eq(at + 1)

        ends, ended, ended_tag = Signal(), Signal(), Signal(range(TAGS))
        tag, back, answer = Signal(range(TAGS)), self.i_completion.p, self.o_completion.p
        looked, beat_2 = Signal(), Signal(CompletionBeat)
        m.d.comb += [self.i_completion.ready.eq(1), tag.eq(Mux(self.i_completion.valid, back.tag, at))]
        m.d.sync += looked.eq((self.i_completion.valid | self.gone) & out.bit_select(tag, 1)
                              & ~(ended & (ended_tag == tag)))
        with m.If(self.i_completion.valid):
            m.d.sync += beat_2.eq(back)
        with m.Else():
            m.d.sync += [beat_2.eq(0), *beat_2.end_badly(at)]

        m.d.comb += [
            self.o_completion.valid.eq(looked & ~(ended & (ended_tag == beat_2.tag))), answer.eq(beat_2),
            ends.eq(self.o_completion.valid & beat_2.done),
        ]
        m.d.sync += [ended.eq(ends), ended_tag.eq(beat_2.tag)]
        # The transfer of a request is late, and its completion comes later still.
        sent, sent_tag = Signal(), Signal(range(TAGS))
        m.d.sync += [sent.eq(self.o_read.valid & self.o_read.ready), sent_tag.eq(self.o_read.p.tag)]
        m.d.sync += out.eq(out & ~one_hot(ended, ended_tag, TAGS) | one_hot(sent, sent_tag, TAGS))
        return m
