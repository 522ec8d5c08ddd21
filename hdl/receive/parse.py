"""Parser: frames from the MAC become headers and payload, or are dropped."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract import wire
from ..contract.abi import Reason
from ..contract.params import (
    PAUSE_FROM,
    PAUSE_FROM_EIGHTHS,
    PAUSE_UNTIL,
    PAUSE_UNTIL_EIGHTHS,
    SHED_FROM,
    SHED_FROM_EIGHTHS,
    SHED_UNTIL,
    SHED_UNTIL_EIGHTHS,
    exact_log2,
)
from ..part.counter_ports import DropEvent, count_outputs
from ..part.icrc import Icrc
from ..part.interfaces import Network
from ..part.layouts import BEAT_BYTES, FRAME_LENGTH_WIDTH, HOST_QPNS, PAYLOAD_MAX, Beat, RxHeader, RxKind
from ..part.logic import greater_than
from ..part.stream import Fifo
from ..table.translate import TranslateRequest
from .align import SKIPPED, Align, Cut
from .classify import (
    HOST_MIN_BYTES,
    ROCE_MIN_BYTES,
    SUM_BITS,
    FrameType,
    Headers,
    checksum_good,
    cut_of,
    frame_type,
    headers,
    padded,
)
from .early_translate import RESULT_DELAY, EarlyTranslate
from .revocable_buffer import RevocableBuffer

HEADER_DEPTH = 64
RAW_MAX = 16                    # frames that are not for a QP of the card, waiting for the Simple NIC
_ICRC_FROM = 1                  # cycles until a beat enters the ICRC
_ICRC_LATENCY = _ICRC_FROM + Icrc.CHECK_LATENCY
_CYCLES_TO_VERDICT = 3          # from the last beat after the delay line to the decision


class Parse(wiring.Component):
    """Parses, checks and stores frames; one beat per cycle in and out, back to back.

    The MAC cannot wait, so the input never stalls. A frame becomes visible when its last byte and
    its ICRC are known: its header 8 cycles after its last beat, its payload one cycle later.
    A frame for which the buffer has no space is dropped whole. The translation of a packet is requested as soon as its
    headers have arrived: see :class:`~weft.hdl.receive.early_translate.EarlyTranslate`.

    When the following blocks do not keep up, new data packets are dropped by their first beats before the space runs
    out: from ``SHED_FROM`` waiting headers or requests on, or ``SHED_FROM_EIGHTHS`` of the buffer, until fewer than
    ``SHED_UNTIL`` and ``SHED_UNTIL_EIGHTHS`` are left. This leaves space for retransmissions, probes and control
    frames, so that losses are recovered under load; and losses come in runs, not one by one. The thresholds for pausing
    the peer are lower; with pause in use (``pause_enabled``) nothing is dropped early, until space runs out
    nevertheless: then the peer ignores the pause.

    A frame that is not IPv4 (without options and fragments) to UDP port 4791 is RAW. Of the others, packets for one of
    the ``host_qpns`` become RAW with ``host``, whatever their opcode; they may be shorter than those of the card, and
    are then output without the padding of the MAC. Data packets become DATA with the payload at byte 0, without padding
    and ICRC; probes become PROBE; the ``wire.DRIVER_OPCODES`` become RAW with ``roce``. Dropped frames are counted here
    and have no other effect, with one exception: an intact data packet with a wrong RETH length becomes REJECTED, so
    that it can be reported to the driver. The first of these reasons counts: NOT_READY, BAD_FRAME, FRAME_TOO_LONG,
    TRUNCATED, LENGTH_MISMATCH (of frame, IP and UDP), BAD_ICRC, BAD_HEADER (a fixed field or the IPv4 checksum is
    wrong, or the frame is not for this card), UNKNOWN_OPCODE, NIC_BUSY (``RAW_MAX`` frames that are not for a QP of the
    card are on their way to the Simple NIC, which is slower with small frames than the line: packets do not wait for
    more), BUFFER_FULL.

    Parameters
    ----------
    params : CardParams
        ``rx_buffer_beats`` is at least 128: two of the largest data packets fit, with space to spare.

    Members
    -------
    i : In(stream.Signature(Beat))
        ``ready`` is always 1. ``error`` on the last beat: the MAC reports a bad frame.
    enable : In(1)
        While low, frames that begin are dropped.
    network : In(Network)
        Unicast frames to other MAC addresses, and RoCE packets to other IP addresses, are dropped; 0: all are accepted.
    host_qpns : In(HOST_QPNS)
    o_header : Out(stream.Signature(RxHeader))
    o_payload : Out(stream.Signature(Beat))
        Payload of the headers with ``length`` other than 0, in order.
    raw_done : In(1)
        A frame that is not for a QP of the card was handed to the Simple NIC.
    o_translate, o_outcome : Out(stream.Signature(TranslateRequest)), Out(stream.Signature(1))
        Requests for packets of QPs, in order; 1 if their headers come.
    request_stb, outcome_stb : Out(1)
        A translation was requested; such a frame was decided.
    give_up : In(1)
        Drop the frame that is arriving, if its translation was requested.
    header_stb : Out(1)
        A header was queued for ``o_header``.
    pause_enabled : In(1)
    pause_high, pause_low : Out(1)
        ``PAUSE_FROM`` or ``PAUSE_FROM_EIGHTHS`` is reached; levels are below both ``PAUSE_UNTIL``. Registered.
    count_rx_frames : Out(1)
    drop : Out(DropEvent)
    """

    COUNTS = {"rx_frames": 1}

    def __init__(self, params):
        if params.rx_buffer_beats < 2 * PAYLOAD_MAX // BEAT_BYTES:
            raise ValueError(f"rx_buffer_beats is {params.rx_buffer_beats}; two of the largest packets need "
                             f"{2 * PAYLOAD_MAX // BEAT_BYTES}")
        self.params = params
        super().__init__({
            "i": In(stream.Signature(Beat)),
            "enable": In(1),
            "network": In(Network),
            "host_qpns": In(HOST_QPNS),
            "o_header": Out(stream.Signature(RxHeader)),
            "o_payload": Out(stream.Signature(Beat)),
            "raw_done": In(1),
            "o_translate": Out(stream.Signature(TranslateRequest)),
            "o_outcome": Out(stream.Signature(1)),
            "request_stb": Out(1),
            "outcome_stb": Out(1),
            "give_up": In(1),
            "header_stb": Out(1),
            "pause_enabled": In(1),
            "pause_high": Out(1), "pause_low": Out(1),
            **count_outputs(self.COUNTS),
            "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.icrc = icrc = Icrc(check=True)
        m.submodules.early = early = EarlyTranslate()
        m.submodules.align = align = Align()
        m.submodules.buffer = buffer = RevocableBuffer(self.params.rx_buffer_beats)
        m.submodules.queue = queue = Fifo(RxHeader, HEADER_DEPTH, output_registers=2)
        connect(m, buffer.o, flipped(self.o_payload))
        connect(m, queue.o, flipped(self.o_header))
        connect(m, early.o_translate, flipped(self.o_translate))
        connect(m, early.o_outcome, flipped(self.o_outcome))
        came, came_first = Signal(Beat), Signal(init=1)
        m.d.comb += [
            self.i.ready.eq(1),
            came.eq(self.i.p),
        ]
        with m.If(self.i.valid):
            m.d.sync += came_first.eq(self.i.p.last)
        # A padded frame has empty = BEAT_BYTES - MIN_FRAME_BYTES: only the additional bits depend on the check.
        with m.If(came_first & padded(self.i.p)):
            m.d.comb += came.empty.eq(self.i.p.empty | (BEAT_BYTES - HOST_MIN_BYTES))

        self._watch(m, buffer, queue, early)
        m.d.comb += [
            early.i.p.eq(self.i.p),
            early.i.valid.eq(self.i.valid),
            early.first.eq(came_first),
            early.give_up.eq(self.give_up),
            self.request_stb.eq(early.request_stb),
        ]
        with m.If(self.i.valid & came_first):
            m.d.sync += [early.kind[name].eq(value) for name, value in frame_type(
                came, self.network.mac, self.network.ip, self.host_qpns).items()]

        ahead, ahead_valid, kind = self._delay(m, came, early.kind, icrc)
        requested, lost = early.requested, early.lost
        for stage in range(_ICRC_LATENCY - RESULT_DELAY):
            requested_q, lost_q = Signal(name=f"requested{stage}"), Signal(name=f"lost{stage}")
            m.d.sync += [requested_q.eq(requested), lost_q.eq(lost)]
            requested, lost = requested_q, lost_q
        current = self._window(m, ahead, ahead_valid)
        found = self._take_apart(m, current, ahead, kind, align)
        m.d.sync += [buffer.i.p.eq(align.o.p), buffer.i.valid.eq(align.o.valid)]
        end = self._measure(m, current, kind)
        frame = self._compare(m, end, found)
        frame.requested, frame.lost = requested, lost
        self._decide(m, frame, buffer, queue, icrc, early)
        return m

    def _watch(self, m, buffer, queue, early):
        """Build the hysteresis of shedding and pausing from the fill levels."""
        eighths = buffer.used >> (exact_log2(self.params.rx_buffer_beats) - 3)
        many, few, overrun = Signal(), Signal(), Signal()

        def marks(high, low, begin, end, begin_eighths, end_eighths):
            """Register whether the levels are high enough to begin something, and low enough to end it."""
            m.d.sync += [
                high.eq((queue.level >= begin) | (early.level >= begin) | (eighths >= begin_eighths)),
                low.eq((queue.level < end) & (early.level < end) & (eighths < end_eighths)),
            ]

        marks(many, few, SHED_FROM, SHED_UNTIL, SHED_FROM_EIGHTHS, SHED_UNTIL_EIGHTHS)
        marks(self.pause_high, self.pause_low, PAUSE_FROM, PAUSE_UNTIL, PAUSE_FROM_EIGHTHS, PAUSE_UNTIL_EIGHTHS)
        m.d.sync += early.shed.eq((many & (overrun | ~self.pause_enabled)) | (early.shed & ~few))
        with m.If(self.drop.stb & (self.drop.reason == Reason.BUFFER_FULL)):
            m.d.sync += overrun.eq(1)
        with m.Elif(few):
            m.d.sync += overrun.eq(0)

    def _delay(self, m, came, kind, icrc):
        """Delay the frame until its last beat meets the result of the ICRC. Return beat, strobe and kind."""
        ahead, ahead_valid = came, self.i.valid
        for stage in range(_ICRC_LATENCY - _CYCLES_TO_VERDICT):
            beat_q, valid_q = Signal(Beat, name=f"wait{stage}", reset_less=True), Signal(name=f"wait{stage}_valid")
            kind_q = Signal(FrameType, name=f"kind{stage}", reset_less=True)
            m.d.sync += [beat_q.eq(ahead), valid_q.eq(ahead_valid), kind_q.eq(kind)]
            ahead, ahead_valid, kind = beat_q, valid_q, kind_q
            if stage == _ICRC_FROM - 1:
                m.d.comb += [icrc.i.p.eq(ahead), icrc.i.valid.eq(ahead_valid)]
        return ahead, ahead_valid, kind

    def _window(self, m, ahead, ahead_valid):
        """Return the current beat: ``fire`` when ``ahead`` is the beat after it, or when it is the last."""
        beat, beat_valid, beat_first = Signal(Beat), Signal(), Signal()
        ahead_first = Signal(init=1)
        enabled, fire = Signal(), Signal()
        m.d.comb += fire.eq(beat_valid & (beat.last | ahead_valid))
        with m.If(ahead_valid):
            m.d.sync += [beat.eq(ahead), beat_valid.eq(1), beat_first.eq(ahead_first), ahead_first.eq(ahead.last)]
            with m.If(ahead_first):
                m.d.sync += enabled.eq(self.enable)
        with m.Elif(fire):
            m.d.sync += beat_valid.eq(0)
        return SimpleNamespace(beat=beat, first=beat_first, enabled=enabled, fire=fire)

    def _take_apart(self, m, current, ahead, kind, align):
        """Align the payload; return the fields of the headers, registered."""
        fields = headers(kind, Cat(current.beat.data, ahead.data))
        found = Signal(Headers)
        m.d.comb += [
            align.fire.eq(current.fire), align.first.eq(current.first), align.beat.eq(current.beat),
            align.ahead.eq(ahead.data), align.cut.eq(cut_of(kind)), align.dma_length.eq(fields["dma_length"]),
        ]
        with m.If(current.fire & current.first):
            m.d.sync += [found[name].eq(value) for name, value in fields.items()]
        return found

    def _measure(self, m, current, kind):
        """Build cycle 0 of the end of the frame: return its length and kind."""
        beat, beat_first, enabled, fire = current.beat, current.first, current.enabled, current.fire
        counted, bytes_now = Signal(FRAME_LENGTH_WIDTH + 1), Signal(FRAME_LENGTH_WIDTH + 1)
        m.d.comb += bytes_now.eq(Mux(beat_first, 0, counted) + BEAT_BYTES - Mux(beat.last, beat.empty, 0))
        with m.If(fire):
            # A length that is too large saturates.
            m.d.sync += counted.eq(Mux(bytes_now[FRAME_LENGTH_WIDTH], 1 << FRAME_LENGTH_WIDTH, bytes_now))
        ended, ended_kind, ended_enabled, ended_error = Signal(), Signal(FrameType), Signal(), Signal()
        ip_total = Signal(SUM_BITS + 1)
        m.d.sync += [ended.eq(fire & beat.last), ended_kind.eq(kind), ended_enabled.eq(enabled),
                     ended_error.eq(beat.error), ip_total.eq(kind.ip_sums[0] + kind.ip_sums[1])]
        return SimpleNamespace(valid=ended, kind=ended_kind, enabled=ended_enabled, error=ended_error, counted=counted,
                               ip_total=ip_total)

    def _compare(self, m, end, found):
        """Build cycle 1: the comparisons. Return them with the header."""
        ended, ended_kind, ended_enabled, ended_error = end.valid, end.kind, end.enabled, end.error
        counted, ip_total = end.counted, end.ip_total
        expected, headers_end, least = Signal(17), Signal(8), Signal(8)
        short_data, wrong_reth = Signal(), Signal()
        decide, header, plain = Signal(), Signal(RxHeader), Signal(8)
        roce, host, ours, known, is_data = Signal(), Signal(), Signal(), Signal(), Signal()
        cut = Signal(Cut)
        m.d.comb += cut.eq(cut_of(ended_kind))
        with m.Switch(cut):
            for case, skipped in SKIPPED.items():
                with m.Case(case):
                    m.d.comb += headers_end.eq(BEAT_BYTES + skipped)
        length = found.dma_length[:16]
        m.d.comb += [
            expected.eq(headers_end + length + found.pad_count + wire.ICRC_BYTES),
            least.eq(headers_end + wire.ICRC_BYTES),
            short_data.eq(ended_kind.data & (ended_kind.ip_end < least)),
            wrong_reth.eq(greater_than(found.dma_length, PAYLOAD_MAX) | (expected != ended_kind.ip_end)
                          | (found.pad_count + found.dma_length[:2])[:2].any()),
        ]
        mismatch, truncated, differs = Signal(), Signal(), Signal()
        m.d.comb += [
            truncated.eq((ended_kind.ip_end > counted) | short_data
                         | (ended_kind.ip_end < Mux(ended_kind.host, HOST_MIN_BYTES, ROCE_MIN_BYTES))),
            differs.eq(~ended_kind.lengths_agree | (ended_kind.ip_end != counted)),
        ]
        m.d.sync += [
            decide.eq(ended),
            plain.eq(Mux(~ended_enabled, Reason.NOT_READY, Mux(ended_error, Reason.BAD_FRAME, Mux(
                counted[FRAME_LENGTH_WIDTH], Reason.FRAME_TOO_LONG, Mux(
                    ~ended_kind.has_eth | (ended_kind.roce & truncated), Reason.TRUNCATED, Mux(
                        ended_kind.roce & differs, Reason.LENGTH_MISMATCH, Reason.OK)))))),
            roce.eq(ended_kind.roce),
            ours.eq(Mux(ended_kind.roce, ended_kind.mac_ours & ended_kind.ip_ours & ended_kind.bth_good
                        & checksum_good(ip_total),
                        ended_kind.mac_ours | ended_kind.mac_group)),
            host.eq(ended_kind.host),
            known.eq(~ended_kind.roce | ended_kind.host | ended_kind.data | ended_kind.probe | ended_kind.for_driver),
            is_data.eq(ended_kind.data),
            mismatch.eq(ended_kind.roce & Mux(
                ended_kind.data, wrong_reth, ended_kind.probe & (ended_kind.ip_end != ROCE_MIN_BYTES))),
        ]
        m.d.sync += [header[name].eq(found[name]) for name in Headers.as_shape().members if name != "pad_count"]
        m.d.sync += [
            header.kind.eq(Mux(~ended_kind.roce | ended_kind.host | ended_kind.for_driver, RxKind.RAW,
                               Mux(ended_kind.data, RxKind.DATA, RxKind.PROBE))),
            header.roce.eq(ended_kind.roce & ended_kind.for_driver),
            header.host.eq(ended_kind.roce & ended_kind.host),
            header.retransmission.eq(ended_kind.roce & ended_kind.retransmission),
            header.has_imm.eq(ended_kind.roce & ended_kind.has_imm),
            header.length.eq(Mux(cut == Cut.FRAME, counted, length)),
        ]
        return SimpleNamespace(valid=decide, header=header, plain=plain, roce=roce, host=host, ours=ours, known=known,
                               is_data=is_data, mismatch=mismatch)

    def _decide(self, m, frame, buffer, queue, icrc, early):
        """Build cycle 2: the decision, with the result of the ICRC and the last beat at the buffer."""
        decide, header, plain, mismatch = frame.valid, frame.header, frame.plain, frame.mismatch
        roce, host, ours, known, is_data = frame.roce, frame.host, frame.ours, frame.known, frame.is_data
        reason, goes_on = Signal(8), Signal()
        raw, raws = Signal(), Signal(range(RAW_MAX + 1))
        more = queue.i.valid & raw
        m.d.comb += raw.eq(~roce | host)
        m.d.sync += raws.eq(Mux(more == self.raw_done, raws, Mux(self.raw_done, raws - 1, raws + 1)))
        wrong = [
            (plain, plain != Reason.OK),
            (Reason.BAD_ICRC, roce & ~icrc.o.p),
            (Reason.BAD_HEADER, ~ours),
            (Reason.UNKNOWN_OPCODE, ~known),
            (Reason.NIC_BUSY, raw & greater_than(raws, RAW_MAX - 1)),
            (Reason.BUFFER_FULL, ~queue.i.ready | frame.lost | (~mismatch & ~buffer.fits)),
            (Reason.LENGTH_MISMATCH, mismatch),
        ]
        for why, so in reversed(wrong):
            with m.If(so):
                m.d.comb += reason.eq(why)
        # Data with a wrong length is passed on as well, without its payload.
        m.d.comb += [
            goes_on.eq(~Cat(so for _, so in wrong[:-1]).any() & (~mismatch | is_data)),
            buffer.end.eq(decide),
            buffer.keep.eq(goes_on & ~mismatch),
            queue.i.valid.eq(decide & goes_on),
            queue.i.p.eq(header),
            self.header_stb.eq(queue.i.valid),
            early.outcome_stb.eq(decide & frame.requested),
            early.keep.eq(queue.i.valid),
            self.outcome_stb.eq(early.outcome_stb),
        ]
        with m.If(mismatch):        # REJECTED data, if it is passed on at all
            m.d.comb += [queue.i.p.kind.eq(RxKind.REJECTED), queue.i.p.reason.eq(Reason.LENGTH_MISMATCH),
                         queue.i.p.length.eq(0)]
        m.d.sync += [
            self.count_rx_frames.eq(decide),
            self.drop.stb.eq(decide & ~goes_on),
            self.drop.reason.eq(reason),
        ]
