"""Host requests from the UltraScale+ hard block (CQ and CC interfaces): the register bus."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..contract.params import exact_log2
from ..part.axis import axis_signature
from ..part.interfaces import RegisterBus
from ..part.layouts import BEAT_BITS, PushedDescriptor
from .rq import RequestType
from .tlp import DWORD_BITS

CQ_USER_WIDTH, CC_USER_WIDTH = 183, 81
DESCRIPTOR_DWORDS = 4
WINDOW_DWORDS = abi.BLOCK_BYTES * 8 // DWORD_BITS
CC_HEADER_DWORDS = 3
REGISTER_BAR = 0
WINDOWS_LOG2 = exact_log2(abi.PUSH_END - abi.PUSH_BASE)
READ_TIMEOUT_LOG2 = 6      # limit in cycles for a response of the register bus


class HostDescriptor(data.Struct):
    """First four double words of a request from the host."""

    address_type: 2
    address: 62
    dwords: 11
    kind: 4                # RequestType below 8; messages above
    _r0: 1
    requester_id: 16
    tag: 8
    target_function: 8
    bar: 3
    bar_aperture: 6
    traffic_class: 3
    attributes: 3
    _r1: 1


class CompletionHeader(data.Struct):
    """First three double words of a completion to the host."""

    lower_address: 7
    _r0: 1
    address_type: 2
    _r1: 6
    byte_count: 13
    locked: 1
    _r2: 2
    dwords: 11
    status: 3
    poisoned: 1
    _r3: 1
    requester_id: 16
    tag: 8
    completer_id: 16       # filled in by the hard block
    completer_id_enable: 1
    traffic_class: 3
    attributes: 3
    force_ecrc: 1


STATUS_OK, STATUS_UNSUPPORTED = 0, 1


class RegisterShim(wiring.Component):
    """Serves host reads and writes of BAR0: registers and push windows.

    Registers are accessed by 4 or 8 aligned bytes, one access at a time and in order; the windows for descriptors by
    writes of up to 64 bytes. Everything else is rejected: writes and messages are dropped, requests that need a
    completion get "unsupported request". So does a read without a response of the register bus within 64 cycles. A read
    of part of a double word is served. Three cycles per write, four for a whole descriptor, which leaves as one; a read
    takes four more than the register bus.

    Parameters
    ----------
    windows : bool
        Accept writes to the push windows; otherwise they are rejected.

    Members
    -------
    s_axis_cq : In(AXI stream)
    m_axis_cc : Out(AXI stream)
    registers : Out(RegisterBus)
    o_push : Out(stream.Signature(PushedDescriptor))
    rejected : Out(1)
        A host request was rejected.
    """

    def __init__(self, *, windows=True):
        self._windows = windows
        super().__init__({
            "s_axis_cq": In(axis_signature(data_width=BEAT_BITS, user_width=CQ_USER_WIDTH, keep_lane_width=DWORD_BITS)),
            "m_axis_cc": Out(axis_signature(data_width=BEAT_BITS, user_width=CC_USER_WIDTH,
                                            keep_lane_width=DWORD_BITS)),
            "registers": Out(RegisterBus),
            "o_push": Out(stream.Signature(PushedDescriptor)),
            "rejected": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        cq, cc = self.s_axis_cq, self.m_axis_cc
        head = Signal(HostDescriptor)
        payload, first_be, last_be = Signal(BEAT_BITS), Signal(4), Signal(4)
        first_bits = BEAT_BITS - DESCRIPTOR_DWORDS * DWORD_BITS      # of the payload, in the first beat
        more = Signal()                  # the request has more beats, skipped except for the data of a descriptor
        offset = Signal(16)
        timer = Signal(READ_TIMEOUT_LOG2 + 1)

        single, double, in_bar, in_windows = Signal(), Signal(), Signal(), Signal()
        head_skip, byte_count = Signal(2), Signal(13)
        answer = Signal(CompletionHeader)
        word, is_ok, last_dword = Signal(64), Signal(), Signal(4)
        m.d.comb += [
            offset.eq(Cat(Const(0, 2), head.address[:14])),
            single.eq(head.dwords == 1),
            double.eq((head.dwords == 2) & ~head.address[0] & (first_be == 0xF) & (last_be == 0xF)),
            in_bar.eq(head.bar == REGISTER_BAR),
            in_windows.eq(self._windows & (offset[WINDOWS_LOG2:] == abi.PUSH_BASE >> WINDOWS_LOG2)
                          & (head.dwords <= WINDOW_DWORDS) & (first_be != 0)),
            self.o_push.p.data.eq(payload),
            Cat(self.o_push.p.window, self.o_push.p.ring).eq(offset[6:WINDOWS_LOG2]),
            self.o_push.p.whole.eq((head.dwords == WINDOW_DWORDS) & (offset[:6] == 0) & (first_be & last_be).all()),
        ]
        # First byte and number of bytes of a read of one double word; zero bytes count as one.
        with m.If(single):
            with m.Switch(first_be):
                for enables in range(1, 16):
                    low = (enables & -enables).bit_length() - 1
                    with m.Case(enables):
                        m.d.comb += [head_skip.eq(low), byte_count.eq(enables.bit_length() - low)]
                with m.Default():
                    m.d.comb += byte_count.eq(1)
        with m.Else():
            m.d.comb += byte_count.eq(Cat(Const(0, 2), head.dwords))

        m.d.comb += [
            answer.lower_address.eq(Cat(head_skip, head.address[:5])),
            answer.byte_count.eq(byte_count),
            answer.locked.eq(head.kind == RequestType.LOCKED_READ),
            answer.dwords.eq(Mux(is_ok, head.dwords, 0)),
            answer.status.eq(Mux(is_ok, STATUS_OK, STATUS_UNSUPPORTED)),
            answer.requester_id.eq(head.requester_id),
            answer.tag.eq(head.tag),
            answer.traffic_class.eq(head.traffic_class),
            answer.attributes.eq(head.attributes),
            self.registers.write.p.address.eq(offset),
            self.registers.write.p.data.eq(Mux(single, Cat(payload[:32], payload[:32]), payload[:64])),
            self.registers.write.p.wide.eq(double),
            self.registers.read_address.eq(offset),
            cc.tdata.eq(Cat(answer, word)),
            cc.tlast.eq(1),
            cc.tkeep.eq(Mux(is_ok, Mux(single, 0xF, 0x1F), 0x7)),
            last_dword.eq(Mux(is_ok, Mux(single, CC_HEADER_DWORDS, CC_HEADER_DWORDS + 1), CC_HEADER_DWORDS - 1)),
            cc.tuser.eq(Cat(Const(0b01, 6), Const(0b01, 2), last_dword)),     # is_sop, is_eop, eop pointer
        ]

        with m.FSM():
            with m.State("WAIT_REQUEST"):
                m.d.comb += cq.tready.eq(1)
                m.d.sync += [
                    head.eq(cq.tdata[:DESCRIPTOR_DWORDS * DWORD_BITS]),
                    payload[:first_bits].eq(cq.tdata[DESCRIPTOR_DWORDS * DWORD_BITS:]),
                    first_be.eq(cq.tuser[0:4]), last_be.eq(cq.tuser[8:12]),
                    more.eq(~cq.tlast), is_ok.eq(0), timer.eq(0),
                ]
                with m.If(cq.tvalid):
                    m.next = "SKIP_REST"
            with m.State("SKIP_REST"):
                with m.If(more):
                    m.d.comb += cq.tready.eq(1)
                    m.d.sync += payload[first_bits:].eq(cq.tdata)
                    with m.If(cq.tvalid & cq.tlast):
                        m.d.sync += more.eq(0)
                with m.Elif((head.kind == RequestType.MEMORY_WRITE) & in_bar & in_windows):
                    m.next = "PUSH"
                with m.Elif((head.kind == RequestType.MEMORY_WRITE) & in_bar
                            & ((single & (first_be == 0xF)) | double)):
                    m.next = "WRITE"
                with m.Elif((head.kind == RequestType.MEMORY_WRITE) | head.kind[3]):
                    m.d.comb += self.rejected.eq(1)
                    m.next = "WAIT_REQUEST"
                with m.Elif((head.kind == RequestType.MEMORY_READ) & in_bar & (single | double)):
                    m.d.comb += self.registers.read_stb.eq(1)
                    m.next = "READ"
                with m.Else():
                    m.d.comb += self.rejected.eq(1)
                    m.next = "ANSWER"
            with m.State("WRITE"):
                m.d.comb += self.registers.write.valid.eq(1)
                with m.If(self.registers.write.ready):
                    m.next = "WAIT_REQUEST"
            with m.State("PUSH"):
                m.d.comb += self.o_push.valid.eq(1)
                with m.If(self.o_push.ready):
                    m.next = "WAIT_REQUEST"
            with m.State("READ"):
                m.d.sync += timer.eq(timer + 1)
                with m.If(self.registers.read_ack):
                    answered = self.registers.read_data
                    m.d.sync += [is_ok.eq(1), word.eq(Mux(offset[2], answered[32:], answered))]
                    m.next = "ANSWER"
                with m.Elif(timer[-1]):
                    m.d.comb += self.rejected.eq(1)
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += cc.tvalid.eq(1)
                with m.If(cc.tready):
                    m.next = "WAIT_REQUEST"
        return m
