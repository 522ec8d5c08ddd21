"""Work list: QPs that may need a node fetch, each at most once."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...contract.params import CardParams
from ...part.stream import Fifo

PLACES = 64


class WorkList(wiring.Component):
    """Set of QPs, first in first out as long as there is space in its queue.

    A QP is entered by any of three inputs; a QP that is in the set is not entered again. A QP leaves at least two
    cycles before its state is read, so that earlier posts are included. One entry per
    cycle; the strobe is always accepted, the streams when there is none.

    A QP costs two bits. The queue holds ``places`` QPs of the set; when it is full, a QP is only marked, and once
    the queue is empty all marks are scanned, 2 cycles each: more lists than that wait for each other, but none is lost.

    Parameters
    ----------
    params : CardParams
    places : int

    Members
    -------
    post_stb, post_qpn : In
    i : In(stream.Signature(qpn)).array(2)
    o : Out(stream.Signature(qpn))
    forget_en, forget_qpn : In
        A QP is created: remove its QPN from the set. Not in a cycle with ``o.ready``.
    empty : Out(1)
        The set is empty.
    """

    def __init__(self, params: CardParams, *, places=PLACES):
        self.params, self.places = params, places
        width = params.qpn_width
        super().__init__({
            "post_stb": In(1), "post_qpn": In(width),
            "i": In(stream.Signature(width)).array(2),
            "o": Out(stream.Signature(width)),
            "forget_en": In(1), "forget_qpn": In(width),
            "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        width, qps = self.params.qpn_width, self.params.qps
        # A QP is in the set while its bits of the two memories differ: entering toggles one of them, leaving the other.
        m.submodules.entered = entered = Memory(shape=1, depth=qps, init=[])
        m.submodules.left = left = Memory(shape=1, depth=qps, init=[])
        enter_write, leave_write = entered.write_port(), left.write_port()
        enter_read, enter_copy, enter_scan = (entered.read_port() for _ in range(3))
        # The write for a QP that leaves is a cycle late: the bit to copy has to be read.
        leaver, leaving, copied = Signal(width), Signal(), Signal()
        leave_read, leave_scan = (left.read_port(transparent_for=(leave_write,)) for _ in range(2))
        m.submodules.queue = queue = Fifo(width, self.places)

        qpn, valid = Signal(width), Signal()
        chosen, choosing = Signal(width), Signal()
        first, second = self.i
        m.d.comb += [
            first.ready.eq(~self.post_stb), second.ready.eq(~self.post_stb & ~first.valid),
            choosing.eq(self.post_stb | first.valid | second.valid),
            chosen.eq(Mux(self.post_stb, self.post_qpn, Mux(first.valid, first.payload, second.payload))),
        ]
        enters = Signal()
        again = Signal()        # the previous QP was the same and is being entered: the memories do not show it yet
        m.d.sync += [valid.eq(choosing), qpn.eq(chosen), again.eq(enters & (qpn == chosen))]

        # Scan for marked QPs. A QP entered before `position` goes to the queue directly.
        position, scanning, missed, looked = Signal(width), Signal(), Signal(), Signal()
        starts, passed, found = Signal(), Signal(), Signal()
        m.d.comb += [
            starts.eq(missed & ~scanning & (queue.level == 0)),
            passed.eq(~(scanning | starts) | (qpn <= position)),
            found.eq(looked & (enter_scan.data != leave_scan.data)),
            enters.eq(valid & ~again & (enter_read.data == leave_read.data)),
            enter_scan.addr.eq(position), leave_scan.addr.eq(position),
            enter_scan.en.eq(~looked), leave_scan.en.eq(~looked),
        ]
        with m.If(enters & passed):
            m.d.comb += [queue.i.valid.eq(1), queue.i.payload.eq(qpn)]
        with m.Elif(found):
            m.d.comb += [queue.i.valid.eq(1), queue.i.payload.eq(position)]
        with m.If(starts):
            m.d.sync += [scanning.eq(1), missed.eq(0), looked.eq(1)]
        with m.Elif(scanning & ~looked):
            m.d.sync += looked.eq(1)
        with m.Elif(looked & (~found | (queue.i.ready & ~(enters & passed)))):
            m.d.sync += [looked.eq(0), position.eq(position + 1)]
            with m.If(position == qps - 1):
                m.d.sync += [scanning.eq(0), position.eq(0)]
        with m.If(enters & passed & ~queue.i.ready):
            m.d.sync += missed.eq(1)

        m.d.comb += [
            enter_read.addr.eq(chosen), leave_read.addr.eq(chosen), enter_read.en.eq(1), leave_read.en.eq(1),
            enter_write.en.eq(enters), enter_write.addr.eq(qpn), enter_write.data.eq(~enter_read.data),
            self.o.valid.eq(queue.o.valid), self.o.payload.eq(queue.o.payload), queue.o.ready.eq(self.o.ready),
            enter_copy.addr.eq(Mux(self.forget_en, self.forget_qpn, queue.o.payload)), enter_copy.en.eq(1),
            copied.eq(enter_copy.data),
            leave_write.addr.eq(leaver), leave_write.data.eq(copied), leave_write.en.eq(leaving),
            self.empty.eq(~valid & (queue.level == 0) & ~scanning & ~missed),
        ]
        m.d.sync += [leaver.eq(enter_copy.addr), leaving.eq(self.forget_en | (queue.o.valid & queue.o.ready))]
        return m
