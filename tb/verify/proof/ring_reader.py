"""Proof of the ring reader: order and bounds, and no entry is fetched twice, lost or invented."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Mux, Signal

from weft.hdl.contract.params import REQUEST_LINES_MAX
from weft.hdl.part.layouts import BEAT_BITS, LineData, PushedDescriptor
from weft.hdl.ring.doorbell_latch import DoorbellLatch
from weft.hdl.ring.push_check import PushCheck
from weft.hdl.ring.reader import RingReader
from weft.hdl.ring.reorder_buffer import CHECK_BITS, FetchedDescriptor, ReorderBuffer
from weft.tb.verify.proof.faulty import faulty, named
from weft.tb.verify.proof.specification import Spec

PREFETCH = 4
BASE = 0x1000
CHOOSE, REQUEST = 1, 2      # states of the reader
UP = PREFETCH + 3       # cycles from a reset until the ring is running
NAMED = named(RingReader, "stopped, cleared = Signal(), Signal(range(slots + 1))")   # names to observe


class RingReaderSpec(Spec):
    """Ring of 4 entries, all of which may be in flight, a correct host, and a read engine that answers in any order.

    The host writes entries in order, each with its index and phase. It rings the doorbell with its newest index, or
    pushes the next entry, completely or in parts. The first part of an entry advances the producer index, later parts
    change nothing. The host retires delivered entries. At the start the ring runs and is empty, and all its indices
    have the same arbitrary value, so that all laps and the change of lap are covered.

    All checks but progress are proven together, for runs of any length: one check describes the indices of the reader,
    another the location of every requested entry. Progress, which counts up to 12 calm cycles, is proven for 22.
    """

    name = "ring_reader"
    block = NAMED
    log2, calm_bound, anywhere_in_ring, pushed = 2, 22, True, True
    proof = of_requests = {"kind": "induction", "seconds": 300}

    def specify(self, m):
        m.submodules.dut = dut = self.block(PREFETCH, pushed=self.pushed)
        log2, size, width = self.log2, 1 << self.log2, self.log2 + 1
        m.d.comb += [dut.base.eq(BASE), dut.log2.eq(log2), dut.enable.eq(1)]
        self.free_members(dut, "base", "log2", "enable", "i_line", "i_push", "prod", "retire")
        up = Signal(3, name="up")           # counts up to the start of the ring; the host rings afterwards
        m.d.sync += up.eq(up + (up != UP))
        self.assume(~dut.prod_stb | (up == UP))
        start = Signal(width)               # index at the start of the run
        if self.anywhere_in_ring:
            self._anywhere(m, up, start)

        # Host: has written `written` entries.
        written = Signal(width, name="written")
        ring_to = self.free(width, "prod")
        m.d.comb += dut.prod.eq(ring_to)
        with m.If(dut.prod_stb):
            m.d.sync += written.eq(ring_to)
        step, space = Signal(width), Signal(width)
        m.d.comb += [step.eq(ring_to - written), space.eq(size - (written - dut.cons))]
        self.assume(~dut.prod_stb | (step <= space))
        placed, repeated = self._pushes(m, dut, up, written, space) if self.pushed else (0, 0)

        # Read engine: up to four requests, answered line by line; the next line may be of any request.
        live, left, first, tags, at = (
            [Signal(w, name=f"{n}{k}") for k in range(4)]
            for n, w in (("live", 1), ("left", 3), ("first", log2 + 1), ("tag", 16), ("at", 2)))
        fetched = Signal(width, name="fetched")     # free running: next index to request
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
        index = Signal(width)               # index of the entry whose line arrives
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
        with m.If(placed):
            m.d.sync += fetched.eq(fetched + 1)
        content = Cat(~index[log2], index)      # twice, so that the words XOR to 0
        m.d.comb += [line.p.data[:CHECK_BITS].eq(content), line.p.data[-CHECK_BITS:].eq(content)]
        in_flight = Cat(live).any()

        # User: retires delivered entries.
        delivered, retired = Signal(width, name="delivered"), Signal(width, name="retired")
        out = dut.o.valid & dut.o.ready
        retire = self.free(1, "retire")
        m.d.comb += dut.retire.eq(retire & (retired != delivered))
        m.d.sync += [delivered.eq(delivered + out), retired.eq(retired + dut.retire)]
        number = Signal(width)              # of the offered entry
        m.d.comb += number.eq(dut.o.payload[1:1 + width])
        waiting, offered = Signal(), Signal(width)
        m.d.sync += [waiting.eq(dut.o.valid & ~dut.o.ready), offered.eq(number)]

        self.check("a request lies inside the ring and one page", ~request.valid | (
            (request.p.count >= 1) & (request.p.count <= REQUEST_LINES_MAX)
            & (request.p.line >= BASE >> 6) & (request.p.line + request.p.count <= (BASE >> 6) + size)),
            **self.of_requests)
        self.check("an offered entry is stable", ~waiting | (dut.o.valid & (number == offered)))
        self.check("requests are contiguous",
                   ~request.valid | (request.p.line == (BASE >> 6) + fetched[:log2]), **self.of_requests)
        self.check("no fetch beyond prod", ~request.valid | (request.p.count <= asked))
        self.check("every entry is delivered once, in order", ~dut.o.valid | (number == delivered))
        self.check("cons equals the number of retired entries", (up < UP) | (dut.cons == retired))
        self.check("cons <= delivered <= prod <= cons + size", ((written - dut.cons)[:width] <= size)
                   & ((delivered - dut.cons)[:width] <= (written - dut.cons)[:width]))
        self.check("no doorbell is rejected", ~dut.drop.stb)
        self._kept(m, SimpleNamespace(
            dut=dut, up=up, written=written, repeated=repeated, fetched=fetched, delivered=delivered, retired=retired,
            number=number, requests=list(zip(live, left, first, tags, at, strict=True))))
        # Ranking: if all requests are answered and all entries taken, the next entry arrives in a bounded time.
        calm = dut.o.ready & request.ready & (~in_flight | line.valid) & ~dut.prod_stb & ~retire
        waited_cycles = self.cycles(m, calm & ~dut.o.valid & (delivered != written), 63)
        self.check("no deadlock: an entry within 12 cycles without back pressure", waited_cycles <= 12,
                   bound=self.calm_bound)
        self.cover("a full ring of entries is in flight", Cat(live).all())
        if self.pushed:
            self.check("the next entry is placed when all earlier ones are fetched",
                       ~placed | (~request.valid & (asked == 1)))
            self.cover("a pushed entry is not read, the one after it is", self.once(m, placed) & taken)
        overtaken = self.once(m, line.valid & (index != delivered) & (delivered == start))
        self.cover("responses overtake each other", overtaken & out & (number == (start + 2)[:width]))
        if self.anywhere_in_ring:
            turned = self.once(m, out & (number == 0))
            self.cover("an entry of the next lap, of either phase", out & turned & (number == 1) & (dut.cons == 0))
            self.cover("a doorbell when all entries of a lap were retired", dut.prod_stb & (dut.cons == size)
                       & (start == size - 2))

    def _pushes(self, m, dut, up, written, space):
        """Push entries, too; return signals: the reader places a pushed entry, and the host has repeated a push."""
        push, log2 = dut.i_push, self.log2
        pushes, again, whole = self.free(1, "pushes"), self.free(1, "again"), self.free(1, "whole")
        nonsense = self.free(2 * CHECK_BITS, "nonsense")
        number, repeated, content = Signal(log2 + 1, name="number_pushed"), Signal(), Signal(CHECK_BITS)
        self.assume(~pushes | ((up == UP) & (again | (space != 0)) & ~dut.prod_stb))
        self.assume(~dut.prod_stb | push.ready)         # doorbells take more cycles to arrive
        m.d.comb += [
            number.eq(written - again), content.eq(Cat(~number[log2], number)),
            push.valid.eq(pushes), push.p.window.eq(number), push.p.whole.eq(whole),
            push.p.data[:CHECK_BITS].eq(Mux(whole, content, nonsense[:CHECK_BITS])),
            push.p.data[-CHECK_BITS:].eq(Mux(whole, content, nonsense[CHECK_BITS:])),
        ]
        with m.If(push.valid & push.ready):
            m.d.sync += [written.eq(written + ~again), repeated.eq(again)]
        return self.inside("dut.push.placed", 1), repeated

    def _kept(self, m, w):
        """Check the indices of the reader, and the location of every entry that is requested and not delivered."""
        size, width = 1 << self.log2, self.log2 + 1
        shapes = {
            **dict.fromkeys(("running", "phase", "doorbell.kept", "doorbell.compared", "stopped_q"), 1),
            **dict.fromkeys(("prod_q", "cons_q", "fetch", "deliver", "ring.size", "ring.mask"), 16),
            **dict.fromkeys((f"doorbell.{name}" for name in ("value", "to", "from_cons", "from_prod")), 16),
            "line": 58, "fsm_state": 2,
            **dict.fromkeys(("position", "leaving"), 15),
            **dict.fromkeys(("in_flight", "to_prod", "to_end", "to_page", "cleared_q"), 3)}
        d = SimpleNamespace(**{name.rpartition(".")[2].removesuffix("_q"): self.inside(f"dut.{name}", shape)
                               for name, shape in shapes.items()})
        pushed = {"entry": PushedDescriptor, **dict.fromkeys((
            "held", "compared", "is_next", "is_newest", "has_space", "nothing_to_fetch"), 1)}
        p = SimpleNamespace(**{name: self.inside(f"dut.push.{name}", shape) for name, shape in pushed.items()})
        q = SimpleNamespace(**{name: self.inside(f"dut.places.{name}", shape) for name, shape in {
            "valid": 1, "line": LineData, "place": 2, "rest": 2, "fold": CHECK_BITS, "at": 2, "after": 2, "there": 1,
            "absent": 2, "next": 2, "used": 3, "o__valid": 1, "o__payload": FetchedDescriptor}.items()})
        held, good, came, left, missing = (
            Array(self.inside(f"dut.places.{name}[{k}]", shape) for k in range(size))
            for name, shape in (("held", BEAT_BITS), ("good", 3), ("came", 1), ("left", 1), ("missing", 2)))
        order = [Signal(width, name=f"retired_to_{k}") for k in range(5)]      # distances from the retired index
        m.d.comb += [to.eq(index - w.retired) for to, index in zip(
            order, (w.delivered, d.deliver, d.fetch, d.prod, w.written), strict=True)]
        asked, request = order[3] - order[2], w.dut.o_request.p
        newest = Signal(width, name="newest")       # newest index of a doorbell
        value_to, compared_to = Signal(width), Signal(width)        # distances from the retired index
        m.d.comb += [newest.eq(Mux(d.kept, d.value, Mux(d.compared, d.to, d.prod))),
                     value_to.eq(d.value - w.retired), compared_to.eq(d.to - w.retired)]
        base = Signal(width, name="base")      # index of the first slot in use
        m.d.comb += base.eq(d.deliver + q.o__valid)
        self.check("every index equals the number of its events", [
            (w.up == UP) & d.running & ~d.stopped & (d.cleared == 0) & (d.size == size) & (d.mask == 2 * size - 1),
            d.prod < 2 * size, d.cons == w.retired, (newest + (p.held & ~w.repeated))[:width] == w.written,
            ~d.kept | ((d.value < 2 * size) & (order[3] <= value_to) & (value_to <= order[4])),
            ~d.kept | ~d.compared | (compared_to <= value_to),
            ~d.compared | ((d.to < 2 * size) & (order[3] <= compared_to) & (compared_to <= order[4])
                           & (d.from_prod == (compared_to - order[3])[:width])
                           & ((d.from_cons == compared_to) | (d.from_cons == compared_to + 1)) & (d.from_cons <= size)),
            d.deliver[:width] == (w.delivered + w.dut.o.valid)[:width],
            d.fetch == w.fetched, d.position == w.fetched[:self.log2],
            d.leaving == base[:self.log2], d.phase == ~base[self.log2],
            *(a <= b for a, b in zip(order, [*order[1:], size], strict=True)),
            q.used + q.o__valid == order[2] - order[1], q.next == (q.at + q.used)[:2],
            ~w.dut.o.valid | (w.number == w.delivered)])
        pushed = Signal(width, name="pushed")
        m.d.comb += pushed.eq(newest - w.repeated)
        self.check("a pushed entry is the next or the newest", [
            ~p.held | ~p.compared | ~(d.kept | d.compared), ~p.held | (p.entry.window == pushed),
            ~p.held | ~p.entry.whole | (self._right(p.entry.data, pushed) & (
                p.entry.data[:CHECK_BITS] == p.entry.data[-CHECK_BITS:])),
            ~p.held | ~p.compared | ((p.is_next == ~w.repeated) & (p.is_newest == w.repeated)
                                     & (p.has_space | w.repeated) & (~p.nothing_to_fetch | (d.fetch == d.prod)))])
        self.check("a request fetches entries with a slot", [
            d.fsm_state <= REQUEST, (d.fsm_state == REQUEST) == w.dut.o_request.valid,
            (d.fsm_state != CHOOSE) | ((d.to_prod != 0) & (d.to_prod <= asked) & (d.to_end == size - d.position)
                                       & (d.to_page == size) & (d.line == (BASE >> 6) + d.position)),
            (d.fsm_state != REQUEST) | (
                (request.count != 0) & (request.count <= asked) & (request.count <= size - d.position)
                & (request.count <= size - q.used) & (request.line == (BASE >> 6) + d.position)
                & (request.tag[:2] == q.next) & (request.tag[2:4] == request.count - 1))])

        its = Signal(2)         # offset of the line that arrives
        m.d.comb += its.eq(q.place - q.at)
        parts = [q.after == (q.at + 1)[:2], q.there == (came[q.at] != left[q.at]), (q.absent == 0) & (
                     d.in_flight == sum(live for live, *_ in w.requests) + (q.valid & q.line.last)),
                 ~q.valid | ((its < q.used) & self._right(q.line.data, base + its) & ~q.line.error
                             & (q.fold == 0) & (~q.line.last | (q.rest == 0))),
                 ~q.o__valid | (
                     self._right(q.o__payload.data, d.deliver) & ~q.o__payload.damaged & ~q.o__payload.failed)]
        spans = []
        for k, (live, some, first, its_tag, at) in enumerate(w.requests):
            ahead = Signal(width, name=f"ahead{k}")
            m.d.comb += ahead.eq(first + at - base)
            parts.append(~live | ((some != 0) & (at + some == its_tag[2:4] + 1) & (ahead + some <= q.used)
                                  & ((its_tag[:2] + at)[:2] == (q.at + ahead)[:2])))
            spans.append((live, ahead, some))
        for j in range(size):
            slot, there = Signal(2, name=f"slot{j}"), Signal(name=f"there{j}")
            m.d.comb += [slot.eq(q.at + j), there.eq(came[slot] != left[slot])]
            outstanding = [live & (ahead <= j) & (j < ahead + some) for live, ahead, some in spans]
            parts += [(there + (q.valid & (q.place == slot)) + sum(outstanding)) == (j < q.used),
                      ~there | (self._sound(held[slot], good[slot], base + j) & (missing[slot] == 0))]
        self.check("every requested entry is in flight or in its slot", parts)

    def _sound(self, word, good, index):
        """Return whether a stored word is the entry with that index, in its phase, neither damaged nor failed."""
        return self._right(word, index) & (good == Cat(Const(0, 2), word[0]))

    def _right(self, word, index):
        """Return whether a word is the entry with that index."""
        return (word[1:2 + self.log2] == index[:self.log2 + 1]) & (word[0] == ~index[self.log2])

    def _anywhere(self, m, up, start):
        """Start with a running, empty ring at any index."""
        size, indices = 1 << self.log2, ("written", "fetched", "delivered", "retired")
        inner = {"dut.running": 1, "dut.ring.size": 16, "dut.ring.mask": 16, "dut.phase": 1,
                 "dut.position": 15, "dut.leaving": 15,
                 "dut.places.next": 2, "dut.places.at": 2, "dut.places.after": 2, "up": 3,
                 **dict.fromkeys(("dut.prod_q", "dut.cons_q", "dut.fetch", "dut.deliver"), 16),
                 **dict.fromkeys(indices, self.log2 + 1)}
        # Also by the names that ports give to the same registers.
        also = (f"dut.{name}*" for name in ("running", "accept", "prod", "cons", "fetch"))
        self.start_anywhere(*inner, *also)
        seen = {name: self.inside(name, width) for name, width in inner.items()}
        chosen = self.constant(m, self.log2 + 1, "some_start")
        m.d.comb += start.eq(chosen)
        self.assume_first(Cat(
            seen["dut.running"], seen["dut.ring.size"] == size, seen["dut.ring.mask"] == 2 * size - 1, up == UP,
            seen["dut.places.next"] == seen["dut.places.at"],
            seen["dut.places.after"] == (seen["dut.places.at"] + 1)[:2], seen["dut.position"] == chosen[:self.log2],
            seen["dut.leaving"] == chosen[:self.log2], seen["dut.phase"] == ~chosen[self.log2],
            *(seen[name] == chosen for name in (*indices, "dut.prod_q", "dut.cons_q", "dut.fetch", "dut.deliver")),
        ).all())


class LongRingReaderSpec(RingReaderSpec):
    """Ring of 8 entries, twice as many as may be in flight, without pushes, from reset, for 24 cycles."""

    name = "ring_reader_long"
    block = RingReader
    log2, calm_bound, anywhere_in_ring, pushed = 3, 24, False, False
    proof, of_requests = {"bound": 24, "seconds": 900}, {"kind": "unbounded"}

    def _kept(self, m, w):
        """Do nothing: without induction no invariant is required."""


SPECS = [RingReaderSpec, LongRingReaderSpec]
BOTH = (RingReaderSpec, LongRingReaderSpec)
FAULTY = faulty(RingReaderSpec, [
    ("every index equals the number of its events", "moved(self.used, -1)", "moved(self.used, 0)", ReorderBuffer),
    ("a request fetches entries with a slot", "tag.tail.eq(count - 1)", "tag.tail.eq(count)"),
    ("every requested entry is in flight or in its slot",
     "came_write.data.eq(~left_there.data)", "came_write.data.eq(left_there.data)", ReorderBuffer),
    ("every requested entry is in flight or in its slot",
     "(came_after.data != left_after.data) | (valid & (place == after))",
     "came_after.data != left_after.data", ReorderBuffer),
    ("a pushed entry is the next or the newest", "is_newest.eq(behind == mask)", "is_newest.eq(0)", PushCheck),
    ("the next entry is placed when all earlier ones are fetched",
     "nothing_to_fetch.eq(self.fetch == self.prod)", "nothing_to_fetch.eq(1)", PushCheck),
    ("every entry is delivered once, in order", "entry.whole & nothing_to_fetch", "nothing_to_fetch", PushCheck),
    ("every index equals the number of its events",
     "with m.If(kept & self.accept & ~self.compared):", "with m.If(kept & self.accept):", DoorbellLatch),
]) + faulty(BOTH, [
    ("a request lies inside the ring and one page", "to_prod, to_end, to_page)),", "to_prod, to_page)),"),
    ("an offered entry is stable", "out.ready.eq(self.o.ready)", "out.ready.eq(1)"),
    ("requests are contiguous",
     "position.eq((position + request.count) & ring.last)", "position.eq(position + request.count)"),
    ("no fetch beyond prod", "to_prod, to_end, to_page)", "to_end, to_page)"),
    ("every entry is delivered once, in order",
     "place.eq(tag.place + self.i_line.p.index)", "place.eq(tag.place)", ReorderBuffer),
    ("cons equals the number of retired entries", "cons.eq((cons + 1) & ring.mask)", "cons.eq(deliver)"),
    ("cons <= delivered <= prod <= cons + size", "cons.eq((cons + 1) & ring.mask)", "cons.eq((cons + 2) & ring.mask)"),
    ("no doorbell is rejected", "phase.eq(phase ^ (leaving == ring.last))", "phase.eq(~phase)"),
    ("no deadlock: an entry within 12 cycles without back pressure", "with m.Elif(space):", "with m.Elif(space & 0):"),
]) + faulty(LongRingReaderSpec, [
    ("every entry is delivered once, in order", "with m.Elif(space):", "with m.Elif(space | 1):"),
])
