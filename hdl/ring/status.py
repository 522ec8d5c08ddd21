"""Status block: DMA writes of the consumer indices of the host-to-card rings."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..contract.params import STATUS_PACE, CardParams
from ..part.layouts import Beat, DmaRequest, host_struct
from .size import INDEX_WIDTH


class StatusBlock(wiring.Component):
    """Writes ``STATUS_BLOCK`` after any consumer index changed.

    Changes during a write are covered by the next one; the last state is always written. One
    write at a time, at most one per ``STATUS_PACE`` cycles, otherwise 3 cycles after the change.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    address : In(64)
        Of the block, 64-byte aligned; 0: nothing is written.
    cons : In(16).array(4)
        Consumer indices in the order of ``abi.HOST_TO_CARD``.
    o_request : Out(stream.Signature(DmaRequest))
    o_data : Out(stream.Signature(Beat))
    idle : Out(1)
        The block in memory is current, or becomes so without a further write.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "address": In(64),
            "cons": In(INDEX_WIDTH).array(len(abi.HOST_TO_CARD)),
            "o_request": Out(stream.Signature(DmaRequest)),
            "o_data": Out(stream.Signature(Beat)),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        now, written = (Signal(INDEX_WIDTH * len(abi.HOST_TO_CARD), name=n) for n in ("now", "written"))
        changed = Signal()      # a cycle ago; a write that began since then keeps the next one from beginning
        rest = Signal(range(STATUS_PACE))      # cycles until the next write may begin
        m.d.sync += [now.eq(Cat(self.cons)), changed.eq((now != written) & (self.address != 0))]
        m.d.comb += self.idle.eq(~changed & ~self.o_request.valid & ~self.o_data.valid)

        with m.If(self.o_request.ready):
            m.d.sync += self.o_request.valid.eq(0)
        with m.If(self.o_data.ready):
            m.d.sync += self.o_data.valid.eq(0)
        m.d.sync += rest.eq(rest - (rest != 0))
        with m.If(changed & ~self.o_request.valid & ~self.o_data.valid & (rest == 0)):
            block = data.View(host_struct(abi.STATUS_BLOCK), self.o_data.p.data)
            for k, ring in enumerate(abi.HOST_TO_CARD):
                m.d.sync += block[f"{ring.name.lower()}_cons"].eq(now[INDEX_WIDTH * k:INDEX_WIDTH * (k + 1)])
            m.d.sync += [
                written.eq(now), rest.eq(STATUS_PACE - 1),
                self.o_request.valid.eq(1),
                self.o_request.p.address.eq(Cat(Const(0, 6), self.address[6:])),
                self.o_request.p.length.eq(abi.BLOCK_BYTES),
                self.o_request.p.last.eq(1),
                self.o_data.valid.eq(1),
                self.o_data.p.last.eq(1),
            ]
        return m
