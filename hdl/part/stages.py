"""Register stages of streams."""

from amaranth import Module, Mux, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class _Stage(wiring.Component):
    """Base of stream stages: items of one shape, from ``i`` to ``o``."""

    def __init__(self, shape, **more):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), **more})


class PipelineRegister(_Stage):
    """Registers payload and ``valid``; ``ready`` passes through combinationally.

    One item per cycle, latency 1.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    """

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):    # valid or not: `valid` is late where the payload is wide
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
        return m


class ReadyRegister(_Stage):
    """Registers ``ready``; payload and ``valid`` pass through combinationally.

    One item per cycle, latency 0, holds up to one item.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    """

    def elaborate(self, platform):
        m = Module()
        spare, held = Signal(self.shape), Signal()
        m.d.comb += [
            self.i.ready.eq(~held), self.o.valid.eq(held | self.i.valid),
            Value.cast(self.o.payload).eq(Mux(held, Value.cast(spare), Value.cast(self.i.payload))),
        ]
        m.d.sync += held.eq(self.o.valid & ~self.o.ready)
        with m.If(~held):
            m.d.sync += spare.eq(self.i.payload)
        return m


class SkidBuffer(_Stage):
    """Registers payload, ``valid`` and ``ready``: cuts every combinational path.

    One item per cycle, latency 1, holds up to two items.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    """

    def elaborate(self, platform):
        m = Module()
        spare = Signal(Shape.cast(self.shape))
        empty = Signal(init=1)      # `spare` is empty; equal to `i.ready`
        m.d.comb += self.i.ready.eq(empty)
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [self.o.valid.eq(~empty | self.i.valid), empty.eq(1),
                         Value.cast(self.o.payload).eq(Mux(empty, Value.cast(self.i.payload), spare))]
        with m.Elif(self.i.valid):
            m.d.sync += empty.eq(0)
        with m.If(empty):       # valid or not: `i.valid` is late
            m.d.sync += spare.eq(self.i.payload)
        return m


class PingPongBuffer(_Stage):
    """Ping-pong buffer, cycle-equivalent to :class:`SkidBuffer`, for a wide payload and a late ``o.ready``.

    ``o.ready`` drives no enable of the payload registers; the payload comes through a multiplexer of two instead.

    Members
    -------
    i, o : In/Out(stream.Signature(shape))
    takes, next : Out(1), Out(shape)
        The item of ``o`` in the next cycle, if there is one, is ``next``; valid while ``takes`` is high.
    """

    def __init__(self, shape):
        super().__init__(shape, takes=Out(1), next=Out(shape))

    def elaborate(self, platform):
        m = Module()
        items = [Signal(self.shape, name=f"item{k}") for k in range(2)]
        zero, one = (Value.cast(item) for item in items)
        write, read, free = Signal(), Signal(), Signal(init=1)
        m.d.comb += [
            self.i.ready.eq(free), self.takes.eq(~self.o.valid | self.o.ready),
            Value.cast(self.o.payload).eq(Mux(read, one, zero)),
            Value.cast(self.next).eq(Mux(free, Value.cast(self.i.payload), Mux(read, zero, one))),
        ]
        m.d.sync += [
            free.eq(~self.o.valid | self.o.ready | (free & ~self.i.valid)),
            self.o.valid.eq((self.i.valid & free) | (self.o.valid & ~(self.o.ready & free))),
            write.eq(write ^ (self.i.valid & free)), read.eq(read ^ (self.o.valid & self.o.ready)),
        ]
        for k, item in enumerate(items):
            with m.If(free & (write == k)):
                m.d.sync += item.eq(self.i.payload)
        return m
