"""Ring subsystem: every ring of the card, its registers and the status block."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..contract.params import REPORT_PACE, REPORTS_TOGETHER, CardParams
from ..part.arbiter import Arbiter
from ..part.counter_ports import DropEvent
from ..part.interfaces import RingSlot
from ..part.layouts import BEAT_BITS, Beat, DmaRequest, LineData, LineRequest, PushedDescriptor
from ..part.registers import register_port
from .reader import RingReader
from .status import StatusBlock
from .writer import RingWriter

DOWN, UP = len(abi.HOST_TO_CARD), len(abi.CARD_TO_HOST)


class Rings(wiring.Component):
    """Four rings from the host, three to it, and the status block.

    Throughput and latency are those of :class:`RingReader` and :class:`RingWriter`.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    registers : In(register_port("rings"))
    i_push : In(stream.Signature(PushedDescriptor))
        To the rings of ``abi.PUSH_RINGS``.
    o : Out(stream.Signature(512)).array(4)
        Descriptors, in the order of ``abi.HOST_TO_CARD``.
    retire : In(1).array(4)
        A descriptor of the ring is finished.
    i : In(stream.Signature(512)).array(3)
        Entries, in the order of ``abi.CARD_TO_HOST``.
    slot : Out(RingSlot).array(3)
        See :class:`RingWriter`.
    o_line_request, i_line : arrays of 4
        Clients of the DMA reader.
    o_request, o_data : arrays of 4
        Clients of the DMA writer: the three rings, then the status block.
    o_interrupt : Out(stream.Signature(5))
    idle : Out(1)
    drop : Out(DropEvent).array(7)
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "registers": In(register_port("rings")),
            "i_push": In(stream.Signature(PushedDescriptor)),
            "o": Out(stream.Signature(BEAT_BITS)).array(DOWN),
            "retire": In(1).array(DOWN),
            "i": In(stream.Signature(BEAT_BITS)).array(UP),
            "slot": Out(RingSlot).array(UP),
            "o_line_request": Out(stream.Signature(LineRequest)).array(DOWN),
            "i_line": In(stream.Signature(LineData)).array(DOWN),
            "o_request": Out(stream.Signature(DmaRequest)).array(UP + 1),
            "o_data": Out(stream.Signature(Beat)).array(UP + 1),
            "o_interrupt": Out(stream.Signature(5)),
            "idle": Out(1),
            "drop": Out(DropEvent).array(DOWN + UP),
        })

    def elaborate(self, platform):
        m = Module()
        flipped = wiring.flipped
        register = lambda ring, what: getattr(self.registers, f"{ring.name.lower()}_{what}")  # noqa: E731
        idle = []

        m.submodules.status = status = StatusBlock(self.params)
        m.d.comb += status.address.eq(self.registers.status_block)
        wiring.connect(m, status.o_request, flipped(self.o_request[UP]))
        wiring.connect(m, status.o_data, flipped(self.o_data[UP]))
        idle.append(status.idle)

        for k, ring in enumerate(abi.HOST_TO_CARD):
            reader = RingReader(self.params.prefetch(ring), pushed=ring in abi.PUSH_RINGS)
            m.submodules[ring.name.lower()] = reader
            m.d.comb += [
                reader.base.eq(register(ring, "base")),
                reader.log2.eq(register(ring, "log2")[:8]),
                reader.enable.eq(register(ring, "log2")[abi.RING_ENABLE_BIT]),
                reader.prod.eq(register(ring, "prod")),
                reader.prod_stb.eq(register(ring, "prod_stb")),
                register(ring, "cons").eq(reader.cons),
                reader.retire.eq(self.retire[k]),
                status.cons[k].eq(reader.cons),
            ]
            if ring in abi.PUSH_RINGS:
                mine = self.i_push.p.ring == abi.PUSH_RINGS.index(ring)
                m.d.comb += [reader.i_push.payload.eq(self.i_push.payload),
                             reader.i_push.valid.eq(self.i_push.valid & mine)]
                with m.If(mine):
                    m.d.comb += self.i_push.ready.eq(reader.i_push.ready)
            wiring.connect(m, reader.o, flipped(self.o[k]))
            wiring.connect(m, reader.drop, flipped(self.drop[k]))
            wiring.connect(m, reader.o_request, flipped(self.o_line_request[k]))
            wiring.connect(m, flipped(self.i_line[k]), reader.i_line)
            idle.append(reader.idle)

        m.submodules.interrupts = interrupts = Arbiter(5, UP)
        wiring.connect(m, interrupts.o, flipped(self.o_interrupt))
        for k, ring in enumerate(abi.CARD_TO_HOST):
            grouping = {"together": REPORTS_TOGETHER, "pace": REPORT_PACE} if ring is abi.Ring.META_REPORT else {}
            m.submodules[ring.name.lower()] = writer = RingWriter(self.params, abi.VECTOR[ring], **grouping)
            m.d.comb += [
                writer.base.eq(register(ring, "base")),
                writer.log2.eq(register(ring, "log2")[:8]),
                writer.enable.eq(register(ring, "log2")[abi.RING_ENABLE_BIT]),
                writer.cons.eq(register(ring, "cons")),
                writer.arm.eq(register(ring, "cons")[abi.ARM_BIT]),
                writer.cons_stb.eq(register(ring, "cons_stb")),
                register(ring, "prod").eq(writer.prod),
                self.slot[k].position.eq(writer.position), self.slot[k].free.eq(writer.free),
                self.slot[k].size.eq(writer.size),
                self.slot[k].half.eq(writer.half), self.slot[k].marked.eq(writer.marked),
                writer.mark.eq(self.slot[k].mark),
            ]
            wiring.connect(m, flipped(self.i[k]), writer.i)
            wiring.connect(m, writer.drop, flipped(self.drop[DOWN + k]))
            wiring.connect(m, writer.o_request, flipped(self.o_request[k]))
            wiring.connect(m, writer.o_data, flipped(self.o_data[k]))
            wiring.connect(m, writer.o_interrupt, interrupts.i[k])
            idle.append(writer.idle)

        everything = idle[0]
        for one in idle[1:]:
            everything = everything & one
        m.d.comb += self.idle.eq(everything)
        return m
