"""Completion of packets: counts, ring progress, error reports."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import Reason, ReportKind
from ..part.counter_ports import DropEvent, count_outputs
from ..part.layouts import BEAT_BITS, FRAME_LENGTH_WIDTH, REPORT_EVENT, Report, hurt_qp, tx_job
from ..part.stream import Fifo

REPORTS = 4  # reports waiting; then the transmit path waits


class Outcome(wiring.Component):
    """Counts finished packets, retires finished descriptors and reports rejected ones, and the end of paced ones.

    When a packet of the pacer is rejected, its QP is flushed: nothing is reported of the packets of that QP that were
    on their way, until the ``silent`` one that comes after them.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    done_stb, done : In(1), In(tx_job(paced))
        A finished packet, never while ``hold`` is high.
    hold : Out(1)
        There is no space for another report.
    retire_send, retire_retransmit : Out(1)
        Strobes: the last packet of a descriptor is finished.
    time_ns, hurt, o_hurt : In(48), In(1), Out(hurt_qp(params))
        With a pacer: the time; high if the QP of ``done`` was rejected; a change of that, whose ``qpn`` is always that
        of ``done``.
    o_report : Out(stream.Signature(Report))
        TX_ERROR and PACED reports; ``qpn`` is the local QP, ``va``, ``key`` and ``length`` are the RETH's. They have no
        ticket: they wait for nothing.
    count_tx_packets, count_tx_retransmissions, count_tx_bytes : Out(1), Out(1), Out(14)
    drop : Out(DropEvent)
        One for each report.
    """

    COUNTS = {"tx_packets": 1, "tx_retransmissions": 1, "tx_bytes": FRAME_LENGTH_WIDTH}

    def __init__(self, params):
        self.params, self.paced = params, bool(params.pace_descriptors)
        super().__init__({
            "done_stb": In(1), "done": In(tx_job(paced=self.paced)), "hold": Out(1),
            **({"time_ns": In(48), "hurt": In(1), "o_hurt": Out(stream.Signature(hurt_qp(params)))}
               if self.paced else {}),
            "retire_send": Out(1), "retire_retransmit": Out(1),
            "o_report": Out(stream.Signature(Report)),
            **count_outputs(self.COUNTS),
            "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        packet = self.done.packet
        sent, rejected = Signal(), Signal()
        m.submodules.reports = reports = Fifo(BEAT_BITS, REPORTS)
        m.d.comb += [
            sent.eq(self.done_stb & (self.done.reason == Reason.OK) & ~self.done.silent),
            rejected.eq(self.done_stb & (self.done.reason != Reason.OK) & ~self.done.silent),
            self.hold.eq(~reports.i.ready),
            reports.i.valid.eq(rejected),
            self.o_report.valid.eq(reports.o.valid),
            reports.o.ready.eq(self.o_report.ready),
            self.o_report.p.entry.eq(reports.o.payload),
        ]
        event = data.View(REPORT_EVENT, reports.i.payload)
        m.d.comb += [
            event.kind.eq(ReportKind.TX_ERROR),
            event.has_imm.eq(packet.has_imm),
            event.retransmission.eq(packet.has_rsn),
            event.reason.eq(self.done.reason),
            event.opcode.eq(packet.opcode),
            event.qpn.eq(packet.sqpn),
            event.generation.eq(self.done.qp_generation),
            event.psn.eq(packet.psn),
            event.va.eq(packet.remote_va),
            event.key.eq(packet.rkey),
            event.length.eq(packet.length),
            event.imm.eq(packet.imm),
            event.rsn.eq(packet.rsn),
        ]
        m.d.sync += [
            self.retire_send.eq(self.done_stb & packet.last & ~packet.ring),
            self.retire_retransmit.eq(self.done_stb & packet.last & packet.ring),
            self.count_tx_packets.eq(sent),
            self.count_tx_retransmissions.eq(sent & packet.has_rsn),
            self.count_tx_bytes.eq(0),
            self.drop.stb.eq(rejected),
            self.drop.reason.eq(self.done.reason),
        ]
        with m.If(sent):
            m.d.sync += self.count_tx_bytes.eq(packet.length)
        if self.paced:
            self._pace(m, event, reports, rejected, sent)
        return m

    def _pace(self, m, event, reports, rejected, sent):
        """Report the ends of paced descriptors, and reject QPs of the pacer as a whole."""
        done, packet = self.done, self.done.packet
        ends, known = Signal(), Signal()     # `known`: the rejection of the QP was reported
        own = Signal(REPORT_EVENT)
        m.d.comb += [
            known.eq(packet.paced & self.hurt), ends.eq(sent & packet.paced & packet.ends & ~known),
            own.kind.eq(ReportKind.PACED), own.retransmission.eq(packet.has_rsn), own.qpn.eq(packet.sqpn),
            own.generation.eq(done.qp_generation), own.psn.eq(packet.psn + 1), own.time_ns.eq(self.time_ns),
            self.hold.eq(~reports.i.ready | ~self.o_hurt.ready),
            rejected.eq(self.done_stb & (done.reason != Reason.OK) & ~done.silent & ~known),
            reports.i.valid.eq(rejected | ends),
            self.o_hurt.valid.eq(self.done_stb & packet.paced & ((done.reason != Reason.OK) & ~known | done.silent)),
            self.o_hurt.p.qpn.eq(packet.sqpn), self.o_hurt.p.heals.eq(done.silent),
        ]
        with m.If(done.reason == Reason.OK):
            m.d.comb += event.eq(own)
        with m.If(packet.paced):
            m.d.sync += [self.retire_send.eq(0), self.retire_retransmit.eq(0)]
