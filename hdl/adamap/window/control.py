"""Control of QP incarnations in the subsystem: one operation at a time, in a safe order through the blocks."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...part.layouts import ListCreate, QpRef


class ControlKind(enum.Enum, shape=2):
    """Control operation of a QP."""

    CREATE = 0
    DESTROY = 1
    QUERY = 2


class ControlOp(data.Struct):
    """Operation for one block; its ``ready`` means that the operation took effect there."""

    kind: ControlKind
    qpn: 24
    generation: 8
    psn: 32


class ListControl(wiring.Component):
    """Serialises create, destroy and query over the blocks.

    Create goes to posted values, window, matcher and prefetch; it is accepted (``ready``) when in effect
    everywhere. Destroy goes to window (whose marker makes the builder discard the open node), prefetch (no fetch of the
    QP is in flight afterwards) and matcher (its nodes leave the cache), then ``destroyed`` pulses. Query reads
    window, then prefetch.

    Members
    -------
    i_create : In(stream.Signature(ListCreate))
    i_destroy : In(stream.Signature(QpRef))
    destroyed : Out(1)
    discarded : In(1)
        The builder has discarded the open node of the QP that is being destroyed.
    query_stb, query_qpn, query_done
        A query starts with a strobe and ends with one; results are then stable at the blocks.
    o_posted, o_window, o_prefetch, o_matcher : Out(stream.Signature(ControlOp))
    idle : Out(1)
    """

    def __init__(self):
        super().__init__({
            "i_create": In(stream.Signature(ListCreate)),
            "i_destroy": In(stream.Signature(QpRef)),
            "destroyed": Out(1),
            "discarded": In(1),
            "query_stb": In(1), "query_qpn": In(24), "query_done": Out(1),
            "o_posted": Out(stream.Signature(ControlOp)),
            "o_window": Out(stream.Signature(ControlOp)),
            "o_prefetch": Out(stream.Signature(ControlOp)),
            "o_matcher": Out(stream.Signature(ControlOp)),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        op = Signal(ControlOp)
        query_due = Signal()
        discarded = Signal()
        targets = (self.o_posted, self.o_window, self.o_prefetch, self.o_matcher)
        m.d.comb += [t.payload.eq(op) for t in targets]
        with m.If(self.query_stb):
            m.d.sync += query_due.eq(1)
        with m.If(self.discarded):
            m.d.sync += discarded.eq(1)

        with m.FSM():
            with m.State("IDLE"):  # waits for an operation
                m.d.comb += self.idle.eq(~self.i_create.valid & ~self.i_destroy.valid & ~query_due)
                m.d.sync += discarded.eq(0)
                with m.If(query_due):
                    m.d.sync += [op.kind.eq(ControlKind.QUERY), op.qpn.eq(self.query_qpn), query_due.eq(self.query_stb)]
                    m.next = "WINDOW"
                with m.Elif(self.i_destroy.valid):
                    destroy = self.i_destroy.p
                    m.d.sync += [
                        op.kind.eq(ControlKind.DESTROY),
                        op.qpn.eq(destroy.qpn),
                        op.generation.eq(destroy.generation),
                    ]
                    m.next = "WINDOW"
                with m.Elif(self.i_create.valid):
                    create = self.i_create.p
                    m.d.sync += [
                        op.kind.eq(ControlKind.CREATE),
                        op.qpn.eq(create.qpn),
                        op.generation.eq(create.generation),
                        op.psn.eq(create.psn),
                    ]
                    m.next = "POSTED"
            with m.State("POSTED"):  # waits for the doorbell tables
                m.d.comb += self.o_posted.valid.eq(1)
                with m.If(self.o_posted.ready):
                    m.next = "WINDOW"
            with m.State("WINDOW"):  # waits for the window
                m.d.comb += self.o_window.valid.eq(1)
                with m.If(self.o_window.ready):
                    m.next = "PREFETCH"
            with m.State("PREFETCH"):  # waits for the list state, and for fetches in flight on destroy
                m.d.comb += self.o_prefetch.valid.eq(1)
                with m.If(self.o_prefetch.ready):
                    with m.If(op.kind == ControlKind.QUERY):
                        m.next = "DONE"
                    with m.Else():
                        m.next = "MATCHER"
            with m.State("MATCHER"):  # waits for a cycle between two matches
                m.d.comb += self.o_matcher.valid.eq(1)
                with m.If(self.o_matcher.ready):
                    m.next = "DONE"
            with m.State("DONE"):  # waits for the builder on destroy
                with m.Switch(op.kind):
                    with m.Case(ControlKind.QUERY):
                        m.d.comb += self.query_done.eq(1)
                        m.next = "IDLE"
                    with m.Case(ControlKind.CREATE):
                        m.d.comb += self.i_create.ready.eq(1)
                        m.next = "IDLE"
                    with m.Default():
                        with m.If(discarded):
                            m.d.comb += [self.i_destroy.ready.eq(1), self.destroyed.eq(1)]
                            m.next = "IDLE"
        return m
