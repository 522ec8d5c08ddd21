"""Transmit subsystem: top level of its blocks."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import Reason
from ..pacing.pacer import Pacer
from ..part.arbiter import PacketArbiter
from ..part.counter_ports import DropEvent, count_outputs, merged, pass_counts
from ..part.interfaces import Network
from ..part.layouts import BEAT_BITS, Beat, DmaRequest, Report, tx_job
from ..part.registers import register_port
from ..part.stream import Fifo
from ..table.translate import TranslateRequest, Translation
from .check import TxCheck
from .frame import Framer
from .header import HeaderBuilder
from .icrc_append import IcrcAppend
from .inline import InlineStore
from .merge import PriorityMerge
from .outcome import Outcome
from .payload import PayloadCleaner
from .raw_pad import RawPad
from .segment import Segmenter
from .send_buffer import SendBuffer, check_depth
from .send_crossing import SendCrossing


class Transmit(wiring.Component):
    """Work descriptors to RoCEv2 frames, merged with raw frames, complete before they leave.

    One beat per cycle: a data frame takes ceil(bytes / 64) cycles, ICRC included, as long as payload comes;
    ``bulk_tags`` packets wait for their payload at a time, or, with inline payload, for those before them; an
    INLINE_DATA takes one cycle more. RETRANSMIT packets overtake SEND packets until their payload is requested. Raw and
    data frames alternate when both wait.

    With ``pace_descriptors`` there is a :class:`~weft.hdl.pacing.pacer.Pacer`: paced descriptors leave their ring for
    it and are retired like an INLINE_DATA. Its packets join the others before the check; those take not a cycle more.

    A packet that must not be sent is reported once per descriptor and dropped; the descriptor ends there and is
    retired like any other. While the report ring is full, rejected packets stall the transmit path.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i_send, i_retransmit : In(stream.Signature(512))
        WORK, WORK_INLINE and INLINE_DATA descriptors.
    retire_send, retire_retransmit : Out(1)
        Strobes: a descriptor's last packet has its payload (or was rejected), in ring order.
    o_translate : Out(stream.Signature(TranslateRequest)), i_translate : In(stream.Signature(Translation))
    o_request : Out(stream.Signature(DmaRequest)), i_payload : In(stream.Signature(Beat))
        A bulk client of the DMA reader.
    i_raw : In(stream.Signature(Beat))
        Whole raw frames, padded here to 60 bytes. ``error`` on the last beat drops the frame.
    o : Out(stream.Signature(Beat))
        Frames without FCS, never interrupted by this side. With ``mac_clock`` in domain ``mac``.
    o_report : Out(stream.Signature(Report))
        TX_ERROR and PACED reports.
    registers, time_ns, i_flush
        With a pacer: its registers; the card's time, 64 bits; see :class:`~weft.hdl.pacing.pacer.Pacer`.
    network : In(Network)
    enable : In(1)
        While low no packet and no raw frame begins.
    drain_request : In(1), drain_done : Out(1)
        While requested no packet begins; done once none is between its check and its end. Registered: it stays
        high for a cycle after the request.
    idle : Out(1)
        The subsystem is empty.
    hold, sending, pause, mac_up, mac_dropped, mac_aborted
        With ``mac_clock``: see :class:`~weft.hdl.transmit.send_crossing.SendCrossing`.
    count_tx_packets, count_tx_retransmissions, count_tx_bytes, count_tx_raw_frames, count_tx_stall_cycles : Out
    drop : Out(DropEvent)
    """

    COUNTS = merged(Outcome.COUNTS, {"tx_raw_frames": 1, "tx_stall_cycles": 1})

    def __init__(self, params):
        self.params = params
        self.in_flight_max = 4 * params.bulk_tags + 64
        check_depth(params.tx_buffer_beats)
        super().__init__({
            "i_send": In(stream.Signature(BEAT_BITS)), "i_retransmit": In(stream.Signature(BEAT_BITS)),
            "retire_send": Out(1), "retire_retransmit": Out(1),
            "o_translate": Out(stream.Signature(TranslateRequest)), "i_translate": In(stream.Signature(Translation)),
            "o_request": Out(stream.Signature(DmaRequest)), "i_payload": In(stream.Signature(Beat)),
            "i_raw": In(stream.Signature(Beat)),
            "o": Out(stream.Signature(Beat)),
            "o_report": Out(stream.Signature(Report)),
            "network": In(Network), "enable": In(1),
            "drain_request": In(1), "drain_done": Out(1), "idle": Out(1),
            **({"hold": In(1), "sending": Out(1), "pause": In(1), "mac_up": In(1), "mac_dropped": Out(1),
                "mac_aborted": Out(1)} if params.mac_clock else {}),
            **({"registers": In(register_port("pacer")), "time_ns": In(64),
                "i_flush": In(stream.Signature(params.qpn_width))} if params.pace_descriptors else {}),
            **count_outputs(self.COUNTS),
            "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        flipped, paced = wiring.flipped, bool(self.params.pace_descriptors)
        m.submodules.segment_send = segment_send = Segmenter(self.params, ring=0)
        m.submodules.segment_retransmit = segment_retransmit = Segmenter(self.params, ring=1)
        m.submodules.merge = merge = PriorityMerge(paced=paced)
        m.submodules.check = check = TxCheck(paced=paced)
        m.submodules.waiting = waiting = Fifo(tx_job(paced=paced), self.params.bulk_tags)
        m.submodules.header = header = HeaderBuilder(paced=paced)
        m.submodules.payload = payload = PayloadCleaner()
        m.submodules.frame = frame = Framer(paced=paced)
        m.submodules.outcome = outcome = Outcome(self.params)
        m.submodules.seal = seal = IcrcAppend()
        m.submodules.raw = raw = RawPad()
        m.submodules.both = both = PacketArbiter(Beat, 2)
        m.submodules.buffer = buffer = (SendCrossing if self.params.mac_clock else SendBuffer)(
            self.params.tx_buffer_beats)

        wiring.connect(m, flipped(self.network), header.network)
        wiring.connect(m, flipped(self.i_send), segment_send.i)
        wiring.connect(m, flipped(self.i_retransmit), segment_retransmit.i)
        wiring.connect(m, segment_send.o, merge.i_send)
        wiring.connect(m, segment_retransmit.o, merge.i_retransmit)
        wiring.connect(m, check.o_translate, flipped(self.o_translate))
        wiring.connect(m, flipped(self.i_translate), check.i_translate)
        wiring.connect(m, check.o_request, flipped(self.o_request))
        wiring.connect(m, check.o, waiting.i)
        wiring.connect(m, waiting.o, header.i)
        wiring.connect(m, header.o, frame.i)
        wiring.connect(m, flipped(self.i_payload), payload.i)
        wiring.connect(m, frame.o, seal.i)
        wiring.connect(m, seal.o, both.i[0])
        wiring.connect(m, flipped(self.i_raw), raw.i)
        wiring.connect(m, raw.o, both.i[1])
        wiring.connect(m, both.o, buffer.i)
        wiring.connect(m, buffer.o, flipped(self.o))
        wiring.connect(m, outcome.o_report, flipped(self.o_report))

        if self.params.inline_bytes:
            m.submodules.inline = inline = InlineStore(paced=paced)
            wiring.connect(m, merge.o, inline.i)
            wiring.connect(m, inline.o, check.i)
            came_along = frame.i.p.job.packet.inline
            m.d.comb += [
                frame.i_payload.valid.eq(Mux(came_along, inline.o_payload.valid, payload.o.valid)),
                frame.i_payload.payload.eq(Mux(came_along, inline.o_payload.payload, payload.o.payload)),
                payload.o.ready.eq(frame.i_payload.ready & ~came_along),
                inline.o_payload.ready.eq(frame.done_stb & frame.done.packet.inline),   # a rejected packet takes none
            ]
        else:
            m.d.comb += [check.i.payload.eq(merge.o.p.job), check.i.valid.eq(merge.o.valid),
                         merge.o.ready.eq(check.i.ready)]
            wiring.connect(m, payload.o, frame.i_payload)

        entries, pacer_idle = [merge.i_send, merge.i_retransmit], Const(1, 1)
        if paced:
            pacer_idle = self._pace(m, (segment_send, segment_retransmit), merge, outcome)
            entries.append(merge.i_paced)
        in_flight = Signal(range(self.in_flight_max))
        begins, quiet, draining = Signal(), Signal(), Signal()
        m.d.sync += draining.eq(self.drain_request)
        m.d.comb += [
            begins.eq(Cat(i.valid & i.ready for i in entries).any()),
            quiet.eq(in_flight == 0),
            merge.enable.eq(self.enable & ~draining),
            raw.enable.eq(self.enable),
            self.drain_done.eq(draining & quiet),
            self.idle.eq(quiet & ~segment_send.o.valid & ~segment_retransmit.o.valid & ~seal.busy
                         & ~raw.o.valid & ~both.o.valid & buffer.empty & pacer_idle),
            Cat(segment_send.rejected, segment_retransmit.rejected).eq(check.rejected),
            Cat(segment_send.checked_stb, segment_retransmit.checked_stb).eq(check.checked_stb),
            outcome.done_stb.eq(frame.done_stb), outcome.done.eq(frame.done), frame.hold.eq(outcome.hold),
            self.retire_send.eq(outcome.retire_send), self.retire_retransmit.eq(outcome.retire_retransmit),
            self.count_tx_raw_frames.eq(raw.count),
            self.count_tx_stall_cycles.eq(buffer.stalled if self.params.mac_clock else self.o.valid & ~self.o.ready),
        ]
        if self.params.mac_clock:
            m.d.comb += [buffer.hold.eq(self.hold), self.sending.eq(buffer.sending), buffer.pause.eq(self.pause),
                         buffer.up.eq(self.mac_up),
                         self.mac_dropped.eq(buffer.dropped), self.mac_aborted.eq(buffer.aborted)]
        pass_counts(m, (outcome,), self)
        m.d.sync += in_flight.eq(in_flight + begins - frame.done_stb)

        # The drop of a frame too long for the buffer is reported after a rejected packet of the same cycle.
        too_long = Signal()
        m.d.comb += [
            self.drop.stb.eq(outcome.drop.stb | too_long),
            self.drop.reason.eq(outcome.drop.reason),
        ]
        m.d.sync += too_long.eq(buffer.too_long | (too_long & outcome.drop.stb))
        with m.If(~outcome.drop.stb):
            m.d.comb += self.drop.reason.eq(Reason.FRAME_TOO_LONG)
        return m

    def _pace(self, m, segmenters, merge, outcome):
        """Connect the pacer; return whether nothing is in it."""
        flipped = wiring.flipped
        m.submodules.pacer = pacer = Pacer(self.params)
        for segmenter, to in zip(segmenters, (pacer.i_send, pacer.i_retransmit), strict=True):
            wiring.connect(m, segmenter.o_pace, to)
            m.d.comb += segmenter.refused.eq(pacer.refused)
        wiring.connect(m, flipped(self.registers), pacer.registers)
        wiring.connect(m, flipped(self.i_flush), pacer.i_flush)
        wiring.connect(m, outcome.o_hurt, pacer.i_hurt)
        wiring.connect(m, pacer.o, merge.i_paced)
        m.d.comb += [pacer.time_ns.eq(self.time_ns), outcome.time_ns.eq(self.time_ns), outcome.hurt.eq(pacer.hurt)]
        return pacer.idle & ~pacer.i_send.valid & ~pacer.i_retransmit.valid
