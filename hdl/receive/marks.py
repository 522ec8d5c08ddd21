"""Count of marked packets of each QP, and the decision to report one."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.abi import MARK_STEP_NS
from ..contract.params import exact_log2
from ..part.counter_ports import count_outputs
from ..part.layouts import REPORT_EVENT

COUNT_WIDTH = REPORT_EVENT["marked"].width
STEP_WIDTH = 20     # of the time of a report, in steps of MARK_STEP_NS; with the count, the width of a block RAM
INTERVAL_WIDTH = 20
_STEP = exact_log2(MARK_STEP_NS)


class Mark(data.Struct):
    """State of a QP."""

    count: COUNT_WIDTH
    step: STEP_WIDTH        # of the newest report


class Marks(wiring.Component):
    """Counts accepted packets with the mark CE by QP, and reports at most one of a QP in an interval.

    A packet every three cycles; the decision comes two cycles after it. Stage 1 reads the state of the QP, stage 2
    decides and writes. Within the interval, while half of the ring is taken, or when the packet has another report,
    nothing is kept: a later packet is reported. The time of a report wraps after 268 ms: a QP whose last report was a
    multiple of that ago may wait for one interval without need.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    time_ns, interval_ns : In(64), In(32)
        Of the interval, 20 bits are used; it is rounded up to steps of ``MARK_STEP_NS``.
    index : In(24)
        QP of the packet that may be the next one.
    marked, alone : In(1)
        That packet is accepted and has the mark; it has no other report in this place. Only while ``busy`` is low.
    busy : Out(1)
        A decision is pending.
    half : In(1)
        Half of the report ring is taken.
    report, count : Out(1), Out(16)
        Two cycles after ``marked``: the packet must be reported, with this count.
    created, created_index : In(1), In(24)
        A QP is created; its count begins at 0. Not within 4 cycles of each other.
    count_rx_marked : Out(1)
    """

    COUNTS = {"rx_marked": 1}

    def __init__(self, params):
        self.params = params
        super().__init__({
            "time_ns": In(64), "interval_ns": In(32), "index": In(24), "marked": In(1), "alone": In(1), "half": In(1),
            "busy": Out(1), "report": Out(1), "count": Out(COUNT_WIDTH), "created": In(1), "created_index": In(24),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=Mark, depth=self.params.qps, init=[])
        write, read = memory.write_port(), memory.read_port()
        width = self.params.qpn_width
        step, limit = Signal(STEP_WIDTH), Signal(INTERVAL_WIDTH + 1 - _STEP)
        stage = data.StructLayout({"marked": 1, "may_report": 1, "index": width})
        stage_1, stage_2 = Signal(stage), Signal(stage)
        now, last, age = Signal(STEP_WIDTH), Signal(STEP_WIDTH), Signal(STEP_WIDTH)     # of stage 2
        clear, clear_index = Signal(), Signal(width)
        m.d.sync += [
            step.eq(self.time_ns >> _STEP),
            limit.eq((self.interval_ns[:INTERVAL_WIDTH] + (MARK_STEP_NS - 1)) >> _STEP),
            stage_1.marked.eq(self.marked), stage_1.may_report.eq(self.alone & ~self.half),
            stage_1.index.eq(self.index), stage_2.eq(stage_1),
            now.eq(step), last.eq(read.data.step), age.eq(step - read.data.step), self.count.eq(read.data.count + 1),
            clear.eq(self.created | (clear & self.busy)),
        ]
        with m.If(self.created):
            m.d.sync += clear_index.eq(self.created_index)
        m.d.comb += [
            read.en.eq(1), read.addr.eq(self.index[:width]),
            self.busy.eq(stage_1.marked | stage_2.marked),
            self.report.eq(stage_2.marked & stage_2.may_report & (age > limit)),
            self.count_rx_marked.eq(stage_1.marked),
            write.en.eq(stage_2.marked | (clear & ~self.busy)),
            write.addr.eq(Mux(stage_2.marked, stage_2.index, clear_index)),
            write.data.count.eq(Mux(stage_2.marked, self.count, 0)),
            # A new QP was reported half of the range ago.
            write.data.step.eq(Mux(stage_2.marked & ~self.report, last,
                                   Cat(now[:-1], now[-1] ^ ~stage_2.marked))),
        ]
        return m
