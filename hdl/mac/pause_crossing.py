"""Clock-domain crossing of a pause frame to a MAC in another clock domain."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from ..part.layouts import PauseFrame


class PauseCrossing(wiring.Component):
    """One pause at a time from domain ``sync`` to domain ``mac``, offered 4 cycles of the MAC after it was accepted.

    A handshake of two levels, while the data are stable: the next one is accepted some 10 cycles of each clock after
    the one before was sent. Either side may be reset at any time, for at least 16 cycles of the slower clock; a pause
    in the crossing may then be lost, or sent twice.

    Members
    -------
    i : In(stream.Signature(PauseFrame))
        Domain ``sync``.
    o : Out(stream.Signature(PauseFrame))
        Domain ``mac``.
    """

    def __init__(self):
        super().__init__({"i": In(stream.Signature(PauseFrame)), "o": Out(stream.Signature(PauseFrame))})

    def elaborate(self, platform):
        m = Module()
        request = Signal()                  # one signal per line: it gets the name that the constraints use
        request_mac = Signal()
        done = Signal()
        done_sync = Signal()
        take = Signal()
        request_data = Signal(PauseFrame, reset_less=True)
        to_send = Signal(PauseFrame, reset_less=True)
        m.submodules.request_cdc = FFSynchronizer(request, request_mac, o_domain="mac")
        m.submodules.done_cdc = FFSynchronizer(done, done_sync)
        m.d.comb += [self.i.ready.eq(~request & ~done_sync), self.o.payload.eq(to_send),
                     take.eq(request_mac & ~done & ~self.o.valid)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [request.eq(1), request_data.eq(self.i.payload)]
        with m.Elif(done_sync):
            m.d.sync += request.eq(0)
        with m.If(take):
            m.d.mac += [self.o.valid.eq(1), to_send.eq(request_data)]
        with m.If(self.o.valid & self.o.ready):
            m.d.mac += [self.o.valid.eq(0), done.eq(1)]
        with m.If(~request_mac & ~self.o.valid):
            m.d.mac += done.eq(0)
        return m
