"""Proof of the path of reports to the Meta Report ring: no report is lost, duplicated, overtaken, or too early.

Together with the proofs of the retirement lane upstream (``RetireSpec``) and of the ring writer downstream
(``RingWriterSpec``), the whole path by which a block returns to the driver is covered.
"""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Mux, Signal

from weft.hdl.adamap.match.retire import LongReport
from weft.hdl.adamap.second_level import ReportHold
from weft.hdl.contract.params import exact_log2, preset
from weft.hdl.part.arbiter import Arbiter
from weft.hdl.part.layouts import BEAT_BITS
from weft.hdl.part.ticket import EXTENDED_TICKET_WIDTH
from weft.hdl.report import Reporter
from weft.tb.verify.proof.faulty import faulty, named
from weft.tb.verify.proof.specification import Spec

SOURCE_BITS = 2
NUMBER_BITS = 3         # enough to number more reports of a source than there are slots on the path
PLACES = 4
AHEAD_BITS = 3          # largest distance of tickets ahead of the placed one: 2^3 - 1
LATENCY = 4
TICKET_BITS = 8
HALF = 1 << EXTENDED_TICKET_WIDTH - 1


class ReturnPathSpec(Spec):
    """Numbered reports with tickets up to 7 ahead of the placed one, taken at any time; up to 3 packets per cycle.

    A report waits while fewer packets are placed than half the range of its extended ticket: two hours of the smallest
    packets. The checks are proven together: one of them describes the contents of the path. ``ticketed`` states for
    every source whether its reports wait for their tickets.
    """

    proof = {"kind": "induction", "seconds": 200}

    def specify(self, m):
        m.submodules.dut = dut = self.make()
        placed, advance, before = Signal(TICKET_BITS), self.free(2, "advance"), Signal(2)   # before: last cycle
        m.d.sync += [placed.eq(placed + advance), before.eq(advance)]
        newest = self.newest(m, placed, before)
        m.d.comb += [dut.placed_ticket.eq(placed), dut.o.ready.eq(self.free(1, "taken"))]
        number, source = self._reported(getattr(dut.o.p, "entry", dut.o.p))
        followed = self.constant(m, NUMBER_BITS, "followed")
        counts = []
        for k, i in enumerate(self.sources(dut)):
            came, left, remaining, ahead = (Signal(NUMBER_BITS, name=f"{name}{k}") for name in (
                "came", "left", "remaining", "ahead"))      # remaining: packets to place before the followed report
            m.d.comb += [
                ahead.eq(self.free(AHEAD_BITS, f"some_ahead{k}")), i.valid.eq(self.free(1, f"send{k}")),
                i.p.ticket.eq(newest + ahead), i.p.entry.eq(Cat(came, Const(k, SOURCE_BITS))),
            ]
            now = Signal(NUMBER_BITS, name=f"now{k}")
            m.d.comb += now.eq(Mux(i.valid & i.ready & (came == followed), ahead, remaining))
            m.d.sync += [remaining.eq(Mux(now > advance, now - advance, 0)), came.eq(came + (i.valid & i.ready))]
            with m.If(dut.o.valid & dut.o.ready & (source == k)):
                m.d.sync += left.eq(left + 1)
            self.check(f"reports of source {k} leave in order, each once",
                       ~dut.o.valid | (source != k) | ((number == left) & (came != left)))
            counts.append((came, left, remaining))
        held, idle = Signal(), Signal(range(1 << AHEAD_BITS + 1))
        m.d.comb += held.eq(Cat(came != left for came, left, _ in counts).any())
        with m.If(dut.o.valid | ~held):
            m.d.sync += idle.eq(0)
        with m.Else():
            m.d.sync += idle.eq(idle + (advance != 0))
        self._lie(m, dut, counts, followed, newest, before, idle)
        if len(counts) > 1:
            self.check("every report has a source", ~dut.o.valid | (source < len(counts)))
        waited, kept = Signal(), Signal(len(number) + len(source))
        m.d.sync += [waited.eq(dut.o.valid & ~dut.o.ready), kept.eq(Cat(number, source))]
        self.check("an offered item is stable", ~waited | (dut.o.valid & (kept == Cat(number, source))))
        counted = Array(Const(ticketed, 1) for ticketed in self.ticketed)[source]
        early = Array(remaining != 0 for _, _, remaining in counts)[source]
        self.check("no report before its packet was placed", ~(dut.o.valid & (number == followed) & counted & early))
        self.check("no deadlock: a report whose packets were placed is offered",
                   idle < (1 << AHEAD_BITS) + LATENCY)
        self.cover("a report waits for its packet", held & ~dut.o.valid & (idle == (1 << AHEAD_BITS) - 1))
        again = Signal(range(PLACES + 2))
        m.d.sync += again.eq(again + ((again <= PLACES) & dut.o.valid & dut.o.ready & (source == 0)))
        self.cover("a slot is reused", again > PLACES)
        self.cover("a source has to wait", Cat(i.valid & ~i.ready for i in self.sources(dut)).any())

    def _reported(self, entry):
        """Return number and source of a report."""
        return entry[:NUMBER_BITS], entry[NUMBER_BITS:NUMBER_BITS + SOURCE_BITS]

    def _lie(self, m, dut, counts, followed, newest, before, idle):
        """Check the contents of the path: the reports in each place, and the next report to leave."""
        carriers = self.carriers(dut)       # registers after the queues, the last one first
        text = [(valid, *self._reported(entry)) for valid, entry in carriers]
        known = (newest - before)[:len(newest)]
        sane = [~valid | (source >= (k > 0)) & (source < len(counts)) for k, (valid, _, source) in enumerate(text)]
        soon = [valid & (idle <= (1 << AHEAD_BITS) + k) for k, (valid, _, _) in enumerate(text)]
        for k, (came, left, remaining) in enumerate(counts):
            queue = self.queue(k)
            first = Signal(NUMBER_BITS, name=f"first{k}")       # number of the first report in the queue
            own = [valid & (source == k) for valid, _, source in text]
            m.d.comb += first.eq(left + sum(own))
            sane += [queue.level <= PLACES, (queue.produce - queue.consume - queue.level)[:2] == 0,
                     (came - first)[:NUMBER_BITS] == queue.level]
            for j, ((_, number, _), mine) in enumerate(zip(text, own, strict=True)):
                sane += [~mine | (number == (left + sum(own[:j]))[:NUMBER_BITS]),
                         ~mine | (number != followed) | (remaining == 0) | ~Const(self.ticketed[k], 1)]
            for j in range(PLACES):
                there, word = Signal(name=f"there{k}_{j}"), Signal(self.held, name=f"word{k}_{j}")
                distance, due = Signal(EXTENDED_TICKET_WIDTH, name=f"distance{k}_{j}"), Signal(4, name=f"due{k}_{j}")
                at = (queue.consume + j)[:2]
                m.d.comb += [there.eq(queue.level > j), word.eq(Array(queue.words)[at])]
                number, source = self._reported(getattr(word, "entry", word))
                sane += [~there | ((number == (first + j)[:NUMBER_BITS]) & (source == k))]
                if not self.ticketed[k]:
                    soon += [there & (idle <= 1 << AHEAD_BITS)] if j == 0 else []
                    continue
                m.d.comb += [distance.eq(self.distance(k, at, word, known)),
                             due.eq(Mux(distance[-1] | (distance <= before), 0, distance - before))]
                self.bounded(there, distance)
                sane += [~there | distance[-1] | (distance < 1 << AHEAD_BITS),
                         ~there | (number != followed) | (remaining == due)]
                if j == 0:
                    sane += [~self.latched(dut) | (there & (distance[-1] | (distance == 0)))]
                    soon += [there & Mux(due != 0, idle + due < 1 << AHEAD_BITS, Mux(
                        distance[-1] | (distance == 0), idle <= 1 << AHEAD_BITS,
                        idle < 1 << AHEAD_BITS))]
        sane += self.marks(counts)
        waits = Cat(came != left for came, left, _ in counts).any()
        sane.append(~waits | dut.o.valid | Cat(soon).any())
        self.check("the queue holds the reports that arrived and did not leave", sane)

    def queue(self, k):
        """Return the signals of the queue of a source."""
        path = self.fifo.format(k)
        return SimpleNamespace(
            level=self.inside(f"dut.{path}.level", range(PLACES + 1)),
            produce=self.inside(f"dut.{path}.produce", range(PLACES)),
            consume=self.inside(f"dut.{path}.consume", range(PLACES)),
            words=[self.inside(f"dut.{path}.storage[{j}]", self.held) for j in range(PLACES)])


