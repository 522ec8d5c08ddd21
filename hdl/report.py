"""Merge of all reports into the Meta Report ring, ordered after the data that they refer to."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .contract.abi import Reason, ReportKind
from .contract.params import CardParams, exact_log2
from .part.arbiter import Arbiter
from .part.counter_ports import count_outputs
from .part.layouts import BEAT_BITS, REPORT_EVENT, TICKET_WIDTH, Report
from .part.logic import one_hot
from .part.stages import PipelineRegister
from .part.stream import Fifo

FIRST_DEPTH = 16              # queue entries of source 0, the receive path
DEPTH = 4                     # queue entries of each other source
SPACE = 4


class Reporter(wiring.Component):
    """Merge of report sources; an entry waits until the packet of its ticket was placed.

    Source 0 has priority, the others alternate: so the events of a packet come in the ring before a
    retirement that the same packet caused, which its source releases only when the packet is placed.
    One report per cycle, latency 2 when nothing waits, 3 for sources other than the first. Reports of one
    source keep their order; a source whose head waits blocks no other source. Tickets on ``i`` must be
    within 127 of ``placed_ticket``.

    Parameters
    ----------
    params : CardParams
    n : int
        Number of sources. Source 0 is the receive path.
    unticketed : iterable of int
        Sources whose reports refer to no received packet: their ``ticket`` is ignored.
    first_depth : int
        Queue entries of source 0, a power of two.

    Members
    -------
    i : In(stream.Signature(Report)).array(n)
    placed_ticket : In(8)
        Newest ticket whose payload, and that of all before it, was accepted by ``DmaWrite``.
    o : Out(stream.Signature(512))
        Entries without phase, for the ring writer.
    drop_report : Out(1)
        The entry that is transferred at ``o`` reports a dropped packet: ERROR, or PROBE with a reason.
    space : Out(1)
        Source 0 has at least 4 free queue entries. Registered.
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
        exact_log2(first_depth)     # raises ValueError unless a power of two
        if not self.unticketed <= set(range(n)):
            raise ValueError(f"unticketed sources {sorted(self.unticketed)}; there are {n}")
        super().__init__({
            "i": In(stream.Signature(Report)).array(n),
            "placed_ticket": In(TICKET_WIDTH),
            "o": Out(stream.Signature(BEAT_BITS)),
            "drop_report": Out(1),
            "space": Out(1),
            "idle": Out(1),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        event = data.View(REPORT_EVENT, self.o.payload)
        m.submodules.out = out = PipelineRegister(BEAT_BITS)
        m.submodules.others = others = Arbiter(BEAT_BITS, max(1, self.n - 1))
        idle = ~out.o.valid & ~others.o.valid
        for k, source in enumerate(self.i):
            m.submodules[f"queue_{k}"] = queue = Fifo(BEAT_BITS, DEPTH if k else self.first_depth)
            m.d.comb += [
                queue.i.p.eq(source.p.entry),
                queue.i.valid.eq(source.valid),
                source.ready.eq(queue.i.ready),
            ]
            if k in self.unticketed:
                due = 1
            else:
                due = self._due(m, queue, source.p.ticket, k)
            idle &= ~queue.o.valid
            if k:
                m.d.comb += [
                    others.i[k - 1].payload.eq(queue.o.p),
                    others.i[k - 1].valid.eq(queue.o.valid & due),
                    queue.o.ready.eq(others.i[k - 1].ready & due),
                ]
            else:
                first = Signal()
                m.d.comb += [first.eq(queue.o.valid & due), queue.o.ready.eq(out.i.ready & first)]
                m.d.comb += out.i.payload.eq(Mux(first, queue.o.p, others.o.payload))
                m.d.sync += self.space.eq(queue.free >= SPACE)

        m.d.comb += [
            out.i.valid.eq(first | others.o.valid),
            others.o.ready.eq(out.i.ready & ~first),
            self.o.payload.eq(out.o.payload),
            self.o.valid.eq(out.o.valid),
            out.o.ready.eq(self.o.ready),
            self.count_reports.eq(self.o.valid & self.o.ready),
            self.drop_report.eq(self.count_reports & ((event.kind == ReportKind.ERROR) | (
                (event.kind == ReportKind.PROBE) & (event.reason != Reason.OK)))),
            self.idle.eq(idle),
        ]
        return m

    def _due(self, m, queue, ticket, k):
        """Return whether the packet of a queue's first report was placed, registered.

        The state is kept for every queue entry, and selected a cycle ahead. A ticket is at most 127 ahead of the placed
        one until it is due; it stays due.
        """
        into, at = Signal(range(queue.depth), name=f"into_{k}"), Signal(range(queue.depth), name=f"at_{k}")
        after = Signal(range(queue.depth), name=f"after_{k}", init=1)
        waiting, waits = Signal(queue.depth, name=f"waiting_{k}"), Signal(queue.depth, name=f"waits_{k}")
        due = Signal(name=f"due_{k}", init=1)
        put = one_hot(queue.i.valid & queue.i.ready, into, queue.depth)

        def ahead(ticket, name):
            """Return whether a ticket is ahead of the placed one."""
            beyond = Signal(TICKET_WIDTH, name=name)
            m.d.comb += beyond.eq(ticket + ~self.placed_ticket)      # one less than the distance
            return ~beyond[-1]

        with m.If(queue.i.valid & queue.i.ready):
            m.d.sync += into.eq(into + 1)
        with m.If(queue.o.valid & queue.o.ready):
            m.d.sync += [at.eq(after), after.eq(after + 1), due.eq(~waits.bit_select(after, 1))]
        with m.Else():
            m.d.sync += due.eq(~waits.bit_select(at, 1))
        m.d.sync += waiting.eq(waits)
        new = ahead(ticket, f"beyond_{k}")
        for place in range(queue.depth):
            held = Signal(TICKET_WIDTH, name=f"ticket_{k}_{place}")
            with m.If(put[place]):
                m.d.sync += held.eq(ticket)
            m.d.comb += waits[place].eq(Mux(put[place], new,
                                            waiting[place] & ahead(held, f"beyond_{k}_{place}")))
        return due
