"""Cumulative PSN of every QP as posted by the driver, and the check of a doorbell's QP."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...contract.abi import GENERATION_BITS, QpState
from ...contract.params import CardParams
from ...table.kinds import QP_STATES


class DoorbellCheck(wiring.Component):
    """Checks the QP of a doorbell against the QP table. Latency 1, one doorbell per cycle.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    stb, qpn, generation : In
    qp : Out(QP_STATES.read_port(params))
    good : Out(1)
        A cycle later: the QP is within the table, not in RESET, and of that generation.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({"stb": In(1), "qpn": In(24), "generation": In(8), "qp": Out(QP_STATES.read_port(params)),
                          "good": Out(1)})

    def elaborate(self, platform):
        m = Module()
        requested, generation, entry = Signal(), Signal(GENERATION_BITS), self.qp.entry
        m.d.sync += [requested.eq(self.stb & (self.qpn < self.params.qps)), generation.eq(self.generation)]
        same = entry.generation[:GENERATION_BITS] == generation
        m.d.comb += [
            self.qp.en.eq(self.stb), self.qp.index.eq(self.qpn),
            self.good.eq(requested & same & (entry.state != QpState.RESET.value)),
        ]
        return m


CUM_BITS = 24   # less than 2^23 PSNs are outstanding, so the window's base supplies the high bits


class CumTable(wiring.Component):
    """Newest cumulative PSN of every QP.

    One doorbell per cycle, never stalled. A doorbell of another generation than the QP's, of no QP, or of a QPN
    beyond the table, is ignored. A value can be read two cycles after its doorbell.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    post_stb, post_qpn, post_generation, post_psn : In
        A doorbell.
    qp : Out(QP_STATES.read_port(params))
    create_stb, create_qpn, create_psn : In
        Initial value of a new incarnation; held until ``create_done``.
    create_done : Out(1)
    read_en, read_index, read_data : In, In, Out
        Data comes one cycle after ``read_en`` and is held.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "post_stb": In(1), "post_qpn": In(24), "post_generation": In(8), "post_psn": In(32),
            "qp": Out(QP_STATES.read_port(params)),
            "create_stb": In(1), "create_qpn": In(24), "create_psn": In(32), "create_done": Out(1),
            "read_en": In(1), "read_index": In(params.qpn_width), "read_data": Out(CUM_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=CUM_BITS, depth=self.params.qps, init=[])
        write, read = memory.write_port(), memory.read_port()
        m.submodules.doorbell = doorbell = DoorbellCheck(self.params)
        wiring.connect(m, doorbell.qp, wiring.flipped(self.qp))
        index, psn = Signal(self.params.qpn_width), Signal(CUM_BITS)
        m.d.comb += [doorbell.stb.eq(self.post_stb), doorbell.qpn.eq(self.post_qpn),
                     doorbell.generation.eq(self.post_generation)]
        m.d.sync += [index.eq(self.post_qpn), psn.eq(self.post_psn)]
        with m.If(doorbell.good):
            m.d.comb += [write.addr.eq(index), write.data.eq(psn), write.en.eq(1)]
        with m.Elif(self.create_stb):
            m.d.comb += [write.addr.eq(self.create_qpn), write.data.eq(self.create_psn), write.en.eq(1),
                         self.create_done.eq(1)]
        m.d.comb += [read.en.eq(self.read_en), read.addr.eq(self.read_index), self.read_data.eq(read.data)]
        return m
