"""Placement: payload to host memory, frames to the Simple NIC, or discard."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.counter_ports import count_outputs
from ..part.layouts import FRAME_LENGTH_WIDTH, TICKET_WIDTH, Beat, DmaRequest, RawFrame
from ..part.stages import ReadyRegister, SkidBuffer
from ..part.stream import Fifo
from .window_check import Action, Placement

AHEAD = 4       # packets whose requests may run ahead of their payload


class _Move(data.Struct):
    action: Action
    roce: 1
    length: FRAME_LENGTH_WIDTH
    ticket: TICKET_WIDTH


class Place(wiring.Component):
    """Moves payload, one beat per cycle without bubbles between packets; a packet without payload takes a cycle.

    The requests of a packet (one per segment, one group) or its :class:`RawFrame` are offered before its payload is;
    they run ahead by up to ``AHEAD`` packets. Stalls when the sink does.

    Members
    -------
    i : In(stream.Signature(Placement))
    i_payload : In(stream.Signature(Beat))
        Payload of the placements with an action other than NOTHING, in order.
    o_request : Out(stream.Signature(DmaRequest))
    o_data : Out(stream.Signature(Beat))
        To the DMA write engine.
    o_raw_info : Out(stream.Signature(RawFrame))
    o_raw : Out(stream.Signature(Beat))
        Whole frames.
    placed_ticket : Out(8)
        The newest packet whose payload, and that of all packets before it, was accepted completely. 255 before the
        first.
    done_stb : Out(1)
        A packet is done; ``placed_ticket`` follows in the next cycle.
    raw_stb : Out(1)
        With ``done_stb``: it was a frame that is not for a QP of the card.
    stalled : Out(1)
        A beat waits for its sink.
    count_rx_bytes : Out(14)
        Payload bytes written, to be added each cycle.
    """

    COUNTS = {"rx_bytes": FRAME_LENGTH_WIDTH}

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Placement)),
            "i_payload": In(stream.Signature(Beat)),
            "o_request": Out(stream.Signature(DmaRequest)),
            "o_data": Out(stream.Signature(Beat)),
            "o_raw_info": Out(stream.Signature(RawFrame)),
            "o_raw": Out(stream.Signature(Beat)),
            "placed_ticket": Out(TICKET_WIDTH, init=(1 << TICKET_WIDTH) - 1),
            "done_stb": Out(1),
            "raw_stb": Out(1),
            "stalled": Out(1),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.requested = requested = Fifo(_Move, AHEAD)
        # Skid buffer: no combinational path from the requests to the window check, which looks up the QP in the cycle
        # in which it offers the placement.
        m.submodules.placements = placements = SkidBuffer(Placement)
        wiring.connect(m, wiring.flipped(self.i), placements.i)
        packet = placements.o
        request = stream.Signature(DmaRequest).create()

        # Requests: a packet enters `requested` when its last request was accepted.
        second = Signal()       # the first segment's request was accepted
        two = packet.p.two
        accepted = Signal()
        m.d.comb += [
            request.p.last.eq(~two | second),
            request.p.address.eq(Mux(second, packet.p.segment1.address, packet.p.segment0.address)),
            request.p.length.eq(Mux(second, packet.p.segment1.length, packet.p.segment0.length)),
            self.o_raw_info.p.length.eq(packet.p.length),
            self.o_raw_info.p.roce.eq(packet.p.roce),
            self.o_raw_info.p.host.eq(packet.p.host),
        ]
        settled = Signal()      # the requests were accepted, `requested` was full
        with m.Switch(packet.p.action):
            with m.Case(Action.WRITE):
                m.d.comb += request.valid.eq(packet.valid & ~settled)
                m.d.comb += accepted.eq(request.ready & request.p.last)
            with m.Case(Action.RAW):
                # The Simple NIC also requests writes, and gets data after those of earlier packets: their requests
                # go first, or the write engine would deadlock.
                m.d.comb += self.o_raw_info.valid.eq(packet.valid & ~settled & request.ready)
                m.d.comb += accepted.eq(self.o_raw_info.ready & request.ready)
            with m.Default():
                m.d.comb += accepted.eq(1)
        m.d.comb += [
            requested.i.valid.eq(packet.valid & (settled | accepted)),
            requested.i.p.action.eq(packet.p.action),
            requested.i.p.roce.eq(packet.p.roce),
            requested.i.p.length.eq(packet.p.length),
            requested.i.p.ticket.eq(packet.p.ticket),
            packet.ready.eq(requested.i.ready & (settled | accepted)),
        ]
        with m.If(packet.valid & packet.ready):
            m.d.sync += [settled.eq(0), second.eq(0)]
        with m.Elif(packet.valid):
            m.d.sync += settled.eq(settled | accepted)
            with m.If(request.valid & request.ready & two):
                m.d.sync += second.eq(1)

        # No combinational path from the arbiter of writers.
        m.submodules.request = to_write = ReadyRegister(DmaRequest)
        wiring.connect(m, to_write.o, wiring.flipped(self.o_request))
        wiring.connect(m, request, to_write.i)

        # Payload.
        move = requested.o.p
        moved = Signal()        # a beat leaves
        m.d.comb += [
            self.o_data.p.eq(self.i_payload.p),
            self.o_raw.p.eq(self.i_payload.p),
            moved.eq(self.i_payload.valid & self.i_payload.ready),
            self.stalled.eq(requested.o.valid & self.i_payload.valid & (move.action != Action.NOTHING) & ~moved),
            requested.o.ready.eq((move.action == Action.NOTHING) | (moved & self.i_payload.p.last)),
            self.done_stb.eq(requested.o.valid & requested.o.ready),
            self.raw_stb.eq(self.done_stb & (move.action == Action.RAW) & ~move.roce),
        ]
        with m.If(requested.o.valid), m.Switch(move.action):
            with m.Case(Action.DISCARD):
                m.d.comb += self.i_payload.ready.eq(1)
            with m.Case(Action.WRITE):
                m.d.comb += [self.o_data.valid.eq(self.i_payload.valid), self.i_payload.ready.eq(self.o_data.ready)]
            with m.Case(Action.RAW):
                m.d.comb += [self.o_raw.valid.eq(self.i_payload.valid), self.i_payload.ready.eq(self.o_raw.ready)]
        with m.If(self.done_stb):
            m.d.sync += self.placed_ticket.eq(move.ticket)
        m.d.sync += self.count_rx_bytes.eq(Mux(self.done_stb & (move.action == Action.WRITE), move.length, 0))
        return m
