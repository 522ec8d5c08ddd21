"""Host-to-card ring: fetches descriptors ahead and delivers them in order."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..contract.params import REQUEST_LINES_MAX, exact_log2
from ..part.counter_ports import DropEvent
from ..part.layouts import BEAT_BITS, LineData, LineRequest, PushedDescriptor
from ..part.logic import distance_to_overflow, greater_than, saturate, thermometer_count, thermometer_min
from .doorbell_latch import DoorbellLatch
from .output_register import OutputRegister
from .push_check import PushCheck
from .reorder_buffer import ReorderBuffer, reorder_tag
from .size import INDEX_WIDTH, RingSize


class RingReader(wiring.Component):
    """Reads the descriptors of one ring, several fetches in flight.

    A request reads up to 4 lines: never past ``prod``, the end of the ring or a 4 KiB page, and only
    when the buffer of ``prefetch`` descriptors has an entry for each line; one request
    per 3 cycles. Responses may come in any order. Descriptors are delivered in ring order, one per cycle
    while the buffer holds the next one, 4 cycles after its line came.

    A descriptor that is damaged (its words do not XOR to 0), has a wrong phase, or whose read failed, is dropped: when
    everything before it is retired it is skipped and counts as finished. A producer index that moves backwards or holds
    more than the ring is ignored and reported.

    A pushed descriptor is also a doorbell for one more descriptor. When none is being fetched or left to fetch, and the
    buffer has a free entry, it goes there like a line that was read, and is delivered 6 cycles after it came. A
    descriptor that is not whole, or comes while others must be fetched, is read from the ring. One that is not the
    next, or comes while the ring does not run or is full, is dropped and reported; one for the newest index has no
    effect.

    While ``enable`` is 0 nothing is fetched or delivered; the ring restarts at index zero when reads in
    flight have come back, the buffer was cleared, an entry per cycle, and delivered descriptors are retired. Doorbells
    in the meantime, after ``enable`` went up again, are held. ``base`` and ``log2`` may only change while ``enable`` is
    0.

    Parameters
    ----------
    prefetch : int
        Descriptors held or in flight: a power of two, at least 4.
    pushed : bool
        Add the input for pushed descriptors.

    Members
    -------
    base, log2, enable : In(64), In(8), In(1)
        Configuration.
    prod, prod_stb : In(16), In(1)
        Doorbell: new producer index; surplus high bits are ignored.
    i_push : In(stream.Signature(PushedDescriptor))
        If ``pushed``. One per 3 cycles.
    o_request : Out(stream.Signature(LineRequest))
    i_line : In(stream.Signature(LineData))
        Always accepted.
    o : Out(stream.Signature(512))
        Descriptors.
    retire : In(1)
        Strobe: the oldest delivered descriptor is finished.
    cons : Out(16)
        Consumer index, as wide as the ring's indices.
    idle : Out(1)
        Nothing held, in flight or unfinished.
    drop : Out(DropEvent)
        BAD_DESCRIPTOR or DMA_ERROR.
    """

    def __init__(self, prefetch, *, pushed=False):
        if prefetch < REQUEST_LINES_MAX:
            raise ValueError(f"prefetch is {prefetch}; a request needs space for {REQUEST_LINES_MAX}")
        self._prefetch, self._pushed = prefetch, pushed
        super().__init__({
            "base": In(64), "log2": In(8), "enable": In(1),
            "prod": In(INDEX_WIDTH), "prod_stb": In(1),
            **({"i_push": In(stream.Signature(PushedDescriptor))} if pushed else {}),
            "o_request": Out(stream.Signature(LineRequest)),
            "i_line": In(stream.Signature(LineData)),
            "o": Out(stream.Signature(BEAT_BITS)),
            "retire": In(1),
            "cons": Out(INDEX_WIDTH),
            "idle": Out(1),
            "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        slots = self._prefetch
        m.submodules.ring = ring = RingSize()
        m.submodules.places = places = ReorderBuffer(slots, puts=self._pushed)
        m.d.comb += ring.log2.eq(self.log2)

        running = Signal()
        start = Signal()
        prod, fetch, deliver, cons = (Signal(INDEX_WIDTH, name=n) for n in ("prod_q", "fetch", "deliver", "cons_q"))
        in_flight = Signal(range(slots + 1))             # requests, each ended by a line with `last`

        push = PushCheck() if self._pushed else None
        bad_doorbell = self._doorbell(m, ring, running, start, prod, cons, push)

        self._live(m, places, running, start, in_flight, deliver == cons)

        # Fetching.
        lines, space = Signal(REQUEST_LINES_MAX), Signal()   # `lines`: thermometer code
        to_prod, to_end, to_page, count = (Signal(range(REQUEST_LINES_MAX + 1), name=n)
                                           for n in ("to_prod", "to_end", "to_page", "count"))
        position = Signal(INDEX_WIDTH - 1)               # of `fetch` in the ring
        line = Signal(58)
        request = self.o_request.p

        m.d.comb += places.count.eq(request.count)
        left, lines_left = Signal(INDEX_WIDTH), Signal(INDEX_WIDTH)
        tag = data.View(reorder_tag(slots), request.tag[:reorder_tag(slots).size])
        m.d.comb += [left.eq((prod - fetch) & ring.mask), lines_left.eq(ring.size - position)]
        with m.FSM():
            with m.State("MEASURE"):
                # waits for a descriptor to fetch
                m.d.sync += [
                    to_prod.eq(saturate(REQUEST_LINES_MAX, left)),
                    to_end.eq(saturate(REQUEST_LINES_MAX, lines_left)),
                    to_page.eq(distance_to_overflow(REQUEST_LINES_MAX,
                                                    (self.base[6:] + position)[:exact_log2(abi.PAGE_LINES)])),
                    line.eq(self.base[6:] + position),
                ]
                with m.If(running & self.enable & (left != 0)):
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):
                # waits for space for the whole request
                m.d.comb += [
                    lines.eq(thermometer_min(REQUEST_LINES_MAX, to_prod, to_end, to_page)),
                    count.eq(thermometer_count(lines)),
                    space.eq(~(lines & Cat(greater_than(places.used, slots - k - 1) for k in range(len(lines)))).any()),
                ]
                m.d.sync += [request.line.eq(line), request.count.eq(count), tag.place.eq(places.next),
                             tag.tail.eq(count - 1)]
                with m.If(~running | ~self.enable):
                    m.next = "MEASURE"
                with m.Elif(space):
                    m.d.sync += self.o_request.valid.eq(1)
                    m.next = "REQUEST"
            with m.State("REQUEST"):
                # waits for the request to be accepted
                with m.If(self.o_request.ready):
                    m.d.comb += places.take.eq(1)
                    m.d.sync += [
                        self.o_request.valid.eq(0),
                        fetch.eq((fetch + request.count) & ring.mask),
                        position.eq((position + request.count) & ring.last),
                    ]
                    m.next = "MEASURE"

        wiring.connect(m, wiring.flipped(self.i_line), places.i_line)
        m.d.sync += in_flight.eq(in_flight + places.take - places.answered)
        if push:
            m.d.comb += [
                push.fetch.eq(fetch), push.place.eq(~self.i_line.valid & (places.used != slots)),
                places.put.eq(push.placed), places.put_data.eq(push.data),
            ]
            with m.If(push.placed):
                m.d.sync += [fetch.eq((fetch + 1) & ring.mask), position.eq((position + 1) & ring.last)]

        # Delivery.
        # position in the ring, and phase, of the next descriptor to leave the buffer
        leaving = Signal(INDEX_WIDTH - 1)
        phase = Signal(init=1)
        bad, pop = Signal(), Signal()
        retired, popped = Signal(), Signal()     # all were retired a cycle ago; one was delivered a cycle ago
        m.submodules.outlet = out = OutputRegister()
        descriptor = places.o.p
        m.d.sync += [retired.eq(deliver == cons), popped.eq(pop)]
        m.d.comb += [
            places.phase.eq(phase), bad.eq(descriptor.failed | descriptor.damaged),
            out.some.eq(running & places.o.valid & (~bad | (retired & ~popped))), out.keep.eq(~bad),
            out.ready.eq(self.o.ready), self.o.valid.eq(out.valid),
            pop.eq(out.moves), places.o.ready.eq(pop),
        ]
        m.d.sync += self.drop.stb.eq(0)
        with m.If(places.leaves):
            m.d.sync += [leaving.eq((leaving + 1) & ring.last), phase.eq(phase ^ (leaving == ring.last))]
        with m.If(pop):
            m.d.sync += deliver.eq((deliver + 1) & ring.mask)
            with m.If(bad):
                reason = Mux(descriptor.failed, abi.Reason.DMA_ERROR, abi.Reason.BAD_DESCRIPTOR)
                m.d.sync += [self.drop.stb.eq(1), self.drop.reason.eq(reason)]
        with m.If(out.free):
            m.d.sync += self.o.payload.eq(descriptor.data)
        with m.If((pop & bad) | (self.retire & (cons != deliver))):
            m.d.sync += cons.eq((cons + 1) & ring.mask)
        with m.If(bad_doorbell):
            m.d.sync += [self.drop.stb.eq(1), self.drop.reason.eq(abi.Reason.BAD_DESCRIPTOR)]

        with m.If(start):
            m.d.sync += [fetch.eq(0), deliver.eq(0), cons.eq(0), position.eq(0), leaving.eq(0), phase.eq(1)]
        m.d.comb += [
            self.cons.eq(Mux(running, cons, 0)),
            self.idle.eq((in_flight == 0) & (deliver == cons) & ~self.o_request.valid & (~running | (prod == cons))),
        ]
        return m

    def _live(self, m, places, running, start, in_flight, finished):
        """Start and stop the ring: ``running`` from a clean start until ``enable`` goes low."""
        slots = self._prefetch
        stopped, cleared = Signal(), Signal(range(slots + 1))
        m.d.comb += [
            start.eq(~running & self.enable & (cleared == slots) & finished),
            places.clear.eq(stopped & (in_flight == 0) & ~self.o_request.valid & (cleared != slots)),
        ]
        m.d.sync += [stopped.eq(~running), cleared.eq(cleared + places.clear)]
        with m.If(running):
            m.d.sync += cleared.eq(0)
        with m.If(start):
            m.d.sync += running.eq(1)
        with m.Elif(~self.enable):
            m.d.sync += running.eq(0)

    def _doorbell(self, m, ring, running, start, prod, cons, push):
        """Check a new producer index; hold one that comes before the ring has started.

        A pushed descriptor is a new index, too.

        Returns the strobe of a rejected one.
        """
        m.submodules.doorbell = bell = DoorbellLatch()
        bad = Signal(name="bad_doorbell")
        ahead, step = bell.from_cons, bell.from_prod
        # A step back is a forward step of more than the ring, or of the whole ring while less is free.
        m.d.comb += [
            bell.index.eq(self.prod), bell.stb.eq(self.prod_stb), bell.accept.eq(running), bell.clear.eq(~self.enable),
            bell.cons.eq(cons), bell.prod.eq(prod), bell.mask.eq(ring.mask),
            bad.eq(bell.compared & running & (
                ring.exceeds(ahead) | ring.exceeds(step) | (ring.reaches(step) & ~ring.reaches(ahead)))),
        ]
        with m.If(bell.compared & running & ~bad):
            m.d.sync += prod.eq(bell.to)
        if push:
            m.submodules.push = push
            wiring.connect(m, wiring.flipped(self.i_push), push.i)
            m.d.comb += [
                push.prod.eq(prod), push.cons.eq(cons), push.mask.eq(ring.mask), push.size.eq(ring.size),
                push.running.eq(running), push.bell.eq(self.prod_stb | bell.pending),
            ]
            with m.If(push.rung):
                m.d.sync += prod.eq((prod + 1) & ring.mask)
        with m.If(start):
            m.d.sync += prod.eq(0)
        return bad | push.rejected if push else bad
