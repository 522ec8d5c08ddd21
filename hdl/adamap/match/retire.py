"""Reports of retired nodes."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.counter_ports import count_outputs
from ...part.layouts import BEAT_BITS, REPORT_RETIRE
from ...part.logic import greater_than
from ...part.stream import Fifo
from ...part.ticket import EXTENDED_TICKET_WIDTH
from ..cache.cached import Pending, index_width, line_of, retire_port
from .mark_lane import MarkBypass

OUTSTANDING = 3       # retirements between the order and the queue
REPORTS = 8


class LongReport(data.Struct):
    """A report with an extended ticket."""

    entry: BEAT_BITS
    ticket: EXTENDED_TICKET_WIDTH


def retirement(params):
    """Return the layout of a retirement: cache entry of the node, and the ticket to wait for."""
    return data.StructLayout({"index": index_width(params), "ticket": EXTENDED_TICKET_WIDTH})


class RetireLane(wiring.Component):
    """Reads the open holes of a retired node and queues the report.

    One retirement per cycle while there is ``space``; latency 4 cycles.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    op_en, op : In
        The node left the list in this cycle; marks of it come at most three cycles later.
    space : Out(1)
    left, left_qpn : Out
        A node left this list in the cycle before.
    cache : Out(retire_port(params))
    extent_base : In(58).array(params.knit_extents)
    mark_en, mark_index, mark : In
        The matcher's marks.
    o_report : Out(stream.Signature(LongReport))
        Kind RETIRE.
    count_nodes_retired, count_nodes_residue : Out(1)
    busy, idle : Out(1)
        Orders are in the pipeline; there are none, and the queue is empty.
    """

    COUNTS = {"nodes_retired": 1, "nodes_residue": 1}

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "op_en": In(1), "op": In(retirement(params)), "space": Out(1), "left": Out(1), "left_qpn": Out(24),
            "cache": Out(retire_port(params)), "extent_base": In(58).array(params.knit_extents),
            "mark_en": In(1), "mark_index": In(index_width(params)), "mark": In(Pending),
            "o_report": Out(stream.Signature(LongReport)),
            **count_outputs(self.COUNTS),
            "busy": Out(1), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        shape = retirement(self.params)
        m.submodules.forward = forward = MarkBypass(self.params)
        m.submodules.reports = reports = Fifo(LongReport, REPORTS)
        stages = [Signal(shape, name=f"stage{k}") for k in range(OUTSTANDING)]
        valids = Signal(OUTSTANDING)
        m.d.sync += valids.eq((valids << 1) | self.op_en)
        for stage, before in zip(stages, (self.op, *stages), strict=False):
            m.d.sync += stage.eq(before)

        nodes = [Signal.like(self.cache.read_node, name=f"node{k}") for k in range(1, OUTSTANDING)]
        for node, before in zip(nodes, (self.cache.read_node, *nodes), strict=False):
            m.d.sync += node.eq(before)

        left, line = forward.now, Signal(58)
        m.d.comb += [
            self.cache.read_en.eq(1), self.cache.read_index.eq(stages[0].index),
            self.left.eq(valids[0]), self.left_qpn.eq(self.cache.read_node.qpn),
            forward.index.eq(stages[1].index), forward.read.eq(self.cache.pending),
            forward.mark_en.eq(self.mark_en), forward.mark_index.eq(self.mark_index), forward.mark.eq(self.mark),
        ]
        m.d.sync += line.eq(line_of(self.params, self.extent_base, self.cache.block))

        node, report = nodes[-1], Signal(REPORT_RETIRE)
        m.d.comb += [
            report.kind.eq(abi.ReportKind.RETIRE.value), report.line.eq(line), report.qpn.eq(node.qpn),
            report.generation.eq(node.generation), report.residue.eq(left.left), report.rsn.eq(node.rsn),
            report.next_rsn.eq(node.rsn + node.count), report.open.eq(left.open),
            reports.i.p.entry.eq(report), reports.i.p.ticket.eq(stages[-1].ticket), reports.i.valid.eq(valids[2]),
            self.o_report.payload.eq(reports.o.payload), self.o_report.valid.eq(reports.o.valid),
            reports.o.ready.eq(self.o_report.ready),
            self.space.eq(~greater_than(reports.level, REPORTS - OUTSTANDING - 1)),
            self.count_nodes_retired.eq(valids[2]), self.count_nodes_residue.eq(valids[2] & (left.left != 0)),
            self.busy.eq(valids.any()), self.idle.eq(~valids.any() & ~reports.o.valid),
        ]
        return m
