"""Asks what a packet may do while the rest of its frame is still on its way."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract.abi import AccessFlag
from ..part.layouts import BEAT_BITS, LENGTH_WIDTH, Beat
from ..part.stream import Fifo
from ..table.translate import Translate, TranslateRequest
from .classify import FrameType, headers

DEPTH = 64          # requests that wait for the translation
SAID = 2            # in this cycle after its last beat, and in no other, it is known what was asked for a frame
FATES = DEPTH + Translate.LATENCY + 1       # requests there and in the translation


class Early(wiring.Component):
    """Asks for the translation of each packet of a QP when its headers are here, long before its last byte and its ICRC
    are; says afterwards what became of the packet, so that answers nobody needs are thrown away.

    A request is offered 2 cycles after the last beat that it needs: the first of a frame of one, or the second. Tables
    are only read, so what is asked in vain leaves no trace. One frame per cycle; the input is never stalled: a packet
    that finds no room is ``lost``.

    Members
    -------
    i : In(stream.Signature(Beat, always_ready=True))
    first : In(1)
        The beat of this cycle is the first of its frame.
    kind : In(FrameType)
        Of the newest frame whose first beat came before this cycle.
    give_up : In(1)
        The frame that is arriving now is lost, if it is one of those that are asked for.
    shed : In(1)
        Data packets that come for the first time are lost. Looked at when a packet's request would be offered.
    level : Out(range(DEPTH + 1))
        Requests that wait for the translation.
    asked, lost : Out(1)
        Of a frame, :data:`SAID` cycles after its last beat: its translation was asked for; there was no room, or it
        was given up.
    fate_stb, keep : In(1)
        A frame that was ``asked`` for was decided on; its header was passed on.
    ask_stb : Out(1)
        A request was accepted.
    o_translate : Out(stream.Signature(TranslateRequest))
    o_fate : Out(stream.Signature(1))
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
            "asked": Out(1),
            "lost": Out(1),
            "fate_stb": In(1),
            "keep": In(1),
            "ask_stb": Out(1),
            "o_translate": Out(stream.Signature(TranslateRequest)),
            "o_fate": Out(stream.Signature(1)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.requests = requests = Fifo(TranslateRequest, DEPTH)
        m.submodules.fates = fates = Fifo(1, FATES, standing=1)
        connect(m, requests.o, flipped(self.o_translate))
        connect(m, fates.o, flipped(self.o_fate))

        # The first beat is held until the second one is here, or known not to come.
        held, alone, pending, ask = Signal(BEAT_BITS, reset_less=True), Signal(), Signal(), Signal()
        arriving = Signal()         # a frame that was asked for is not yet whole
        m.d.comb += ask.eq(pending & (alone | self.i.valid))
        with m.If(ask):
            m.d.sync += pending.eq(0)
        with m.If(self.i.valid & self.first):
            m.d.sync += [held.eq(self.i.p.data), alone.eq(self.i.p.last), pending.eq(1)]

        fields = headers(self.kind, Cat(held, self.i.p.data))
        wanted = self.kind.roce & (self.kind.data | self.kind.probe | self.kind.for_driver)
        shed = self.shed & self.kind.data & ~self.kind.retransmission
        m.d.comb += [
            self.level.eq(requests.level),
            requests.i.valid.eq(ask & wanted & ~shed),
            requests.i.p.key.eq(fields["rkey"]),
            requests.i.p.va.eq(fields["va"]),
            requests.i.p.qpn.eq(fields["dest_qp"]),
            requests.i.p.length.eq(fields["dma_length"][:LENGTH_WIDTH]),
            requests.i.p.need.eq(Mux(self.kind.data, AccessFlag.REMOTE_WRITE, 0)),
            self.ask_stb.eq(requests.i.valid & requests.i.ready),
            fates.i.valid.eq(self.fate_stb),
            fates.i.payload.eq(self.keep),
        ]
        with m.If(ask):
            m.d.sync += [self.asked.eq(self.ask_stb), self.lost.eq(wanted & (shed | ~requests.i.ready)),
                         arriving.eq(~alone & ~self.i.p.last)]
        with m.Elif(self.i.valid & self.i.p.last):
            m.d.sync += arriving.eq(0)
        with m.If(self.give_up & arriving):
            m.d.sync += self.lost.eq(1)
        return m
