"""What is proven of the ring reader: order, bounds, and that nothing is fetched twice, lost or invented."""

from amaranth.hdl import Cat, Signal

from weft.hdl.layouts import REQUEST_LINES_MAX
from weft.hdl.params import preset
from weft.hdl.ring.reader import CHECK_BITS, RingReader
from weft.tb.proof.broken import Broken
from weft.tb.proof.specification import Spec

PARAMS = preset("test").with_(ring_prefetch=4)
BASE = 0x1000


class RingReaderSpec(Spec):
    """A ring of 4 entries, all of which may be in flight, an orderly host and a read engine that answers in any order.

    The host writes entries in order, each with its index and phase, rings with its newest index, and retires what it
    was given. The ring is empty at the start and runs, and all its indices are the same, whichever: so any lap and the
    turn from one to the next are seen.

    Requests are proven for runs of any length, the rest for 16 cycles: in 14 all four entries are in flight, each by a
    read of its own, and in 11 entries of two laps were delivered and all of a lap retired. Progress, which counts up
    to 12 calm cycles, is proven for 22.
    """

    name = "ring_reader"
    block = RingReader
    log2, bound, calm_bound, anywhere_in_ring = 2, 16, 22, True

    def specify(self, m):
        m.submodules.dut = dut = self.block(PARAMS)
        log2, size, width = self.log2, 1 << self.log2, self.log2 + 1
        m.d.comb += [dut.base.eq(BASE), dut.log2.eq(log2), dut.enable.eq(1)]
        self.free_members(dut, "base", "log2", "enable", "i_line", "prod", "retire")
        up = Signal(2, name="up")           # the ring has started; the host rings afterwards
        m.d.sync += up.eq(up + (up != 3))
        self.assume(~dut.prod_stb | (up == 3))
        start = Signal(width)               # index with which the run starts
        if self.anywhere_in_ring:
            self._anywhere(m, up, start)

        # The host: `written` entries so far.
        written = Signal(width, name="written")
        ring_to = self.free(width, "prod")
        m.d.comb += dut.prod.eq(ring_to)
        with m.If(dut.prod_stb):
            m.d.sync += written.eq(ring_to)
        step, room = Signal(width), Signal(width)
        m.d.comb += [step.eq(ring_to - written), room.eq(size - (written - dut.cons))]
        self.assume(~dut.prod_stb | (step <= room))

        # The read engine: up to four requests, answered line by line, the next one of any request.
        live, left, first, tags, at = (
            [Signal(w, name=f"{n}{k}") for k in range(4)]
            for n, w in (("live", 1), ("left", 3), ("first", log2 + 1), ("tag", 16), ("at", 2)))
        fetched = Signal(width, name="fetched")     # free running: the next index that should be asked for
        asked = Signal(width)
        request = dut.o_request
        taken = request.valid & request.ready
        place = Signal(2)
        pick, answering = self.free(2, "pick"), self.free(1, "answering")
        m.d.comb += asked.eq(written - fetched)
        for k in reversed(range(4)):
            with m.If(~live[k]):
                m.d.comb += place.eq(k)
        line = dut.i_line
        index = Signal(width)               # of the entry whose line comes now
        valid = Signal()
        m.d.comb += [line.valid.eq(valid & answering)]
        for k in range(4):
            with m.If(pick == k):
                m.d.comb += [
                    valid.eq(live[k]), line.p.tag.eq(tags[k]), line.p.index.eq(at[k]),
                    line.p.last.eq(left[k] == 1), index.eq(first[k] + at[k]),
                ]
                with m.If(line.valid):
                    m.d.sync += [left[k].eq(left[k] - 1), at[k].eq(at[k] + 1)]
                    with m.If(line.p.last):
                        m.d.sync += live[k].eq(0)
            with m.If(taken & (place == k)):
                m.d.sync += [live[k].eq(1), left[k].eq(request.p.count), at[k].eq(0), first[k].eq(fetched),
                             tags[k].eq(request.p.tag)]
        with m.If(taken):
            m.d.sync += fetched.eq(fetched + request.p.count)
        content = Cat(~index[log2], index)      # twice: so the words XOR to 0
        m.d.comb += [line.p.data[:CHECK_BITS].eq(content), line.p.data[-CHECK_BITS:].eq(content)]
        in_flight = Cat(live).any()

        # The user: retires what was delivered.
        delivered, retired = Signal(width, name="delivered"), Signal(width, name="retired")
        out = dut.o.valid & dut.o.ready
        retire = self.free(1, "retire")
        m.d.comb += dut.retire.eq(retire & (retired != delivered))
        m.d.sync += [delivered.eq(delivered + out), retired.eq(retired + dut.retire)]
        number = Signal(width)              # of the entry offered
        m.d.comb += number.eq(dut.o.payload[1:1 + width])
        waiting, offered = Signal(), Signal(width)
        m.d.sync += [waiting.eq(dut.o.valid & ~dut.o.ready), offered.eq(number)]

        kind, deep = {"kind": "unbounded"}, {"bound": self.bound, "seconds": 900}
        self.check("a request lies inside the ring and one page", ~request.valid | (
            (request.p.count >= 1) & (request.p.count <= REQUEST_LINES_MAX)
            & (request.p.line >= BASE >> 6) & (request.p.line + request.p.count <= (BASE >> 6) + size)), **kind)
        self.check("entries are offered until taken", ~waiting | (dut.o.valid & (number == offered)), **deep)
        self.check("requests follow each other",
                   ~request.valid | (request.p.line == (BASE >> 6) + fetched[:log2]), **kind)
        self.check("never fetches past prod", ~request.valid | (request.p.count <= asked), **deep)
        self.check("delivers each entry once, in order", ~dut.o.valid | (number == delivered), **deep)
        self.check("cons counts what was retired", (up < 3) | (dut.cons == retired), **deep)
        self.check("cons <= delivered <= prod <= cons + size",
                   ((written - dut.cons)[:width] <= size) & (
                       (delivered - dut.cons)[:width] <= (written - dut.cons)[:width]), **deep)
        self.check("refuses nothing", ~dut.refuse.stb, **deep)
        # Ranking: with everything answered and taken, the next entry comes in a bounded time.
        patience = Signal(6)
        calm = (dut.o.ready & request.ready & (~in_flight | line.valid) & ~dut.prod_stb & ~retire)
        with m.If(~calm | dut.o.valid | (delivered == written)):
            m.d.sync += patience.eq(0)
        with m.Else():
            m.d.sync += patience.eq(patience + (patience != 63))
        self.check("no deadlock: an entry within 12 cycles of calm", patience <= 12, bound=self.calm_bound)
        self.cover("full ring of entries in flight", Cat(live).all())
        overtaken = Signal()
        with m.If(line.valid & (index != delivered) & (delivered == start)):
            m.d.sync += overtaken.eq(1)
        self.cover("answers overtake each other", overtaken & out & (number == (start + 2)[:width]))
        if self.anywhere_in_ring:
            turned = Signal()
            with m.If(out & (number == 0)):
                m.d.sync += turned.eq(1)
            self.cover("an entry of the next lap, of either phase", out & turned & (number == 1) & (dut.cons == 0))
            self.cover("a doorbell when all entries of a lap were retired", dut.prod_stb & (dut.cons == size)
                       & (start == size - 2))

    def _anywhere(self, m, up, start):
        """The ring runs, is empty, and has come to any index."""
        size, indices = 1 << self.log2, ("written", "fetched", "delivered", "retired")
        inner = {"dut.running": 1, "dut.ring.size": 16, "dut.ring.mask": 16, "dut.phase": 1, "dut.position": 15,
                 "dut.slot_in": 2, "dut.slot_out": 2, "up": 2,
                 **dict.fromkeys(("dut.prod_q", "dut.cons_q", "dut.fetch", "dut.deliver"), 16),
                 **dict.fromkeys(indices, self.log2 + 1)}
        self.start_anywhere(*inner)
        seen = {name: self.inside(name, width) for name, width in inner.items()}
        chosen = self.constant(m, self.log2 + 1, "some_start")
        m.d.comb += start.eq(chosen)
        self.assume_first(Cat(
            seen["dut.running"], seen["dut.ring.size"] == size, seen["dut.ring.mask"] == 2 * size - 1, up == 3,
            seen["dut.slot_in"] == seen["dut.slot_out"], seen["dut.position"] == chosen[:self.log2],
            seen["dut.phase"] == ~chosen[self.log2],
            *(seen[name] == chosen for name in (*indices, "dut.prod_q", "dut.cons_q", "dut.fetch", "dut.deliver")),
        ).all())


