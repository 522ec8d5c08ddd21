"""Clock-domain crossing of frames from a MAC in another clock domain."""

from amaranth.hdl import DomainRenamer, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.axis import axis_signature
from ..part.layouts import BEAT_BITS, BEAT_BYTES, Beat
from .edge import RX_USER_WIDTH, MacRx
from .frame_crossing import FrameCrossing

DEPTH = 512                          # beats: the depth of a block RAM of 512 words
FRAME_BYTES = 9216                   # longer frames are cut, and end with the error mark
MARKED_BEAT = data.StructLayout({**Beat.as_shape().members, "control": 1})     # `control`: of a MAC control frame


class RxCrossing(wiring.Component):
    """:class:`~weft.hdl.mac.edge.MacRx` in domain ``mac``, its beats in domain ``sync``. Never stalls the MAC.

    Beats are passed on as they come, about eight cycles later. The card takes a beat per cycle; the excess is
    dropped as whole frames when the FIFO is full to its last frame. A frame that a reset of the MAC's side cuts ends
    with ``error``.

    Members
    -------
    s_axis : In(axis)
        Domain ``mac``.
    o, o_control : Out(stream.Signature(Beat))
        Domain ``sync``. ``ready`` of ``o_control`` is ignored.
    dropped : Out(1)
        Strobe, domain ``mac``: a frame did not reach the card whole: no space, too long, or a reset.
    """

    def __init__(self):
        super().__init__({
            "s_axis": In(axis_signature(data_width=BEAT_BITS, user_width=RX_USER_WIDTH)),
            "o": Out(stream.Signature(Beat)), "o_control": Out(stream.Signature(Beat)), "dropped": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.edge = edge = DomainRenamer("mac")(MacRx())
        m.submodules.crossing = crossing = DomainRenamer({"write": "mac", "read": "sync"})(
            FrameCrossing(depth=DEPTH, frame_beats=FRAME_BYTES // BEAT_BYTES, whole=False, drop=True,
                          shape=MARKED_BEAT))
        wiring.connect(m, wiring.flipped(self.s_axis), edge.s_axis)
        both, first, in_frame, control = crossing.o, Signal(init=1), Signal(), Signal()
        m.d.comb += [
            *(crossing.i.p[name].eq(edge.o.p[name]) for name in Beat.as_shape().members),
            crossing.i.p.control.eq(edge.o_control.valid), crossing.i.valid.eq(edge.o.valid | edge.o_control.valid),
            control.eq(Mux(first, both.p.control, in_frame)),
            self.o.valid.eq(both.valid & ~control), self.o_control.valid.eq(both.valid & control),
            both.ready.eq(control | self.o.ready),
            *(o.p[name].eq(both.p[name]) for o in (self.o, self.o_control) for name in Beat.as_shape().members),
            crossing.enable.eq(1), crossing.hold.eq(0), self.dropped.eq(crossing.dropped),
        ]
        with m.If(both.valid & both.ready):
            m.d.sync += [first.eq(both.p.last), in_frame.eq(control)]
        return m
