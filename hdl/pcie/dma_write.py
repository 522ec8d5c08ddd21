"""DMA write engine: byte streams of many clients into host memory, in order of grant."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..part.arbiter import PacketArbiter
from ..part.layouts import Beat, DmaRequest
from ..part.logic import one_hot, one_hot_mux
from ..part.stages import PingPongBuffer, PipelineRegister
from ..part.stream import Fifo
from .splitter import Splitter
from .tlp import SIZE_CODE_WIDTH, Piece, WriteTlp
from .write_align import WriteAlign

GROUPS_GRANTED = 4        # groups whose requests may be ahead of their data


class DmaWrite(wiring.Component):
    """Writes request groups of several clients to host memory.

    Groups are granted round-robin and never interleaved; everything leaves in the order of the grants, so
    a group whose last data beat was accepted is ordered before every group requested later. A client
    that presents a request must be able to deliver the group's data without waiting for another client.
    Requests are cut at multiples of the maximum payload, hence at 4 KiB.

    Throughput: one beat per cycle within a group, one cycle more per group. Latency 9 cycles.

    Parameters
    ----------
    params : CardParams
    clients : int
    late : int, optional
        The client whose request is late in its cycle.

    Members
    -------
    cfg_max_payload : In(3)
        128 bytes << code, code 5 at most.
    i_request, i_data : In(stream DmaRequest).array(clients), In(stream Beat).array(clients)
        ``last`` ends the group on both; ``error`` of a beat is ignored. Lengths from 1 to 4096.
    o : Out(stream.Signature(WriteTlp))
    busy : Out(1)
        Something was accepted and has not left on ``o``.
    """

    def __init__(self, params, *, clients, late=None):
        if clients < 1:
            raise ValueError("a DMA write engine needs a client")
        self._clients, self._late = clients, late
        super().__init__({
            "cfg_max_payload": In(SIZE_CODE_WIDTH),
            "i_request": In(stream.Signature(DmaRequest)).array(clients),
            "i_data": In(stream.Signature(Beat)).array(clients),
            "o": Out(stream.Signature(WriteTlp)),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = PacketArbiter(DmaRequest, self._clients, self._late)
        m.submodules.order = order = Fifo(range(max(self._clients, 2)), GROUPS_GRANTED, output_registers=1)
        m.submodules.splitter = splitter = Splitter()
        m.submodules.pieces = pieces = PipelineRegister(Piece)
        m.submodules.data = beats = PingPongBuffer(Beat)
        m.submodules.align = align = WriteAlign()
        for k in range(self._clients):
            connect(m, flipped(self.i_request[k]), arbiter.i[k])
        connect(m, splitter.o, pieces.i)
        connect(m, pieces.o, align.i)
        connect(m, beats.o, align.i_data)
        connect(m, align.o, flipped(self.o))

        # A group's client enters `order` with its first request.
        inside = Signal()
        moves = Signal()
        m.d.comb += [
            splitter.size.eq(self.cfg_max_payload),
            splitter.i.payload.eq(arbiter.o.payload),
            splitter.i.valid.eq(arbiter.o.valid & (inside | order.i.ready)),
            arbiter.o.ready.eq(splitter.i.ready & (inside | order.i.ready)),
            moves.eq(arbiter.o.valid & arbiter.o.ready),
            order.i.payload.eq(arbiter.source),
            order.i.valid.eq(moves & ~inside),
        ]
        with m.If(moves):
            m.d.sync += inside.eq(~arbiter.o.p.last)

        # One-hot: the client whose data is taken.
        owns, owned = Signal(self._clients), Signal()
        group_ends = Signal()
        m.d.comb += [
            beats.i.valid.eq(Cat(own & s.valid for own, s in zip(owns, self.i_data, strict=True)).any()),
            Value.cast(beats.i.payload).eq(one_hot_mux(owns, [s.payload for s in self.i_data])),
            group_ends.eq(Cat(own & s.valid & s.p.last for own, s in zip(owns, self.i_data, strict=True)).any()),
            order.o.ready.eq(~owned | (group_ends & beats.i.ready)),
            self.busy.eq(arbiter.o.valid | inside | splitter.o.valid | pieces.o.valid | owned | order.o.valid
                         | beats.o.valid | align.busy),
        ]
        for k, data_in in enumerate(self.i_data):
            m.d.comb += data_in.ready.eq(owns[k] & beats.i.ready)
        with m.If(order.o.ready):
            m.d.sync += [owned.eq(order.o.valid), owns.eq(one_hot(order.o.valid, order.o.payload, self._clients))]
        return m
