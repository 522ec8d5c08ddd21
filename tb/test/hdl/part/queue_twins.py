"""The project's queue beside Amaranth's."""

from amaranth.hdl import Module
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hdl.part.queue import Queue


class QueueTwins(wiring.Component):
    """Two queues with the ports of :class:`~weft.hdl.part.queue.Queue`.

    Members
    -------
    i, o : In/Out(stream.Signature(width))
    differ : Out(1)
        The outputs of the two queues differ.
    """

    def __init__(self, width, depth, block, output_registers):
        self.width, self.depth, self.block, self.output_registers = width, depth, block, output_registers
        super().__init__({"i": In(stream.Signature(width)), "o": Out(stream.Signature(width)), "differ": Out(1)})

    def elaborate(self, platform):
        m = Module()
        library = fifo.SyncFIFOBuffered if self.block else fifo.SyncFIFO
        m.submodules.ours = ours = Queue(self.width, self.depth, self.block, self.output_registers)
        m.submodules.its = its = library(width=self.width, depth=self.depth)
        for queue in (ours, its):
            m.d.comb += [queue.w_data.eq(self.i.payload), queue.w_en.eq(self.i.valid), queue.r_en.eq(self.o.ready)]
        m.d.comb += [
            self.i.ready.eq(ours.w_rdy), self.o.valid.eq(ours.r_rdy), self.o.payload.eq(ours.r_data),
            self.differ.eq((ours.w_rdy != its.w_rdy) | (ours.r_rdy != its.r_rdy) | (ours.level != its.level)
                           | (ours.r_rdy & (ours.r_data != its.r_data))),
        ]
        return m
