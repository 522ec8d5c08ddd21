"""Check and translation of each packet, and the request for its payload."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import Reason
from ..part.layouts import DmaRequest, tx_job
from ..part.stream import Fifo
from ..table.translate import TranslateRequest, Translation

TRANSLATING = 16  # packets between translation request and response


class TxCheck(wiring.Component):
    """Local translation of every packet, then the read of its payload.

    The QP must be ready to send and the MR readable; a local key needs no access right for that. Of a packet whose
    payload is inline, only the QP is checked.
    A packet that fails is passed on with its reason and without a read; the rest of its
    descriptor is passed on ``silent``, so that one descriptor is reported once.

    One packet per cycle if ``Translate`` is as fast, two cycles when the payload crosses a page. A read is
    requested when its packet has found space in ``o``, so the following blocks bound the packets in flight.

    Packets of the pacer are independent of each other, and of descriptors: they are checked alike.

    Parameters
    ----------
    paced : bool, optional
        There is a pacer.

    Members
    -------
    i : In(stream.Signature(tx_job(paced)))
    o_translate : Out(stream.Signature(TranslateRequest))
    i_translate : In(stream.Signature(Translation))
        One for each request, in order.
    o_request : Out(stream.Signature(DmaRequest))
        One group per packet with payload in host memory, in the order of ``o``.
    o : Out(stream.Signature(tx_job(paced)))
    rejected : Out(2)
        Per ring: a packet of the current descriptor was rejected; its last one is still to come.
    checked_stb : Out(2)
        Per ring: the last packet of a descriptor goes out.
    """

    def __init__(self, *, paced=False):
        self.paced = paced
        shape = tx_job(paced=paced)
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o_translate": Out(stream.Signature(TranslateRequest)),
            "i_translate": In(stream.Signature(Translation)),
            "o_request": Out(stream.Signature(DmaRequest)),
            "o": Out(stream.Signature(shape)),
            "rejected": Out(2),
            "checked_stb": Out(2),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.jobs = jobs = Fifo(self.i.p.shape(), TRANSLATING)
        m.submodules.requested = requested = Fifo(TranslateRequest, 2)
        wiring.connect(m, requested.o, wiring.flipped(self.o_translate))
        m.d.comb += [
            self.i.ready.eq(jobs.i.ready & requested.i.ready),
            jobs.i.valid.eq(self.i.valid & requested.i.ready),
            requested.i.valid.eq(self.i.valid & jobs.i.ready),
            jobs.i.payload.eq(self.i.payload),
            requested.i.p.key.eq(self.i.p.packet.lkey),
            requested.i.p.va.eq(self.i.p.packet.local_va),
            requested.i.p.length.eq(Mux(self.i.p.packet.inline, 0, self.i.p.packet.length)),
            requested.i.p.need.eq(0),
            requested.i.p.qpn.eq(self.i.p.packet.sqpn),
            requested.i.p.qp_need.eq(1),
        ]

        m.submodules.requests = requests = Fifo(DmaRequest, 4)
        m.submodules.done = done = Fifo(self.i.p.shape(), 2)
        wiring.connect(m, requests.o, wiring.flipped(self.o_request))
        wiring.connect(m, done.o, wiring.flipped(self.o))
        job, answer = jobs.o.p, self.i_translate.p
        here, reads, second, finish = Signal(), Signal(), Signal(), Signal()
        hurt = self.rejected.bit_select(job.packet.ring, 1)
        own = ~job.packet.paced if self.paced else Const(1, 1)      # of a descriptor of the ring
        two = Signal()
        m.d.comb += [
            here.eq(jobs.o.valid & self.i_translate.valid),
            done.i.payload.eq(job),
            done.i.p.qp_generation.eq(answer.qp_generation),
            done.i.p.silent.eq(job.silent | (hurt & own)),
        ]
        # Any reason keeps a later packet that could be sent from becoming a frame; nothing reports it.
        with m.If(job.reason == Reason.OK):
            m.d.comb += done.i.p.reason.eq(answer.reason | (hurt & own))
        m.d.comb += [
            reads.eq(((job.reason | answer.reason) == Reason.OK) & ~(hurt & own) & (job.packet.length != 0)
                     & ~job.packet.inline),
            two.eq(answer.segment1.length != 0),
            requests.i.valid.eq(here & reads & done.i.ready),
            requests.i.p.last.eq(second | ~two),
            finish.eq(here & done.i.ready & (~reads | (requests.i.ready & (second | ~two)))),
            done.i.valid.eq(finish),
            jobs.o.ready.eq(finish),
            self.i_translate.ready.eq(finish),
        ]
        with m.If(second):
            m.d.comb += Cat(requests.i.p.address, requests.i.p.length).eq(answer.segment1.as_value())
        with m.Else():
            m.d.comb += Cat(requests.i.p.address, requests.i.p.length).eq(answer.segment0.as_value())
        with m.If(requests.i.valid & requests.i.ready):
            m.d.sync += second.eq(two & ~second)
        with m.If(finish & own):
            m.d.comb += self.checked_stb.bit_select(job.packet.ring, 1).eq(job.packet.last)
            m.d.sync += hurt.eq((hurt | (done.i.p.reason != Reason.OK)) & ~job.packet.last)
        return m
