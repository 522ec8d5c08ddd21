"""Merges the reports of all blocks into the Meta Report ring, never ahead of the data they speak of."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .abi import Reason, ReportKind
from .counting import count_outputs
from .layouts import BEAT_BITS, REPORT_EVENT, TICKET_WIDTH, Report
from .params import CardParams
from .stream import Arbiter, Fifo, PipelineRegister
from .ticket import EXTENDED_TICKET_WIDTH, extended, follow

FIRST_DEPTH = 16              # places of source 0, the receive path
DEPTH = 4                     # places of each other source
SPACE = 4


class HeldReport(data.Struct):
    """A report whose ticket was extended, so that it may wait for as long as the ring is full."""

    entry: BEAT_BITS
    ticket: EXTENDED_TICKET_WIDTH


class Reporter(wiring.Component):
    """Merge of report sources; an entry waits until its ticket was placed.

    Source 0 goes first, the others take turns: so the events of a packet stand in the ring before a
    retirement that the same packet caused, which its source releases only when the packet is placed.
    One report per cycle, latency 2 when nothing waits, 3 for sources behind the first. Reports of one
    source keep their order; a source whose head waits blocks no other source. Tickets on ``i`` must lie
    within 127 of ``placed_ticket``.

    Parameters
    ----------
    params : CardParams
    n : int
        Sources. Source 0 is the receive path.
    unticketed : iterable of int
        Sources whose reports speak of no received packet: their ``ticket`` is ignored.
    first_depth : int
        Places of source 0.

    Members
    -------
    i : In(stream.Signature(Report)).array(n)
    placed_ticket : In(8)
        Newest ticket whose payload, and that of all before it, was accepted by ``DmaWrite``.
    o : Out(stream.Signature(512))
        Entries without phase, for the ring writer.
    refusal : Out(1)
        The entry that is being taken at ``o`` tells of a refused packet: ERROR, or PROBE with a reason.
    space : Out(1)
        Source 0 has at least 4 free places. Registered.
    idle : Out(1)
        No report is held.
    count_reports : Out(1)
        A report was passed on.
    """

    COUNTS = {"reports": 1}

    def __init__(self, params: CardParams, n, *, unticketed=(), first_depth=FIRST_DEPTH):
        if n < 1:
            raise ValueError("a reporter needs at least one source")
        self.params, self.n, self.unticketed, self.first_depth = params, n, frozenset(unticketed), first_depth
        if not self.unticketed <= set(range(n)):
            raise ValueError(f"unticketed sources {sorted(self.unticketed)}; there are {n}")
        super().__init__({
            "i": In(stream.Signature(Report)).array(n),
            "placed_ticket": In(TICKET_WIDTH),
            "o": Out(stream.Signature(BEAT_BITS)),
            "refusal": Out(1),
            "space": Out(1),
            "idle": Out(1),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        placed = Signal(EXTENDED_TICKET_WIDTH)
        follow(m, placed, self.placed_ticket)

        said = data.View(REPORT_EVENT, self.o.payload)
        m.submodules.out = out = PipelineRegister(BEAT_BITS)
        m.submodules.others = others = Arbiter(BEAT_BITS, max(1, self.n - 1))
        idle = ~out.o.valid & ~others.o.valid
        for k, source in enumerate(self.i):
            m.submodules[f"queue_{k}"] = queue = Fifo(HeldReport, DEPTH if k else self.first_depth)
            m.d.comb += [
                queue.i.p.entry.eq(source.p.entry),
                queue.i.p.ticket.eq(extended(m, placed, source.p.ticket, name=f"distance_{k}")),
                queue.i.valid.eq(source.valid),
                source.ready.eq(queue.i.ready),
            ]
            if k in self.unticketed:
                due = 1
            else:
                behind = Signal(EXTENDED_TICKET_WIDTH, name=f"behind_{k}")
                m.d.comb += behind.eq(placed - queue.o.p.ticket)
                due = ~behind[-1]
            idle &= ~queue.o.valid
            if k:
                m.d.comb += [
                    others.i[k - 1].payload.eq(queue.o.p.entry),
                    others.i[k - 1].valid.eq(queue.o.valid & due),
                    queue.o.ready.eq(others.i[k - 1].ready & due),
                ]
            else:
                first = Signal()
                m.d.comb += [first.eq(queue.o.valid & due), queue.o.ready.eq(out.i.ready & first)]
                m.d.comb += out.i.payload.eq(Mux(first, queue.o.p.entry, others.o.payload))
                m.d.sync += self.space.eq(queue.free >= SPACE)

        m.d.comb += [
            out.i.valid.eq(first | others.o.valid),
            others.o.ready.eq(out.i.ready & ~first),
            self.o.payload.eq(out.o.payload),
            self.o.valid.eq(out.o.valid),
            out.o.ready.eq(self.o.ready),
            self.count_reports.eq(self.o.valid & self.o.ready),
            self.refusal.eq(self.count_reports & ((said.kind == ReportKind.ERROR) | (
                (said.kind == ReportKind.PROBE) & (said.reason != Reason.OK)))),
            self.idle.eq(idle),
        ]
        return m
