"""Framer: joins headers and payload."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import wire
from ..contract.abi import Reason
from ..part.layouts import BEAT_BITS, BEAT_BYTES, LENGTH_WIDTH, Beat, tx_job
from .header import tx_header

SPILLS = sorted({wire.header_bytes(opcode) - BEAT_BYTES for opcode in wire.DATA_OPCODES})


class Framer(wiring.Component):
    """Frames without ICRC: headers, payload shifted after them, padding.

    One beat per cycle; the header beat takes none of the payload, so a frame takes exactly
    ceil((headers + payload + padding) / 64) cycles while header and payload are there. Frames
    follow each other without a bubble. Combinational from inputs to ``o``. A packet with a reason takes
    one cycle and makes no beat.

    Parameters
    ----------
    paced : bool, optional
        There is a pacer.

    Members
    -------
    i : In(stream.Signature(tx_header(paced)))
    i_payload : In(stream.Signature(Beat))
        Payload of the packets that have some and no reason; unused bytes are zero.
    o : Out(stream.Signature(Beat))
        ``error`` on the last beat: the payload could not be read; the frame must not be sent.
    done_stb, done : Out(1), Out(tx_job(paced))
        The packet, in the cycle in which its last beat is transferred or it is dropped, with
        DMA_ERROR as its reason if the payload was bad.
    hold : In(1)
        While high no packet is finished.
    """

    def __init__(self, *, paced=False):
        super().__init__({
            "i": In(stream.Signature(tx_header(paced=paced))),
            "i_payload": In(stream.Signature(Beat)),
            "o": Out(stream.Signature(Beat)),
            "done_stb": Out(1),
            "done": Out(tx_job(paced=paced)),
            "hold": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        spill, header, job = self.i.p.spill, self.i.p.header, self.i.p.job
        carry = Signal(8 * max(SPILLS))         # bytes before the next payload beat
        left = Signal(LENGTH_WIDTH + 1)         # bytes of the frame not yet sent
        read = Signal()                         # the payload has been taken
        failed = Signal()
        bad = Signal()
        last = Signal()
        body = Signal()                         # the first beat is out

        payload = Mux(read, Const(0, BEAT_BITS), self.i_payload.p.data)
        shifted, carry_next = Signal(BEAT_BITS), Signal.like(carry)
        with m.Switch(spill):
            for n in SPILLS:
                with m.Case(n):
                    m.d.comb += [
                        shifted.eq(Cat(carry[:8 * n], payload[:8 * (BEAT_BYTES - n)])),
                        carry_next.eq(payload[8 * (BEAT_BYTES - n):]),
                    ]
        here = Signal()
        m.d.comb += [
            bad.eq(failed | (~read & self.i_payload.p.last & self.i_payload.p.error)),
            last.eq(left <= BEAT_BYTES),
            here.eq(self.i.valid & (read | self.i_payload.valid)),
            self.done.eq(job),
        ]
        with m.If(~body):
            with m.If(~self.i.p.dropped):
                m.d.comb += [self.o.valid.eq(self.i.valid), self.o.p.data.eq(header[:BEAT_BITS])]
                with m.If(self.o.valid & self.o.ready):
                    m.d.sync += [
                        body.eq(1),
                        carry.eq(header[BEAT_BITS:]),
                        left.eq(spill + job.packet.length + self.i.p.pad),
                        read.eq(job.packet.length == 0),
                        failed.eq(0),
                    ]
            with m.Else():
                m.d.comb += [self.done_stb.eq(self.i.valid & ~self.hold), self.i.ready.eq(~self.hold)]
        with m.Else():
            go = Signal()
            m.d.comb += [
                self.o.valid.eq(here & ~(last & self.hold)),
                self.o.p.data.eq(shifted),
                self.o.p.last.eq(last),
                self.o.p.empty.eq(Mux(last, BEAT_BYTES - left[:7], 0)),
                self.o.p.error.eq(last & bad),
                go.eq(self.o.valid & self.o.ready),
                self.i_payload.ready.eq(go & ~read),
                self.done_stb.eq(go & last),
                self.i.ready.eq(go & last),
            ]
            with m.If(bad):
                m.d.comb += self.done.reason.eq(Reason.DMA_ERROR)
            with m.If(go):
                m.d.sync += [
                    carry.eq(carry_next),
                    left.eq(left - BEAT_BYTES),
                    body.eq(~last),
                    failed.eq(bad),
                    read.eq(read | self.i_payload.p.last),
                ]
        return m
