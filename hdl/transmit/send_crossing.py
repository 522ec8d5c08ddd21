"""Store-and-forward buffer before a MAC in another clock domain."""

from amaranth.hdl import DomainRenamer, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from ..mac.frame_crossing import FrameCrossing
from ..part.layouts import Beat
from .send_buffer import check_depth


class SendCrossing(wiring.Component):
    """Equivalent of :class:`~weft.hdl.transmit.send_buffer.SendBuffer` with its reader in domain ``mac``.

    One beat per cycle each way; the first beat leaves about eight cycles of the MAC after the last one came. A frame
    whose last beat has ``error`` is dropped, and so is one longer than the buffer.

    A reset of the writing side (a ``ResetInserter``) empties it, and frames that come in the 32 cycles after are lost.
    Before, ``hold`` must be high, and ``sending`` low.

    Parameters
    ----------
    depth : int
        Beats, a power of two, at least 128.

    Members
    -------
    i : In(stream.Signature(Beat))
    o : Out(stream.Signature(Beat))
        Domain ``mac``. Once a frame has begun, ``valid`` stays until its last beat. That has ``error`` if a reset cut
        the frame.
    too_long : Out(1)
        Strobe: a frame did not fit.
    empty : Out(1)
    stalled : Out(1)
        The MAC stalls a beat, synchronised to this domain.
    hold : In(1)
        While high, no frame begins at ``o``, some cycles later.
    sending : Out(1)
        A frame may begin or is being sent: low when ``hold`` has taken effect and no frame is being sent, or when the
        MAC's side is in reset.
    pause : In(1)
        Like ``hold``, without effect on ``sending``: up to 4 cycles of the MAC later. Two beats that were on their way
        still leave, or the frame that they belong to.
    up : In(1)
        Domain ``mac``: link up. While low, frames that begin at ``i`` are dropped, so that nothing blocks.
    dropped, aborted : Out(1)
        Strobes, domain ``mac``: a frame was lost because the link was down or because of a reset; one was cut because
        the writing side was reset.
    """

    def __init__(self, depth):
        check_depth(depth)
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(Beat)), "o": Out(stream.Signature(Beat)),
            "too_long": Out(1), "empty": Out(1), "stalled": Out(1), "hold": In(1), "sending": Out(1),
            "pause": In(1), "up": In(1), "dropped": Out(1), "aborted": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.crossing = crossing = DomainRenamer({"write": "sync", "read": "mac"})(
            FrameCrossing(depth=self.depth, frame_beats=self.depth, whole=True, drop=False))
        wiring.connect(m, wiring.flipped(self.i), crossing.i)
        wiring.connect(m, crossing.o, wiring.flipped(self.o))
        m.d.comb += [self.too_long.eq(crossing.too_long), self.empty.eq(crossing.empty),
                     self.aborted.eq(crossing.aborted)]
        m.submodules.up_cdc = FFSynchronizer(self.up, crossing.enable)

        # Round trip of the hold; held after a reset until the FIFO is empty: a frame would be cut.
        holding = Signal(init=1)          # one signal per line: it gets the name that the constraints use
        hold_mac = Signal()
        paused = Signal()
        paused_mac = Signal()
        held = Signal()
        mac_stalled = Signal()
        held_back = Signal()
        m.submodules.hold_cdc = FFSynchronizer(holding, hold_mac, o_domain="mac")
        m.submodules.paused_cdc = FFSynchronizer(paused, paused_mac, o_domain="mac")
        m.submodules.held_cdc = FFSynchronizer(held, held_back)
        m.submodules.stalled_cdc = FFSynchronizer(mac_stalled, self.stalled)
        m.d.comb += crossing.hold.eq(hold_mac | paused_mac)
        m.d.sync += [holding.eq(self.hold | crossing.quiet), paused.eq(self.pause)]
        m.d.mac += [held.eq(hold_mac & ~crossing.sending), mac_stalled.eq(self.o.valid & ~self.o.ready)]
        m.d.comb += self.sending.eq(~held_back & ~crossing.read_reset)

        # No reset: it would look like an event.
        dropped_toggle = Signal(reset_less=True)
        dropped_mac, dropped_q = Signal(), Signal(reset_less=True)
        m.submodules.dropped_cdc = FFSynchronizer(dropped_toggle, dropped_mac, o_domain="mac")
        m.d.sync += dropped_toggle.eq(dropped_toggle ^ (crossing.dropped & ~crossing.too_long))
        m.d.mac += dropped_q.eq(dropped_mac)
        m.d.comb += self.dropped.eq(dropped_mac ^ dropped_q)
        return m
