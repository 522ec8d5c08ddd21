"""Requests to the UltraScale+ hard block (RQ interface)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.axis import axis_signature
from ..part.layouts import BEAT_BITS
from ..part.stages import SkidBuffer
from .outstanding_writes import OutstandingWrites
from .tlp import DWORD_BITS, LANES, ReadTlp, WriteTlp
from .write_store import WriteStore

USER_WIDTH = 137
HEADER_DWORDS = 4
HEADER_BITS = HEADER_DWORDS * DWORD_BITS
SPACE = LANES - HEADER_DWORDS            # payload double words in the first beat
SEQUENCE_WIDTH = 6
READ_SEQUENCE, WRITE_SEQUENCE = 0, 1     # sequence numbers: sufficient to detect that a write has left
NONPOSTED_WIDTH = 4


class RequestType(enum.Enum, shape=4):
    """Request type of a descriptor, in RQ and CQ alike."""

    MEMORY_READ = 0
    MEMORY_WRITE = 1
    IO_READ = 2
    IO_WRITE = 3
    FETCH_ADD = 4
    SWAP = 5
    COMPARE_SWAP = 6
    LOCKED_READ = 7


class RequestDescriptor(data.Struct):
    """First four double words of a request to the hard block."""

    address_type: 2
    address: 62
    dwords: 11
    kind: RequestType
    poisoned: 1
    requester_id: 16        # filled in by the hard block
    tag: 8
    completer_id: 16
    requester_id_enable: 1
    traffic_class: 3
    attributes: 3
    force_ecrc: 1


class RequestUser(data.Struct):
    """``tuser`` of RQ, 512 bit.

    Fields ending in 0 are of the first TLP that begins, or ends, in the beat; those ending in 1 of the second, with
    straddle only. ``sop_pointer`` is in units of 16 bytes, and even.
    """

    first_be0: 4
    first_be1: 4
    last_be0: 4
    last_be1: 4
    addr_offset: 4
    is_sop: 2
    sop_pointer0: 2
    sop_pointer1: 2
    is_eop: 2
    eop_pointer0: 4
    eop_pointer1: 4
    discontinue: 1
    tph: 24
    seq_num0: 6
    seq_num1: 6
    parity: 64


class _RequestBeat(data.Struct):
    data: BEAT_BITS
    keep: LANES
    first_be: 4
    last_be: 4
    first: 1
    last: 1
    write: 1


class RequestShim(wiring.Component):
    """Sends read and write requests to RQ, one packet at a time, alternating when both wait.

    A read takes one beat. A write of n double words takes ceil((n + 4) / 16) beats: 9 for 512 bytes.
    One beat per cycle. The latency of a read is 2 cycles; a write begins 3 cycles after it is complete:
    ``tvalid`` must not fall inside a packet, or the hard block nullifies it (PG213).

    Members
    -------
    i_read : In(stream.Signature(ReadTlp))
    i_write : In(stream.Signature(WriteTlp))
    m_axis_rq : Out(AXI stream)
    nonposted_credits : In(4)
        Headers of reads that the link partner accepts (15: or more). With none, reads wait, but no write waits for
        them.
    gone : In(1)
        Nothing is in the hard block.
    sequence, sequence_valid : In(6).array(2), In(2)
        Sequence numbers of requests that no completion can pass any more.
    busy : Out(1)
        Something was accepted that has not left, or a write that a completion may still pass.
    """

    i_read: In(stream.Signature(ReadTlp))
    i_write: In(stream.Signature(WriteTlp))
    m_axis_rq: Out(axis_signature(data_width=BEAT_BITS, user_width=USER_WIDTH, keep_lane_width=DWORD_BITS))
    nonposted_credits: In(NONPOSTED_WIDTH)
    gone: In(1)
    sequence: In(SEQUENCE_WIDTH).array(2)
    sequence_valid: In(2)
    busy: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = WriteStore()
        m.submodules.outstanding = outstanding = OutstandingWrites()
        m.submodules.skid = skid = SkidBuffer(_RequestBeat)
        wiring.connect(m, wiring.flipped(self.i_write), store.i)
        ready, beat = skid.i.ready, skid.i.p
        read, write = self.i_read.p, store.o.p

        carry = Signal(HEADER_BITS)
        carry_dwords = Signal(range(HEADER_DWORDS + 1))     # of the packet's end
        flush, inside, read_next = Signal(), Signal(), Signal()
        choose_read, choose_write, may_read = Signal(), Signal(), Signal()
        tail = Signal(5)                 # double words in the last beat of a write, 1 to 16
        m.d.comb += [
            may_read.eq(self.i_read.valid & (self.nonposted_credits != 0)),
            choose_write.eq(~flush & store.o.valid & (inside | ~(may_read & read_next))),
            choose_read.eq(~flush & ~inside & may_read & (read_next | ~store.o.valid)),
            self.i_read.ready.eq(choose_read & ready),
            store.o.ready.eq(choose_write & ready),
            skid.i.valid.eq(flush | choose_read | choose_write),
            self.busy.eq(store.busy | flush | skid.o.valid | outstanding.busy),
            outstanding.sent.eq(choose_write & ready & write.first),
            outstanding.left.eq(Cat(self.sequence_valid[k] & (self.sequence[k] == WRITE_SEQUENCE) for k in range(2))),
            outstanding.gone.eq(self.gone),
            tail.eq(((write.dwords - 1)[:4]) + 1),
            beat.first_be.eq(Mux(choose_read, read.first_be, write.first_be)),
            beat.last_be.eq(Mux(choose_read, read.last_be, write.last_be)),
        ]
        full, write_end = Const((1 << LANES) - 1, LANES), Signal()
        m.d.comb += write_end.eq(write.last & (tail <= SPACE))

        def keep(dwords):
            return ((Const(1, LANES + 1) << dwords) - 1)[:LANES]

        # Lanes that are not kept contain the data of a write: the late select drives few bits.
        read_head, write_head = Signal(RequestDescriptor), Signal(RequestDescriptor)
        for head, tlp, kind, tag in ((read_head, read, RequestType.MEMORY_READ, read.tag),
                                     (write_head, write, RequestType.MEMORY_WRITE, 0)):
            m.d.comb += [head.address.eq(tlp.address), head.dwords.eq(tlp.dwords), head.kind.eq(kind), head.tag.eq(tag)]
        behind = Mux(write.first & ~flush, write_head, carry)
        m.d.comb += beat.data.eq(Cat(Mux(choose_read, read_head, behind), write.data[:BEAT_BITS - HEADER_BITS]))
        with m.If(flush):
            m.d.comb += [beat.keep.eq(keep(carry_dwords)), beat.last.eq(1)]
            with m.If(ready):
                m.d.sync += flush.eq(0)
        with m.Elif(choose_read):
            m.d.comb += [beat.keep.eq(keep(HEADER_DWORDS)), beat.first.eq(1), beat.last.eq(1)]
            with m.If(ready):
                m.d.sync += read_next.eq(0)
        with m.Elif(choose_write):
            m.d.comb += [
                beat.first.eq(write.first), beat.write.eq(1), beat.last.eq(write_end),
                beat.keep.eq(Mux(write_end, keep(tail + HEADER_DWORDS), full)),
            ]
            with m.If(ready):
                m.d.sync += [
                    carry.eq(write.data[BEAT_BITS - HEADER_BITS:]),
                    carry_dwords.eq(tail - SPACE),
                    flush.eq(write.last & (tail > SPACE)),
                    inside.eq(~write.last),
                    read_next.eq(1),
                ]

        out = skid.o.p
        user = Signal(RequestUser)
        end = Signal(4)
        for lane in range(LANES):
            with m.If(out.keep[lane]):
                m.d.comb += end.eq(lane)
        m.d.comb += [
            user.first_be0.eq(out.first_be), user.last_be0.eq(out.last_be),
            user.is_sop.eq(out.first), user.is_eop.eq(out.last), user.eop_pointer0.eq(Mux(out.last, end, 0)),
            user.seq_num0.eq(Mux(out.write, WRITE_SEQUENCE, READ_SEQUENCE)),
            self.m_axis_rq.tvalid.eq(skid.o.valid), skid.o.ready.eq(self.m_axis_rq.tready),
            self.m_axis_rq.tdata.eq(out.data), self.m_axis_rq.tkeep.eq(out.keep),
            self.m_axis_rq.tlast.eq(out.last), self.m_axis_rq.tuser.eq(user),
        ]
        return m
