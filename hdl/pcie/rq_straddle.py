"""Requests to the UltraScale+ hard block (RQ interface) with straddle: two begin or end in one beat."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring

from ..part.layouts import BEAT_BITS
from ..part.stages import SkidBuffer
from .outstanding_writes import OutstandingWrites
from .rq import (
    HEADER_BITS,
    HEADER_DWORDS,
    READ_SEQUENCE,
    WRITE_SEQUENCE,
    RequestDescriptor,
    RequestShim,
    RequestType,
    RequestUser,
)
from .tlp import DWORD_BITS, LANES, ReadTlp
from .write_store import WriteStore

HALF = LANES // 2                       # double words; a packet begins at a half
HALF_BITS = HALF * DWORD_BITS
HALF_POINTER = 0b10                     # the second half, in the encoding of is_sop_ptr
SPACE_LOW = LANES - HEADER_DWORDS       # payload in a packet's first beat, if it begins in the first half
SPACE_HIGH = HALF - HEADER_DWORDS       # the same in the second
CARRY_DWORDS = LANES - SPACE_HIGH


class _Part(data.Struct):
    """Part of one packet in a beat; ``end`` is its last double word there, counted from the beat's first."""

    begins: 1
    ends: 1
    end: range(LANES)
    write: 1
    first_be: 4
    last_be: 4


class _Beat(data.Struct):
    data: BEAT_BITS
    low: _Part          # the packet of the first double word
    high: _Part         # one that begins in the second half