class HoldSpec(ReturnPathSpec):
    """Report hold between the retirement lane and the merge of reports of the Adamap subsystem."""

    name = "report_hold"
    block, held, ticketed, fifo = ReportHold, LongReport, (True,), "queue.queue"

    def make(self):
        return self.block()

    def newest(self, m, placed, before):
        extended = Signal(EXTENDED_TICKET_WIDTH)
        m.d.comb += extended.eq(self.inside("dut.placed", EXTENDED_TICKET_WIDTH) + before)
        self.check("tickets are counted as they are placed", extended[:TICKET_BITS] == placed)
        return extended

    def distance(self, k, at, word, known):
        return word.ticket - known

    def bounded(self, there, distance):
        self.assume(~there | (distance < 1 << AHEAD_BITS + 1) | (distance > HALF + (1 << AHEAD_BITS)))

    def marks(self, counts):
        return []

    def sources(self, dut):
        return [dut.i]

    def carriers(self, dut):
        return []

    def latched(self, dut):
        return self.inside("dut.due", 1)


class ReporterSpec(ReturnPathSpec):
    """Merge of all reports of the card, with three sources and queues of 4 entries; the last source has no tickets."""

    name = "reporter"
    block, held, ticketed, fifo = Reporter, BEAT_BITS, (True, True, False), "queue_{}.queue"

    def __init__(self, block=None, replaced=()):
        super().__init__(block, {
            Arbiter: named(Arbiter, "keeps, free, load = Signal(n), Signal(init=1), Signal()"), **dict(replaced)})

    def make(self):
        return self.block(preset("test"), len(self.ticketed), unticketed=[2], first_depth=PLACES)

    def newest(self, m, placed, before):
        return placed

    def distance(self, k, at, word, known):
        """Return the distance, at least 1 for a waiting report: its ticket is ahead of the placed one."""
        return Mux(self._waiting(k).bit_select(at, 1), (self._tickets(k)[at] - known - 1)[:TICKET_BITS] + 1, 0)

    def bounded(self, there, distance):
        """Do nothing: a report whose packet was placed never waits again."""

    def marks(self, counts):
        """Yield conditions: tickets are marked at the places of their reports, and the merge is between groups."""
        yield self.inside("dut.others.free_q", 1) & (self.inside("dut.others.keeps_q", len(counts) - 1) == 0)
        for k in range(len(counts)):
            if self.ticketed[k]:
                queue = self.queue(k)
                yield self.inside(f"dut.into_{k}", range(PLACES)) == queue.produce
                yield self.inside(f"dut.at_{k}", range(PLACES)) == queue.consume
                yield self.inside(f"dut.after_{k}", range(PLACES)) == (queue.consume + 1)[:exact_log2(PLACES)]
                yield self.inside(f"dut.due_{k}", 1) == ~self._waiting(k).bit_select(queue.consume, 1)

    def _waiting(self, k):
        return self.inside(f"dut.waiting_{k}", PLACES)

    def _tickets(self, k):
        return Array(self.inside(f"dut.ticket_{k}_{place}", TICKET_BITS) for place in range(PLACES))

    def sources(self, dut):
        return list(dut.i)

    def carriers(self, dut):
        return [(dut.o.valid, dut.o.payload),
                (self.inside("dut.others.o__valid", 1), self.inside("dut.others.o__payload", BEAT_BITS))]

    def latched(self, dut):
        return Const(0)


