"""Statistics writer: writes all counters to host memory."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import BLOCK_BYTES, COUNTER_WIDTH, COUNTERS
from ..part.layouts import BEAT_BITS, PAYLOAD_MAX, Beat, DmaRequest

COUNTER_BYTES = 8
COUNTERS_PER_BEAT = BLOCK_BYTES // COUNTER_BYTES
BEATS = -(-len(COUNTERS) // COUNTERS_PER_BEAT)
STATISTICS_BYTES = BEATS * BLOCK_BYTES


class StatisticsWriter(wiring.Component):
    """Reads the counters one after the other and sends them as one DMA write.

    Eight bytes per counter, in COUNTERS order, zeros after the last one up to a multiple of 64 bytes. One beat
    every eleven cycles. The counters continue to count: each is sampled at a different time.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(64))
        Address, a multiple of 64.
    done : Out(1)
        Strobe: request and data are accepted, so later writes are ordered after them.
    counter_index : Out(range(len(COUNTERS)))
    counter_data : In(48)
        Value of the counter whose index was given two cycles before.
    o_dma_request : Out(stream.Signature(DmaRequest))
    o_dma_data : Out(stream.Signature(Beat))
    """

    COUNTER_LATENCY = 2

    def __init__(self, params):
        if STATISTICS_BYTES > PAYLOAD_MAX:
            raise ValueError(f"{len(COUNTERS)} counters do not fit one DMA request of {PAYLOAD_MAX} bytes")
        self.params = params
        super().__init__({
            "i": In(stream.Signature(64)), "done": Out(1),
            "counter_index": Out(range(len(COUNTERS))), "counter_data": In(COUNTER_WIDTH),
            "o_dma_request": Out(stream.Signature(DmaRequest)), "o_dma_data": Out(stream.Signature(Beat)),
        })

    def elaborate(self, platform):
        m = Module()
        beat, slot = Signal(range(BEATS)), Signal(range(COUNTERS_PER_BEAT + self.COUNTER_LATENCY))
        line, address = Signal(BEAT_BITS), Signal(64)
        number = Signal(range(BEATS * COUNTERS_PER_BEAT))
        requested = Signal(self.COUNTER_LATENCY)  # requested[n]: an existing counter was read n + 1 cycles ago
        m.d.comb += [
            number.eq(beat * COUNTERS_PER_BEAT + slot),
            self.o_dma_request.payload.address.eq(address),
            self.o_dma_request.payload.length.eq(STATISTICS_BYTES),
            self.o_dma_request.payload.last.eq(1),
            self.o_dma_data.payload.data.eq(line),
            self.o_dma_data.payload.last.eq(beat == BEATS - 1),
        ]
        exists = number < len(COUNTERS)
        with m.If(exists):
            m.d.comb += self.counter_index.eq(number)
        m.d.sync += requested.eq(Cat(exists, requested))
        value = Cat(self.counter_data & requested[-1].replicate(COUNTER_WIDTH),
                    Const(0, 8 * COUNTER_BYTES - COUNTER_WIDTH))
        with m.FSM():
            with m.State("IDLE"):  # waits for an address
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [address.eq(self.i.payload), beat.eq(0), slot.eq(0)]
                with m.If(self.i.valid):
                    m.next = "REQUEST"
            with m.State("REQUEST"):  # waits until the request is accepted
                m.d.comb += self.o_dma_request.valid.eq(1)
                with m.If(self.o_dma_request.ready):
                    m.next = "COLLECT"
            with m.State("COLLECT"):  # values shift in from the top
                m.d.sync += slot.eq(slot + 1)
                with m.If(slot >= self.COUNTER_LATENCY):
                    m.d.sync += line.eq(Cat(line[8 * COUNTER_BYTES:], value))
                with m.If(slot == COUNTERS_PER_BEAT + self.COUNTER_LATENCY - 1):
                    m.next = "SEND"
            with m.State("SEND"):  # waits until the beat is accepted
                m.d.comb += self.o_dma_data.valid.eq(1)
                with m.If(self.o_dma_data.ready):
                    m.d.sync += [beat.eq(beat + 1), slot.eq(0)]
                    m.next = "COLLECT"
                    with m.If(self.o_dma_data.p.last):
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
        return m
