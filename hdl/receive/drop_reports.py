"""Filter for reports of dropped packets: one per QP, until the driver has consumed it."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..part.counter_ports import count_outputs
from ..part.interfaces import DropReportState

OUTSTANDING_WIDTH = 6    # of the number of reports between here and the ring: more than fit there


class DropReports(wiring.Component):
    """Coalesces the reports of dropped packets of each QP.

    A peer that sends bad packets at line rate must not fill the report ring, which all other reports share. So
    one dropped packet of a QP is reported, and no other until the driver has consumed all such reports;
    and none while half of the ring is taken. Packets that are not reported are counted. All packets that come this far
    are from the QP's peer, so that no source suppresses another's reports.

    A bit of memory for each QP. The bits are cleared one after the other, when all reports are consumed and after a
    reset; nothing is reported meanwhile. A peer without a report sends again: its packet counts as lost.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    dropped : In(1)
        A packet of the QP ``index`` was dropped. Not in two cycles in a row.
    index : In(24)
    report : Out(1)
        In the cycle after ``dropped``: the packet must be reported.
    reports : In(DropReportState)
    count_reports_coalesced : Out(1)
    """

    COUNTS = {"reports_coalesced": 1}

    def __init__(self, params):
        self.params = params
        super().__init__({
            "dropped": In(1), "index": In(24), "report": Out(1), "reports": In(DropReportState),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=1, depth=self.params.qps, init=[])
        write = memory.write_port()
        read = memory.read_port(transparent_for=[write])

        dropped_q, index = Signal(), Signal(self.params.qpn_width)
        any_reported, outstanding_reports = Signal(), Signal(OUTSTANDING_WIDTH)
        clearing, at = Signal(init=1), Signal(self.params.qpn_width)
        full, half = Signal(), Signal()
        m.d.comb += [
            read.en.eq(self.dropped), read.addr.eq(self.index[:self.params.qpn_width]),
            full.eq(outstanding_reports.all()),
            self.report.eq(dropped_q & ~read.data & ~clearing & ~half & ~full),
            self.count_reports_coalesced.eq(dropped_q & ~self.report),
            write.en.eq(self.report | clearing), write.addr.eq(Mux(clearing, at, index)), write.data.eq(~clearing),
        ]
        m.d.sync += [
            dropped_q.eq(self.dropped), index.eq(self.index), half.eq(self.reports.half),
            outstanding_reports.eq(outstanding_reports + self.report - self.reports.written),
        ]
        with m.If(self.report):
            m.d.sync += any_reported.eq(1)
        with m.Elif(any_reported & (outstanding_reports == 0) & ~self.reports.unread):
            m.d.sync += [any_reported.eq(0), clearing.eq(1)]
        with m.If(clearing):
            m.d.sync += at.eq(at + 1)
            with m.If(at == self.params.qps - 1):
                m.d.sync += clearing.eq(0)
        return m
