"""QPs that may need a node fetch, each at most once."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..params import CardParams
from ..stream import Fifo

SPARE = 64   # places for QPs entered twice around their creation


class WorkList(wiring.Component):
    """First-in first-out set of QPs.

    A QP is entered by any of three inputs; one that is in already is not entered twice. The QP that leaves is
    out two cycles before its state may be read: whatever was posted for it before is seen then. One entry per
    cycle; the strobe is always taken, the streams when there is none.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    post_stb, post_qpn : In
    i : In(stream.Signature(qpn)).array(2)
    o : Out(stream.Signature(qpn))
    forget_en, forget_qpn : In
        A QP is created: whatever was remembered of the QPN is void. Not in the cycle of a transfer on ``o``.
    """

    def __init__(self, params: CardParams):
        self.params = params
        width = params.qpn_width
        super().__init__({
            "post_stb": In(1), "post_qpn": In(width),
            "i": In(stream.Signature(width)).array(2),
            "o": Out(stream.Signature(width)),
            "forget_en": In(1), "forget_qpn": In(width),
        })

    def elaborate(self, platform):
        m = Module()
        width, qps = self.params.qpn_width, self.params.qps
        # A QP is in while its bits of the two memories differ: entering writes one of them, leaving the other.
        m.submodules.entered = entered = Memory(shape=1, depth=qps, init=[])
        m.submodules.left = left = Memory(shape=1, depth=qps, init=[])
        enter_write, enter_read, enter_copy = (
            entered.write_port(),
            entered.read_port(),
            entered.read_port(domain="comb"),
        )
        leave_write, leave_read = left.write_port(), left.read_port()
        m.submodules.queue = queue = Fifo(width, qps + SPARE)

        qpn, valid = Signal(width), Signal()
        chosen, choosing = Signal(width), Signal()
        m.d.comb += [choosing.eq(1), chosen.eq(self.post_qpn)]
        with m.If(~self.post_stb):
            with m.If(self.i[0].valid):
                m.d.comb += [chosen.eq(self.i[0].payload), self.i[0].ready.eq(1)]
            with m.Else():
                m.d.comb += [chosen.eq(self.i[1].payload), self.i[1].ready.eq(1), choosing.eq(self.i[1].valid)]
        again = Signal()        # the one before was the same QP and is being entered: the memories do not show it yet
        m.d.sync += [valid.eq(choosing), qpn.eq(chosen), again.eq(queue.i.valid & (qpn == chosen))]
        m.d.comb += [
            enter_read.addr.eq(chosen), leave_read.addr.eq(chosen), enter_read.en.eq(1), leave_read.en.eq(1),
            queue.i.valid.eq(valid & ~again & (enter_read.data == leave_read.data)), queue.i.payload.eq(qpn),
            enter_write.en.eq(queue.i.valid), enter_write.addr.eq(qpn), enter_write.data.eq(~enter_read.data),
            self.o.valid.eq(queue.o.valid & ~self.forget_en), self.o.payload.eq(queue.o.payload),
            queue.o.ready.eq(self.o.ready & ~self.forget_en),
            enter_copy.addr.eq(Mux(self.forget_en, self.forget_qpn, queue.o.payload)),
            leave_write.addr.eq(enter_copy.addr), leave_write.data.eq(enter_copy.data),
            leave_write.en.eq(self.forget_en | (queue.o.valid & queue.o.ready)),
        ]
        return m
