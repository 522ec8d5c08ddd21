"""Completions from the UltraScale+ hard block (RC interface)."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.axis import axis_signature
from ..part.layouts import BEAT_BITS, BEAT_BYTES
from .tlp import DWORD_BITS, LANES, CompletionBeat

USER_WIDTH = 161
HEADER_DWORDS = 3
TLPS = 4                # that may begin, or end, in one beat with straddle


class ErrorCode(enum.Enum, shape=4):
    """Error of a completion detected by the hard block."""

    NONE = 0
    POISONED = 1
    BAD_STATUS = 2
    NO_DATA = 3
    MISMATCH = 4
    BAD_ADDRESS = 5
    INVALID_TAG = 6
    FUNCTION_RESET = 8
    TIMEOUT = 9


class CompletionDescriptor(data.Struct):
    """First three double words of a completion from the hard block."""

    lower_address: 12
    error_code: ErrorCode
    byte_count: 13
    locked: 1
    request_completed: 1
    _r0: 1
    dwords: 11
    status: 3
    poisoned: 1
    _r1: 1
    requester_id: 16
    tag: 8
    completer_id: 16
    _r2: 1
    traffic_class: 3
    attributes: 3
    _r3: 1


class CompletionUser(data.Struct):
    """``tuser`` of RC, 512 bit.

    Without straddle a packet begins in byte 0, and only bit 0 of ``is_sop`` and ``is_eop`` is used; with it, the n-th
    TLP that begins in a beat has bit n and the n-th pointer, and so has the n-th that ends there.
    """

    byte_enables: BEAT_BYTES
    is_sop: TLPS
    sop_pointers: data.ArrayLayout(2, TLPS)     # in units of 16 bytes
    is_eop: TLPS
    eop_pointers: data.ArrayLayout(4, TLPS)     # of the last double word
    discontinue: 1
    parity: BEAT_BYTES


def verdict(head):
    """Return ``(bad, stray, ends)`` from the descriptor of a completion.

    ``bad``: it has no valid data; ``stray``: it belongs to no outstanding request; ``ends``: it ends its request.
    """
    bad = (head.error_code != ErrorCode.NONE) | (head.status != 0) | head.poisoned
    stray = head.error_code == ErrorCode.INVALID_TAG
    # These end a request, independent of `request_completed`.
    ends = (head.request_completed | (head.error_code == ErrorCode.BAD_STATUS)
            | (head.error_code == ErrorCode.NO_DATA) | (head.error_code == ErrorCode.TIMEOUT)
            | (head.error_code == ErrorCode.FUNCTION_RESET))
    return bad, stray, ends


class CompletionShim(wiring.Component):
    """Receives RC packets and gives the address of each of their double words.

    One beat per cycle, one cycle of latency, no stall. Completions without an outstanding request are dropped.

    Members
    -------
    s_axis_rc : In(AXI stream)
    o : Out(stream.Signature(CompletionBeat))
        ``ready`` is ignored: the receiver has reserved the space.
    """

    s_axis_rc: In(axis_signature(data_width=BEAT_BITS, user_width=USER_WIDTH, keep_lane_width=DWORD_BITS))
    o: Out(stream.Signature(CompletionBeat))

    def elaborate(self, platform):
        m = Module()
        rc = self.s_axis_rc
        head = Signal(CompletionDescriptor)
        user = CompletionUser(rc.tuser)
        inside = Signal()
        bad, stray, ends = Signal(), Signal(), Signal()
        tag_q, bad_q, stray_q, ends_q = Signal(8), Signal(), Signal(), Signal()
        header_lanes = Const((1 << HEADER_DWORDS) - 1, LANES)
        m.d.comb += [rc.tready.eq(1), head.eq(rc.tdata[:HEADER_DWORDS * DWORD_BITS])]
        with m.If(inside):
            m.d.comb += [bad.eq(bad_q), stray.eq(stray_q), ends.eq(ends_q)]
        with m.Else():
            m.d.comb += [field.eq(value) for field, value in zip((bad, stray, ends), verdict(head), strict=True)]
        beat = self.o.p
        m.d.sync += self.o.valid.eq(rc.tvalid & ~stray)
        with m.If(rc.tvalid):
            m.d.sync += [
                inside.eq(~rc.tlast), bad_q.eq(bad), stray_q.eq(stray), ends_q.eq(ends),
                beat.data.eq(rc.tdata),
                beat.lanes.eq(Mux(bad, 0, Mux(inside, rc.tkeep, rc.tkeep & ~header_lanes))),
                beat.dword.eq(Mux(inside, beat.dword + LANES, head.lower_address[2:] - HEADER_DWORDS)),
                beat.tag.eq(Mux(inside, tag_q, head.tag)),
                beat.last.eq(rc.tlast),
                beat.done.eq(rc.tlast & ends),
                beat.error.eq(bad | (rc.tlast & user.discontinue)),
            ]
            with m.If(~inside):
                m.d.sync += tag_q.eq(head.tag)
        return m
