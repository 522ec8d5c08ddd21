"""What is proven of the way of reports to the Meta Report ring: none is lost, doubled, overtaken, or too early.

With the lane of the retirements before it (``spec_retire``) and the ring writer behind it (``spec_ring_writer``) this
is the whole way that a block takes back to the driver.
"""

from amaranth.hdl import Array, Cat, Const, Signal

from weft.hdl.adamap.hold import ReportHold
from weft.hdl.params import preset
from weft.hdl.report import Reporter
from weft.tb.proof.broken import Broken
from weft.tb.proof.specification import Spec

SOURCE_BITS = 2
AHEAD_BITS = 3          # how far tickets may be ahead of what was placed
LATENCY = 4
TICKET_BITS = 8         # of the bench's own tickets: more than are placed in a run
FOREVER = {"kind": "unbounded", "seconds": 300}


class ReturnPathSpec(Spec):
    """Numbered reports, with tickets up to 7 ahead of what was placed, taken at will; a cycle places up to 3 packets.

    Attributes
    ----------
    number_bits : int
        Numbers more reports of a source than there are places on the way.
    ticketed : tuple of bool
        Of every source, whether its reports wait for their tickets.
    """

    def specify(self, m):
        bits = self.number_bits
        m.submodules.dut = dut = self.make()
        sources = self.sources(dut)
        placed, advance = Signal(TICKET_BITS), self.free(2, "advance")
        m.d.sync += placed.eq(placed + advance)
        m.d.comb += [dut.placed_ticket.eq(placed), dut.o.ready.eq(self.free(1, "taken"))]
        entry = getattr(dut.o.p, "entry", dut.o.p)
        number, source = entry[:bits], entry[bits:bits + SOURCE_BITS]
        followed = self.constant(m, bits, "followed")
        counts, due = [], []
        for k, i in enumerate(sources):
            came, left, ticket, its = (Signal(width, name=f"{name}{k}") for name, width in (
                ("came", bits), ("left", bits), ("ticket", TICKET_BITS), ("due", TICKET_BITS)))
            m.d.comb += [
                ticket.eq(placed + self.free(AHEAD_BITS, f"ahead{k}")), i.valid.eq(self.free(1, f"send{k}")),
                i.p.ticket.eq(ticket), i.p.entry.eq(Cat(came, Const(k, SOURCE_BITS))),
            ]
            with m.If(i.valid & i.ready):
                m.d.sync += came.eq(came + 1)
                with m.If(came == followed):
                    m.d.sync += its.eq(ticket)
            with m.If(dut.o.valid & dut.o.ready & (source == k)):
                m.d.sync += left.eq(left + 1)
            self.check(f"reports of source {k} leave in order, each once",
                       ~dut.o.valid | (source != k) | ((number == left) & (came != left)), **FOREVER)
            counts.append((came, left))
            due.append(its)
        if len(sources) > 1:
            self.check("no report of no source", ~dut.o.valid | (source < len(sources)), **FOREVER)
        waited, kept = Signal(), Signal(len(number) + len(source))
        m.d.sync += [waited.eq(dut.o.valid & ~dut.o.ready), kept.eq(Cat(number, source))]
        self.check("what is offered stays", ~waited | (dut.o.valid & (kept == Cat(number, source))), **FOREVER)
        counted = Array(Const(ticketed, 1) for ticketed in self.ticketed)[source]
        early = (placed - Array(due)[source])[TICKET_BITS - 1]
        self.check("no report before its packet was placed",
                   ~(dut.o.valid & (number == followed) & counted & early), bound=self.bound, seconds=900)
        held, idle = Signal(), Signal(range(1 << AHEAD_BITS + 1))
        m.d.comb += held.eq(Cat(came != left for came, left in counts).any())
        with m.If(dut.o.valid | ~held):
            m.d.sync += idle.eq(0)
        with m.Else():
            m.d.sync += idle.eq(idle + (advance != 0))
        self.check("no deadlock: when what it waits for was placed, a report is offered",
                   idle < (1 << AHEAD_BITS) + LATENCY, bound=self.calm_bound)
        self.cover("a report waits for its packet", held & ~dut.o.valid & (idle == (1 << AHEAD_BITS) - 1))
        self.cover("a place is used a second time", Cat(left > self.places for _, left in counts).any())
        self.cover("a source has to wait", Cat(i.valid & ~i.ready for i in sources).any())


class HoldSpec(ReturnPathSpec):
    """Between the retirement lane and the merge of the Adamap room's reports.

    Order is proven for runs of any length. That none is early, and that none waits for ever, in 24 cycles: a report may
    wait 8 cycles for its packet, and in 6 a place is used a second time. The bench's tickets have 8 bits, as the
    card's; up to 72 are placed in those cycles, so none comes round.
    """

    name = "report_hold"
    block = ReportHold
    number_bits, ticketed, places, bound, calm_bound = 3, (True,), 4, 24, 24

    def make(self):
        return self.block()

    def sources(self, dut):
        return [dut.i]


class ReporterSpec(ReturnPathSpec):
    """The merge of all reports of the card, here of three sources, 4 places each; the last has no tickets.

    Order is proven for runs of any length; that no report is early in 13 cycles: a report waits for its packet in 8, a
    place is used a second time in 7. That none waits for ever, 12 cycles at the most, in 17.
    """

    name = "reporter"
    block = Reporter
    number_bits, ticketed, places, bound, calm_bound = 3, (True, True, False), 4, 13, 17

    def make(self):
        return self.block(preset("test"), len(self.ticketed), unticketed=[2], first_depth=self.places)

    def sources(self, dut):
        return list(dut.i)


SPECS = [HoldSpec, ReporterSpec]
BROKEN = [
    Broken(HoldSpec, "reports of source 0 leave in order, each once",
           ("self.o.ready & self.o.valid)", "self.o.ready)")),
    Broken(HoldSpec, "what is offered stays", ("self.o.ready & self.o.valid)", "self.o.valid)")),
    Broken(HoldSpec, "no report before its packet was placed", ("(due | ~behind[-1])", "1")),
    Broken(HoldSpec, "no deadlock: when what it waits for was placed, a report is offered",
           ("due | ~behind[-1]", "due & ~behind[-1]")),
    Broken(ReporterSpec, "reports of source 0 leave in order, each once",
           ("queue.o.ready.eq(out.i.ready & first)", "queue.o.ready.eq(out.i.ready)")),
    Broken(ReporterSpec, "reports of source 1 leave in order, each once",
           ("others.o.ready.eq(out.i.ready & ~first)", "others.o.ready.eq(out.i.ready)")),
    Broken(ReporterSpec, "reports of source 1 leave in order, each once",
           ("queue.o.ready.eq(others.i[k - 1].ready & due)", "queue.o.ready.eq(others.i[k - 1].ready)")),
    Broken(ReporterSpec, "reports of source 2 leave in order, each once",
           ("others.i[k - 1].valid.eq(queue.o.valid & due)", "others.i[k - 1].valid.eq(due)")),
    Broken(ReporterSpec, "no report of no source",
           ("others.i[k - 1].payload.eq(queue.o.p.entry)", "others.i[k - 1].payload.eq(queue.o.p.entry | 24)")),
    Broken(ReporterSpec, "what is offered stays", ("out.o.ready.eq(self.o.ready)", "out.o.ready.eq(1)")),
    Broken(ReporterSpec, "no report before its packet was placed", ("due = ~behind[-1]", "due = 1")),
    Broken(ReporterSpec, "no deadlock: when what it waits for was placed, a report is offered",
           ("out.i.valid.eq(first | others.o.valid)", "out.i.valid.eq(first)")),
]