class LongRingReaderSpec(RingReaderSpec):
    """The same from the reset on, with a ring of 8 entries, twice what may be in flight; 19 cycles."""

    name = "ring_reader_long"
    log2, bound, calm_bound, anywhere_in_ring = 3, 19, 19, False


SPECS = [RingReaderSpec, LongRingReaderSpec]
BOTH = (RingReaderSpec, LongRingReaderSpec)
BROKEN = [
    Broken(BOTH, "a request lies inside the ring and one page",
           ("in_ring.eq(Mux(to_prod < to_end, to_prod, to_end))", "in_ring.eq(to_prod)")),
    Broken(BOTH, "entries are offered until taken", ("with m.If(self.o.ready):", "with m.If(1):")),
    Broken(BOTH, "requests follow each other",
           ("position.eq((position + request.count) & (ring.size - 1))", "position.eq(position + request.count)")),
    Broken(BOTH, "never fetches past prod",
           ("in_ring.eq(Mux(to_prod < to_end, to_prod, to_end))", "in_ring.eq(to_end)")),
    Broken(BOTH, "delivers each entry once, in order", ("slot.eq(tag.slot + line.index)", "slot.eq(tag.slot)")),
    Broken(LongRingReaderSpec, "delivers each entry once, in order",
           ("with m.Elif(space >= count):", "with m.Elif(space >= 0):")),
    Broken(BOTH, "cons counts what was retired", ("cons.eq((cons + 1) & ring.mask)", "cons.eq(deliver)")),
    Broken(BOTH, "cons <= delivered <= prod <= cons + size",
           ("cons.eq((cons + 1) & ring.mask)", "cons.eq((cons + 2) & ring.mask)")),
    Broken(BOTH, "refuses nothing", ("phase.eq(phase ^ at_end)", "phase.eq(~phase)")),
    Broken(BOTH, "no deadlock: an entry within 12 cycles of calm",
           ("with m.Elif(space >= count):", "with m.Elif(space > slots):")),
]