class StraddledRequestShim(RequestShim):
    """Sends read and write requests to RQ, back to back, alternating when both wait.

    With straddle RQ is one stream of packets. One begins in byte 0, or in byte 32 if another ends in the same beat
    before that (PG213, "Straddle Option on RQ Interface"); ``tkeep`` and ``tlast`` are undefined.

    A read takes half a beat, a write of n double words ceil((n + 4) / 8) halves: 8 beats and a half for 512 bytes. In
    each cycle a beat of a write is accepted, a read, or both; so writes of up to 4 double words, which take a half
    each, are combined with reads only. The latency of a read is 3 cycles; a write begins 3 cycles after it is complete:
    ``tvalid`` must not fall inside a packet, or the hard block nullifies it.

    State: ``carry``, up to 12 double words of a write's last beat that did not fit the beat before.

    Members
    -------
    i_read, i_write, m_axis_rq, nonposted_credits, gone, sequence, sequence_valid, busy
        See :class:`~weft.hdl.pcie.rq.RequestShim`.
    """

    def elaborate(self, platform):
        m = Module()
        m.submodules.reads = reads = SkidBuffer(ReadTlp)      # whether a read fits depends on the write before it
        m.submodules.store = store = WriteStore()
        m.submodules.out = out = SkidBuffer(_Beat)
        m.submodules.outstanding = outstanding = OutstandingWrites()
        wiring.connect(m, wiring.flipped(self.i_read), reads.i)
        wiring.connect(m, wiring.flipped(self.i_write), store.i)
        read, write, low, high = reads.o.p, store.o.p, out.i.p.low, out.i.p.high

        # A write that has begun, and in which half; the rest of one that has ended.
        inside, began_high, flush = Signal(), Signal(), Signal()
        carry, carry_dwords = Signal(CARRY_DWORDS * DWORD_BITS), Signal(range(CARRY_DWORDS + 1))
        may_read, may_write, read_next = Signal(), Signal(), Signal()
        read_low, write_low, free, read_high, write_high = Signal(), Signal(), Signal(), Signal(), Signal()
        tail = Signal(range(LANES + 1))                 # double words in the last beat of a write, 1 to 16
        as_high, write_ends, takes_read, takes_write = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            may_read.eq(reads.o.valid & (self.nonposted_credits != 0)), may_write.eq(store.o.valid),
            read_low.eq(~flush & ~inside & may_read & (read_next | ~may_write)),
            write_low.eq(~flush & may_write & (inside | ~(may_read & read_next))),
            free.eq((flush & (carry_dwords <= HALF)) | read_low
                    | (write_low & ~as_high & write.last & (tail <= HALF - HEADER_DWORDS))),
            read_high.eq(free & may_read & ~read_low & (write_low | read_next | ~may_write)),
            write_high.eq(free & may_write & ~write_low & ~read_high),
            takes_read.eq(read_low | read_high), takes_write.eq(write_low | write_high),
            as_high.eq(Mux(inside, began_high, ~write_low)),
            tail.eq(((write.dwords - 1)[:4]) + 1),
            write_ends.eq(write.last & (tail <= Mux(as_high, SPACE_HIGH, SPACE_LOW))),
            out.i.valid.eq(flush | takes_read | takes_write),
            reads.o.ready.eq(takes_read & out.i.ready), store.o.ready.eq(takes_write & out.i.ready),
        ]
        with m.If(out.i.valid & out.i.ready):
            m.d.sync += flush.eq(takes_write & write.last & ~write_ends)
            with m.If(takes_write):
                m.d.sync += [
                    inside.eq(~write.last), began_high.eq(as_high),
                    carry_dwords.eq(tail - Mux(as_high, SPACE_HIGH, SPACE_LOW)),
                    carry.eq(Mux(as_high, write.data[SPACE_HIGH * DWORD_BITS:], write.data[SPACE_LOW * DWORD_BITS:])),
                ]
            with m.If(takes_write ^ takes_read):
                m.d.sync += read_next.eq(takes_write)

        # The payload of a write begins after a descriptor, or after the carried part.
        read_head, write_head = (
            self._descriptor(m, tlp, kind, tag) for tlp, kind, tag in (
                (read, RequestType.MEMORY_READ, read.tag), (write, RequestType.MEMORY_WRITE, 0)))
        m.d.comb += [
            out.i.p.data.eq(Mux(as_high & takes_write, Cat(carry, write.data), Cat(carry[:HEADER_BITS], write.data))),
            low.begins.eq(read_low | (write_low & ~inside)), low.write.eq(~read_low),
            high.begins.eq(read_high | write_high), high.write.eq(write_high),
        ]
        with m.If(flush):
            m.d.comb += [out.i.p.data.eq(carry), low.ends.eq(1), low.end.eq(carry_dwords - 1)]
        with m.Elif(read_low):
            m.d.comb += [out.i.p.data.eq(read_head), low.ends.eq(1), low.end.eq(HEADER_DWORDS - 1)]
        with m.Else():
            m.d.comb += [low.ends.eq(write_ends),
                         low.end.eq(Mux(as_high, CARRY_DWORDS - 1, HEADER_DWORDS - 1) + tail)]
            with m.If(~inside):
                m.d.comb += out.i.p.data[:HEADER_BITS].eq(write_head)
        with m.If(read_high):
            m.d.comb += [out.i.p.data[HALF_BITS:].eq(read_head), high.ends.eq(1),
                         high.end.eq(HALF + HEADER_DWORDS - 1)]
        with m.Elif(write_high):
            m.d.comb += [out.i.p.data[HALF_BITS:].eq(Cat(write_head, write.data)), high.ends.eq(write_ends),
                         high.end.eq(HALF + HEADER_DWORDS - 1 + tail)]
        for part, is_read in ((low, read_low), (high, read_high)):
            m.d.comb += [part.first_be.eq(Mux(is_read, read.first_be, write.first_be)),
                         part.last_be.eq(Mux(is_read, read.last_be, write.last_be))]

        m.d.comb += [
            self.busy.eq(reads.o.valid | store.busy | flush | out.o.valid | outstanding.busy),
            outstanding.sent.eq(takes_write & out.i.ready & write.first),
            outstanding.left.eq(Cat(self.sequence_valid[k] & (self.sequence[k] == WRITE_SEQUENCE) for k in range(2))),
            outstanding.gone.eq(self.gone),
        ]
        self._send(m, out.o)
        return m

    def _descriptor(self, m, tlp, kind, tag):
        head = Signal(RequestDescriptor)
        m.d.comb += [head.address.eq(tlp.address), head.dwords.eq(tlp.dwords), head.kind.eq(kind), head.tag.eq(tag)]
        return head.as_value()

    def _send(self, m, beat):
        """Send a beat with its sideband."""
        rq, user, low, high = self.m_axis_rq, Signal(RequestUser), beat.p.low, beat.p.high
        sequence = [Mux(part.write, WRITE_SEQUENCE, READ_SEQUENCE) for part in (low, high)]
        m.d.comb += [
            user.first_be1.eq(high.first_be), user.last_be1.eq(high.last_be), user.seq_num1.eq(sequence[1]),
            user.sop_pointer1.eq(HALF_POINTER), user.eop_pointer1.eq(high.end),
            user.is_sop.eq(Cat(low.begins | high.begins, low.begins & high.begins)),
            user.is_eop.eq(Cat(low.ends | high.ends, low.ends & high.ends)),
            user.eop_pointer0.eq(Mux(low.ends, low.end, high.end)),
            user.first_be0.eq(Mux(low.begins, low.first_be, high.first_be)),
            user.last_be0.eq(Mux(low.begins, low.last_be, high.last_be)),
            user.seq_num0.eq(Mux(low.begins, *sequence)),
            user.sop_pointer0.eq(Mux(low.begins, 0, HALF_POINTER)),
            rq.tvalid.eq(beat.valid), beat.ready.eq(rq.tready), rq.tdata.eq(beat.p.data),
            rq.tkeep.eq(Const((1 << LANES) - 1, LANES)), rq.tlast.eq(0), rq.tuser.eq(user),
        ]
