"""The receive room: from the MAC to payload in place."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..layouts import FRAME_LENGTH_WIDTH, TICKET_WIDTH, Beat, DmaRequest, Judgement, JudgeRequest, RawFrame, Report
from ..table.translate import TranslateRequest, Translation
from .check import RxCheck
from .drain import Drain
from .judge import Judge
from .parse import Parse
from .place import Place

REFUSE = wiring.Signature({"stb": Out(1), "reason": Out(8)})


class Receive(wiring.Component):
    """Wires :class:`Parse`, :class:`RxCheck`, :class:`Judge`, :class:`Place` and :class:`Drain`.

    One beat per cycle, one packet every two cycles; everything in the order of arrival.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(Beat))
        Frames from the MAC; ``ready`` is always 1.
    enable, network_mac, network_ip : In(1), In(48), In(32)
        See :class:`Parse`.
    o_translate, i_translate
        To and from the receive side's ``Translate``.
    o_judge, i_judgement, room
        To and from the window; room in the report ring.
    o_report : Out(stream.Signature(Report))
    o_request, o_data
        A client of the DMA write engine.
    o_raw_info, o_raw
        To the Simple NIC.
    placed_ticket : Out(8)
    drain_request, drain_done : In(1), Out(1)
        See :class:`Drain`.
    idle : Out(1)
        No packet is between the parser's output and its place.
    refuse : Out(REFUSE).array(2)
        Refusals of the parser, and those behind it.
    count_... : Out
        Amounts to be added each cycle.
    """

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(Beat)),
            "enable": In(1),
            "network_mac": In(48),
            "network_ip": In(32),
            "o_translate": Out(stream.Signature(TranslateRequest)),
            "i_translate": In(stream.Signature(Translation)),
            "o_judge": Out(stream.Signature(JudgeRequest)),
            "i_judgement": In(stream.Signature(Judgement)),
            "room": In(1),
            "o_report": Out(stream.Signature(Report)),
            "o_request": Out(stream.Signature(DmaRequest)),
            "o_data": Out(stream.Signature(Beat)),
            "o_raw_info": Out(stream.Signature(RawFrame)),
            "o_raw": Out(stream.Signature(Beat)),
            "placed_ticket": Out(TICKET_WIDTH),
            "drain_request": In(1),
            "drain_done": Out(1),
            "idle": Out(1),
            "refuse": Out(REFUSE).array(2),
            "count_rx_frames": Out(1),
            "count_rx_packets": Out(1),
            "count_rx_retransmissions": Out(1),
            "count_rx_bytes": Out(FRAME_LENGTH_WIDTH),
            "count_rx_raw_frames": Out(1),
            "count_rx_unmatched": Out(1),
            "count_rx_late_originals": Out(1),
            "count_rx_stall_cycles": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.parse = parse = Parse(self.params)
        m.submodules.check = check = RxCheck()
        m.submodules.judge = judge = Judge()
        m.submodules.place = place = Place()
        m.submodules.drain = drain = Drain()
        connect(m, flipped(self.i), parse.i)
        connect(m, parse.o_header, check.i)
        connect(m, check.o_translate, flipped(self.o_translate))
        connect(m, flipped(self.i_translate), check.i_translate)
        connect(m, check.o, judge.i)
        connect(m, judge.o_judge, flipped(self.o_judge))
        connect(m, flipped(self.i_judgement), judge.i_judgement)
        connect(m, judge.o_report, flipped(self.o_report))
        connect(m, judge.o, place.i)
        connect(m, parse.o_payload, place.i_payload)
        for name in ("o_request", "o_data", "o_raw_info", "o_raw"):
            connect(m, getattr(place, name), flipped(getattr(self, name)))

        stall = Signal()
        m.d.sync += stall.eq(place.stalled | (parse.o_header.valid & ~parse.o_header.ready))
        m.d.comb += [
            parse.enable.eq(self.enable),
            parse.network_mac.eq(self.network_mac),
            parse.network_ip.eq(self.network_ip),
            judge.room.eq(self.room),
            self.placed_ticket.eq(place.placed_ticket),
            drain.enter_stb.eq(parse.header_stb),
            drain.leave_stb.eq(place.done_stb),
            drain.request.eq(self.drain_request),
            self.drain_done.eq(drain.done),
            self.idle.eq(drain.idle),
            self.count_rx_stall_cycles.eq(stall),
        ]
        for refuse, block in zip(self.refuse, (parse, judge), strict=True):
            m.d.comb += [refuse.stb.eq(block.refuse_stb), refuse.reason.eq(block.refuse_reason)]
        for block, names in ((parse, ("rx_frames",)), (place, ("rx_bytes", "rx_raw_frames")),
                             (judge, ("rx_packets", "rx_retransmissions", "rx_unmatched",
                                      "rx_late_originals"))):
            for name in names:
                m.d.comb += getattr(self, f"count_{name}").eq(getattr(block, f"count_{name}"))
        return m
