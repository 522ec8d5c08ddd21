"""What is proven of the prefetcher's work list: no QP that was entered is forgotten."""

from amaranth.hdl import Cat, Mux, Signal

from weft.hdl.adamap.work_list import WorkList
from weft.hdl.params import preset

from .formal import Spec

QPS = 2


class WorkListSpec(Spec):
    """Doorbells, both streams, the taker and creations at any time. A QP taken is due again from the next cycle on."""

    name = "work_list"
    block = WorkList

    def specify(self, m):
        m.submodules.dut = dut = self.block(preset("test").with_(qps=QPS))
        self.free_members(dut)
        leaves = dut.o.valid & dut.o.ready
        enters, which = Signal(), Signal(1)
        m.d.comb += [
            enters.eq(dut.post_stb | (dut.i[0].valid & dut.i[0].ready) | (dut.i[1].valid & dut.i[1].ready)),
            which.eq(Mux(dut.post_stb, dut.post_qpn,
                         Mux(dut.i[0].valid & dut.i[0].ready, dut.i[0].payload, dut.i[1].payload))),
        ]
        due = Signal(QPS)
        for q in range(QPS):
            with m.If((leaves & (dut.o.payload == q)) | (dut.forget_en & (dut.forget_qpn == q))):
                m.d.sync += due[q].eq(0)
            with m.Elif(enters & (which == q)):
                m.d.sync += due[q].eq(1)
        calm = Signal(3)
        with m.If(enters | dut.o.valid | dut.forget_en):
            m.d.sync += calm.eq(0)
        with m.Else():
            m.d.sync += calm.eq(calm + (calm != 7))
        self.check("no due QP is missing once the list is empty", (calm < 4) | ~due.any(), bound=24, seconds=200)
        offered = Signal(2)
        m.d.sync += offered.eq(Cat(dut.o.valid & ~dut.o.ready & ~dut.forget_en, dut.o.payload))
        self.check("an offered QP stays until taken", ~offered[0] | dut.forget_en | (
            dut.o.valid & (dut.o.payload == offered[1])), bound=24, seconds=200)
        together = Signal()
        with m.If(leaves & enters & (which == dut.o.payload)):
            m.d.sync += together.eq(1)
        self.cover("a QP leaves in the cycle in which it is entered", together & leaves)
        self.cover("both QPs due", due.all())


SPECS = [WorkListSpec]
MUTANTS = [
    (WorkListSpec, [("again.eq(queue.i.valid & (qpn == chosen))", "again.eq(valid & (qpn == chosen))")]),
    (WorkListSpec, [("self.forget_en | (queue.o.valid & queue.o.ready)", "self.forget_en")]),
]
