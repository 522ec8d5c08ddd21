"""Whether a packet may take effect, and where its payload goes."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi import AccessFlag, QpState, Reason
from ..layouts import LENGTH_WIDTH, RxHeader, RxKind, RxPacket
from ..stream import Fifo
from ..table.translate import Translate, TranslateRequest, Translation
from .fork import fork

DEPTH = 16      # headers waiting for their translation; more than Translate holds
assert DEPTH > Translate.LATENCY


def _is_raw(header):
    """Whether a frame is no packet of a QP of the card."""
    return (header.kind == RxKind.RAW) & ~header.roce


class RxCheck(wiring.Component):
    """Checks QP, generation, sender, permission, key, protection domain and bounds of every packet, in order.

    At least one packet every two cycles, as fast as the translation; frames that are no packets one per cycle.
    Latency 2 cycles and that of the translation. Stalls when ``o`` or the translation does.

    RAW frames pass, unless they are packets of a QP (``roce``): then the QP is checked. What is wrong with it comes
    first: there is none that receives (UNKNOWN_QP), it is in another life than the QPN says (STALE_GENERATION), its
    peer has another address (WRONG_PEER). Of probes, of control frames, and of data packets with a wrong length,
    nothing else is looked at. A write without payload names no memory that counts: key, permission, protection domain
    and bounds are not looked at.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(RxHeader))
    o_translate : Out(stream.Signature(TranslateRequest))
    i_translate : In(stream.Signature(Translation))
        Answers in order, not in the cycle of their request.
    o : Out(stream.Signature(RxPacket))
        With the index of the QP in place of its number.
    """

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(RxHeader)),
            "o_translate": Out(stream.Signature(TranslateRequest)),
            "i_translate": In(stream.Signature(Translation)),
            "o": Out(stream.Signature(RxPacket)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.waiting = waiting = Fifo(RxHeader, DEPTH)
        fork(m, self.i, [(self.o_translate, ~_is_raw(self.i.p)), (waiting.i, 1)])
        m.d.comb += [
            waiting.i.p.eq(self.i.p),
            self.o_translate.p.key.eq(self.i.p.rkey),
            self.o_translate.p.va.eq(self.i.p.va),
            self.o_translate.p.qpn.eq(self.i.p.dest_qp),
        ]
        with m.If(self.i.p.kind == RxKind.DATA):
            m.d.comb += [self.o_translate.p.length.eq(self.i.p.dma_length[:LENGTH_WIDTH]),
                         self.o_translate.p.need.eq(AccessFlag.REMOTE_WRITE)]

        header, answer = waiting.o.p, self.i_translate.p
        raw, free, take = Signal(), Signal(), Signal()
        no_qp, stranger = Signal(), Signal()
        m.d.comb += [
            raw.eq(_is_raw(header)),
            free.eq(~self.o.valid | self.o.ready),
            take.eq(waiting.o.valid & (raw | self.i_translate.valid) & free),
            waiting.o.ready.eq(take),
            self.i_translate.ready.eq(take & ~raw),
            no_qp.eq((answer.reason == Reason.UNKNOWN_QP) | (answer.reason == Reason.STALE_GENERATION)),
            stranger.eq(header.src_ip != answer.qp_peer_ip),
        ]
        with m.If(free):
            m.d.sync += self.o.valid.eq(take)
        with m.If(take):
            m.d.sync += [
                self.o.p.header.eq(header),
                self.o.p.header.dest_qp.eq(header.dest_qp[:self.params.qpn_width]),
                self.o.p.qp_generation.eq(answer.qp_generation),
                self.o.p.qp_psn_guard.eq(answer.qp_psn_guard),
                self.o.p.in_error.eq((header.kind == RxKind.PROBE) & (answer.reason == Reason.UNKNOWN_QP)
                                     & (answer.qp_state == QpState.ERR) & ~stranger),
                self.o.p.segment0.eq(answer.segment0),
                self.o.p.segment1.eq(answer.segment1),
            ]
            with m.If(raw):
                m.d.sync += self.o.p.reason.eq(Reason.OK)
            with m.Elif(no_qp):
                m.d.sync += self.o.p.reason.eq(answer.reason)
            with m.Elif(stranger):
                m.d.sync += self.o.p.reason.eq(Reason.WRONG_PEER)
            with m.Elif(header.kind == RxKind.REFUSED):
                m.d.sync += self.o.p.reason.eq(header.reason)
            with m.Else():
                m.d.sync += self.o.p.reason.eq(answer.reason)
        return m
