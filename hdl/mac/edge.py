"""MAC edge: AXI4-Stream with byte enables on one side, beats on the other."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import wire
from ..contract.params import exact_log2
from ..part.axis import axis_signature
from ..part.layouts import BEAT_BITS, BEAT_BYTES, WIRE, Beat, swap_bytes
from ..part.stream import pass_unless

TX_USER_WIDTH = 17   # error bit and a timestamp tag
RX_USER_WIDTH = 1    # bad frame
AT_MAC = ("m_axis_tx", "s_axis_rx", "mac_")     # prefixes of the card's ports in the MAC's clock domain


def mac_members(*, mac_clock):
    """Return the ports of :class:`~weft.hdl.card.Card` at the MAC, and with ``mac_clock`` all clocks and resets."""
    return {
        **({name: In(1) for name in ("clk", "rst", "mac_clk", "mac_rst", "mac_up")} if mac_clock else {}),
        "m_axis_tx": Out(axis_signature(data_width=BEAT_BITS, user_width=TX_USER_WIDTH)),
        "s_axis_rx": In(axis_signature(data_width=BEAT_BITS, user_width=RX_USER_WIDTH)),
        **({name: Out(1) for name in ("mac_tx_dropped", "mac_tx_aborted", "mac_rx_dropped")} if mac_clock else {}),
    }


class MacTx(wiring.Component):
    """Beats to AXI-stream; combinational.

    Members
    -------
    i : In(stream.Signature(Beat))
    hold : In(1)
        While high no frame begins.
    sending : Out(1)
        A frame is being sent.
    m_axis : Out(axis)
        ``tuser`` bit 0 is the error flag, the timestamp tag is 0.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Beat)), "hold": In(1), "sending": Out(1),
            "m_axis": Out(axis_signature(data_width=BEAT_BITS, user_width=TX_USER_WIDTH)),
        })

    def elaborate(self, platform):
        m = Module()
        open_ = stream.Signature(Beat).create()
        beat, axis = open_.p, self.m_axis
        m.d.comb += [
            self.sending.eq(pass_unless(m, self.hold, self.i, open_, groups=True)),
            axis.tdata.eq(beat.data),
            axis.tkeep.eq(((1 << BEAT_BYTES) - 1) >> beat.empty),
            axis.tlast.eq(beat.last),
            axis.tuser.eq(beat.last & beat.error),
            axis.tvalid.eq(open_.valid),
            open_.ready.eq(axis.tready),
        ]
        return m


class MacRx(wiring.Component):
    """AXI-stream to beats, registered once. Never stalls: the sink must accept a beat per cycle.

    MAC control frames, detected by their EtherType, go to a separate output.

    ``tkeep`` of a last beat must be a run of ones from bit 0 (which is not checked); of other beats it is ignored.

    Members
    -------
    s_axis : In(axis)
        ``tuser`` on the last beat: bad frame.
    o, o_control : Out(stream.Signature(Beat))
        ``ready`` is ignored.
    """

    def __init__(self):
        super().__init__({
            "s_axis": In(axis_signature(data_width=BEAT_BITS, user_width=RX_USER_WIDTH)),
            "o": Out(stream.Signature(Beat)),
            "o_control": Out(stream.Signature(Beat)),
        })

    def elaborate(self, platform):
        m = Module()
        axis, beat = self.s_axis, self.o.p
        eth = data.View(WIRE["Ethernet"], swap_bytes(axis.tdata[:8 * wire.ETH.size_bytes]))
        first, in_frame, control = Signal(init=1), Signal(), Signal()
        m.d.comb += control.eq(Mux(first, (eth.ethertype == wire.ETHERTYPE_MAC_CONTROL)
                                   & (~axis.tlast | axis.tkeep[wire.ETH.size_bytes - 1]), in_frame))
        with m.If(axis.tvalid):
            m.d.sync += [first.eq(axis.tlast), in_frame.eq(control)]
        # Bit k of the last byte's index is the odd parity of `tkeep` at the multiples of 2^k, except 0.
        empty = Cat(~axis.tkeep[1 << k::1 << k].xor() for k in range(exact_log2(BEAT_BYTES)))
        m.d.comb += [axis.tready.eq(1), self.o_control.p.eq(beat)]
        m.d.sync += [
            self.o.valid.eq(axis.tvalid & ~control), self.o_control.valid.eq(axis.tvalid & control),
            beat.data.eq(axis.tdata),
            beat.last.eq(axis.tlast),
            beat.empty.eq(Mux(axis.tlast, empty, 0)),
            beat.error.eq(axis.tlast & axis.tuser[0]),
        ]
        return m
