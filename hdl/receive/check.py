"""Check of received packets against QP and memory region."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import QpState, Reason
from ..part.layouts import RxHeader, RxKind, RxPacket
from ..table.translate import Translation


def _is_raw(header):
    """Return whether a frame is no packet of a QP of the card."""
    return (header.kind == RxKind.RAW) & ~header.roce


class RxCheck(wiring.Component):
    """Checks QP, generation, sender, permission, key, protection domain and bounds of every packet, in order.

    One packet per cycle, latency 1 cycle once header, outcome and translation are there. Stalls when ``o`` does.

    RAW frames pass, unless they are packets of a QP (``roce``): then the QP is checked. Errors of the QP have
    priority: no QP that receives (UNKNOWN_QP), another generation than that of the QPN (STALE_GENERATION), a
    peer with another address (WRONG_PEER). Probes, control frames, and data packets with a wrong length are
    not checked further. A write without payload accesses no memory: key, permission, protection domain
    and bounds are ignored.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(RxHeader))
        A translation was requested for those that are packets of QPs: see
        :class:`~weft.hdl.receive.early_translate.EarlyTranslate`.
    i_outcome : In(stream.Signature(1))
        For each frame with a requested translation, in order: its header comes, after those of earlier frames.
    i_translate : In(stream.Signature(Translation))
        For each frame with a requested translation, in order.
    o : Out(stream.Signature(RxPacket))
        With the index of the QP instead of its number.
    """

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(RxHeader)),
            "i_outcome": In(stream.Signature(1)),
            "i_translate": In(stream.Signature(Translation)),
            "o": Out(stream.Signature(RxPacket)),
        })

    def elaborate(self, platform):
        m = Module()
        header, translation = self.i.p, self.i_translate.p
        raw, free, take = Signal(), Signal(), Signal()
        translated, rejected, used = Signal(), Signal(), Signal()       # the oldest response and its outcome
        no_qp, wrong_peer, sound = Signal(), Signal(), Signal()
        m.d.comb += [
            raw.eq(_is_raw(header)),
            free.eq(~self.o.valid | self.o.ready),
            translated.eq(self.i_outcome.valid & self.i_translate.valid),
            rejected.eq(translated & ~self.i_outcome.payload),
            take.eq(self.i.valid & (raw | (translated & self.i_outcome.payload)) & free),
            used.eq(rejected | (take & ~raw)),
            self.i.ready.eq(take),
            self.i_outcome.ready.eq(used),
            self.i_translate.ready.eq(used),
            no_qp.eq((translation.reason == Reason.UNKNOWN_QP) | (translation.reason == Reason.STALE_GENERATION)),
            wrong_peer.eq(header.src_ip != translation.qp_peer_ip),
            sound.eq((translation.reason == Reason.OK) & ~wrong_peer),
        ]
        with m.If(free):        # valid or not: `i.valid` is late
            m.d.sync += [
                self.o.valid.eq(take),
                self.o.p.header.eq(header),
                self.o.p.header.dest_qp.eq(header.dest_qp[:self.params.qpn_width]),
                self.o.p.qp_generation.eq(translation.qp_generation),
                self.o.p.qp_psn_guard.eq(translation.qp_psn_guard),
                self.o.p.in_error.eq((header.kind == RxKind.PROBE) & (translation.reason == Reason.UNKNOWN_QP)
                                     & (translation.qp_state == QpState.ERR) & ~wrong_peer),
                self.o.p.segment0.eq(translation.segment0),
                self.o.p.segment1.eq(translation.segment1),
                self.o.p.live.eq(sound & ((header.kind == RxKind.DATA) | (header.kind == RxKind.PROBE))),
            ]
            with m.If(raw):
                m.d.sync += self.o.p.reason.eq(Reason.OK)
            with m.Elif(no_qp):
                m.d.sync += self.o.p.reason.eq(translation.reason)
            with m.Elif(wrong_peer):
                m.d.sync += self.o.p.reason.eq(Reason.WRONG_PEER)
            with m.Elif(header.kind == RxKind.REJECTED):
                m.d.sync += self.o.p.reason.eq(header.reason)
            with m.Else():
                m.d.sync += self.o.p.reason.eq(translation.reason)
        return m
