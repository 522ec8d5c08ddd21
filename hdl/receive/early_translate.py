"""Early translation: starts the checks of a packet while the rest of its frame is arriving."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract.abi import AccessFlag
from ..part.layouts import BEAT_BITS, LENGTH_WIDTH, Beat
from ..part.stream import Fifo
from ..table.translate import Translate, TranslateRequest
from .classify import FrameType, headers

DEPTH = 64          # requests waiting for the translation
# `requested` and `lost` are valid in this cycle after the frame's last beat, and in no other
RESULT_DELAY = 2
OUTCOMES = DEPTH + Translate.LATENCY + 1       # requests waiting and in the translation


class EarlyTranslate(wiring.Component):
    """Requests the translation of each packet of a QP when its headers have arrived, long before its end and ICRC.

    Afterwards it passes on whether the packet was kept, so that unused responses are discarded.

    A request is offered 2 cycles after the last beat that it needs: the first of a frame of one, or the second. Tables
    are only read, so an unused request has no effect. One frame per cycle; the input is never stalled: a packet
    for whose request there is no space is ``lost``.

    Members
    -------
    i : In(stream.Signature(Beat, always_ready=True))
    first : In(1)
        The beat of this cycle is the first of its frame.
    kind : In(FrameType)
        Of the newest frame whose first beat came before this cycle.
    give_up : In(1)
        The frame that is arriving now is lost, if it needs a translation.
    shed : In(1)
        Original data packets are lost. Sampled when a packet's request would be offered.
    level : Out(range(DEPTH + 1))
        Requests waiting for the translation.
    requested, lost : Out(1)
        Of a frame, :data:`RESULT_DELAY` cycles after its last beat: its translation was requested; there was no space,
        or it was given up.
    outcome_stb, keep : In(1)
        A frame with a requested translation (``requested``) was decided; its header was passed on.
    request_stb : Out(1)
        A request was accepted.
    o_translate : Out(stream.Signature(TranslateRequest))
    o_outcome : Out(stream.Signature(1))
        ``keep`` of each request, in the same order.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Beat, always_ready=True)),
            "first": In(1),
            "kind": In(FrameType),
            "give_up": In(1),
            "shed": In(1),
            "level": Out(range(DEPTH + 1)),
            "requested": Out(1),
            "lost": Out(1),
            "outcome_stb": In(1),
            "keep": In(1),
            "request_stb": Out(1),
            "o_translate": Out(stream.Signature(TranslateRequest)),
            "o_outcome": Out(stream.Signature(1)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.requests = requests = Fifo(TranslateRequest, DEPTH)
        m.submodules.outcomes = outcomes = Fifo(1, OUTCOMES, output_registers=1)
        connect(m, requests.o, flipped(self.o_translate))
        connect(m, outcomes.o, flipped(self.o_outcome))

        # The first beat is held until the second one has arrived, or the frame ends without one.
        held, alone, pending, issue = Signal(BEAT_BITS, reset_less=True), Signal(), Signal(), Signal()
        arriving = Signal()         # a frame with a requested translation is not complete
        m.d.comb += issue.eq(pending & (alone | self.i.valid))
        with m.If(issue):
            m.d.sync += pending.eq(0)
        with m.If(self.i.valid & self.first):
            m.d.sync += [held.eq(self.i.p.data), alone.eq(self.i.p.last), pending.eq(1)]

        fields = headers(self.kind, Cat(held, self.i.p.data))
        wanted = self.kind.roce & (self.kind.data | self.kind.probe | self.kind.for_driver)
        shed = self.shed & self.kind.data & ~self.kind.retransmission
        m.d.comb += [
            self.level.eq(requests.level),
            requests.i.valid.eq(issue & wanted & ~shed),
            requests.i.p.key.eq(fields["rkey"]),
            requests.i.p.va.eq(fields["va"]),
            requests.i.p.qpn.eq(fields["dest_qp"]),
            requests.i.p.length.eq(fields["dma_length"][:LENGTH_WIDTH]),
            requests.i.p.need.eq(Mux(self.kind.data, AccessFlag.REMOTE_WRITE, 0)),
            self.request_stb.eq(requests.i.valid & requests.i.ready),
            outcomes.i.valid.eq(self.outcome_stb),
            outcomes.i.payload.eq(self.keep),
        ]
        with m.If(issue):
            m.d.sync += [self.requested.eq(self.request_stb), self.lost.eq(wanted & (shed | ~requests.i.ready)),
                         arriving.eq(~alone & ~self.i.p.last)]
        with m.Elif(self.i.valid & self.i.p.last):
            m.d.sync += arriving.eq(0)
        with m.If(self.give_up & arriving):
            m.d.sync += self.lost.eq(1)
        return m