SPECS = [HoldSpec, ReporterSpec]
FAULTY = faulty(HoldSpec, [
    ("reports of source 0 leave in order, each once", "self.o.ready & self.o.valid)", "self.o.ready)"),
    ("the queue holds the reports that arrived and did not leave",
     "queue.i.valid.eq(self.i.valid)", "queue.i.valid.eq(self.i.valid & ~self.o.valid)"),
    ("tickets are counted as they are placed",
     "follow(m, self.placed, self.placed_ticket)", "follow(m, self.placed, self.placed_ticket + 1)"),
    ("an offered item is stable", "self.o.ready & self.o.valid)", "self.o.valid)"),
    ("no report before its packet was placed", "(due | ~behind[-1])", "1"),
    ("no deadlock: a report whose packets were placed is offered", "due | ~behind[-1]", "due & ~behind[-1]"),
]) + faulty(ReporterSpec, [
    ("reports of source 0 leave in order, each once",
     "queue.o.ready.eq(out.i.ready & first)", "queue.o.ready.eq(out.i.ready)"),
    ("reports of source 1 leave in order, each once",
     "others.o.ready.eq(out.i.ready & ~first)", "others.o.ready.eq(out.i.ready)"),
    ("reports of source 1 leave in order, each once",
     "queue.o.ready.eq(others.i[k - 1].ready & due)", "queue.o.ready.eq(others.i[k - 1].ready)"),
    ("reports of source 2 leave in order, each once",
     "others.i[k - 1].valid.eq(queue.o.valid & due)", "others.i[k - 1].valid.eq(due)"),
    ("the queue holds the reports that arrived and did not leave",
     "queue.i.valid.eq(source.valid)", "queue.i.valid.eq(source.valid & ~out.o.valid)"),
    ("the queue holds the reports that arrived and did not leave",
     "ticket + ~self.placed_ticket", "ticket - self.placed_ticket"),
    ("the queue holds the reports that arrived and did not leave", "[at.eq(after), ", "[at.eq(after + 1), "),
    ("every report has a source", "others.i[k - 1].payload.eq(queue.o.p)",
     "others.i[k - 1].payload.eq(queue.o.p | 24)"),
    ("an offered item is stable", "out.o.ready.eq(self.o.ready)", "out.o.ready.eq(1)"),
    ("no report before its packet was placed", "return due", "return 1"),
    ("no deadlock: a report whose packets were placed is offered",
     "out.i.valid.eq(first | others.o.valid)", "out.i.valid.eq(first)"),
])
