"""Collects lost PSNs into Adamap nodes, each in the encoding that holds most of them."""

from functools import reduce

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import abi
from ..layouts import NODE, REPORT_NODE, HoleRun, Report
from ..params import CardParams
from .head_cache import COUNT_WIDTH, ENCODING_WIDTH

SPAN = 1 << abi.OFFSET_BITS
RUN_BITS = 2 * abi.OFFSET_BITS


class Draft(data.Struct):
    """A node being built, in the first encoding that can hold it; the counters say which one that is."""

    base: 32
    count: range(abi.NODE_HOLES_MAX + 1)
    end: range(SPAN + abi.RUNS_HOLES + 1)   # offset behind the last hole
    runs: range(abi.RUNS_MAX + 2)           # stays at one more than the encoding RUNS can hold
    body: abi.NODE_BODY_BITS


class Counts(data.Struct):
    """The counters of a draft."""

    count: range(abi.NODE_HOLES_MAX + 1)
    end: range(SPAN + abi.RUNS_HOLES + 1)
    runs: range(abi.RUNS_MAX + 2)


class Piece(data.Struct):
    """Consecutive holes of a node."""

    offset: abi.OFFSET_BITS + 1
    length: COUNT_WIDTH


class NodeBuilder(wiring.Component):
    """Pool of unsealed nodes, shared by all QPs.

    A node takes holes as long as one encoding can hold them all, so it holds as many as any encoding allows.
    It is sealed when the next hole fits no encoding, at 320 holes, by ``seal``, at the configured age, or, the
    oldest one, when another QP needs its place.

    A place holds one body, in the encoding that comes first of those that still fit: LIST, RUNS, BITMAP. When holes
    come that only a later one can hold, the entries of the body are put into a new one, one per cycle.

    A run takes 5 cycles, plus 2 for every node it seals. A change of the encoding takes one cycle more and one for
    each entry: 21 at most (20 holes of a list), and 11 from runs to a bitmap; that is at most twice per node.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(HoleRun))
        In PSN order per QP. Length 0 with ``seal`` only seals, without it discards the QP's node.
    o : Out(stream.Signature(Report))
        Kind NODE. The ticket is ``placed_ticket``: a node speaks of nothing that was received.
    placed_ticket : In(8)
    time_ns : In(64)
    node_age_ns : In(32)
    discarded : Out(1)
        A discard took effect.
    count_nodes_sealed : Out(1)
    idle : Out(1)
        No node is open and nothing is coming in.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(HoleRun)),
            "o": Out(stream.Signature(Report)),
            "placed_ticket": In(8), "time_ns": In(64), "node_age_ns": In(32),
            "discarded": Out(1), "count_nodes_sealed": Out(1), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        n = self.params.builder_slots
        m.submodules.drafts = drafts = Memory(shape=Draft, depth=n, init=[])
        read, write = drafts.read_port(), drafts.write_port()

        tag_shape = data.StructLayout({"qpn": self.params.qpn_width, "generation": 8, "since": 32})
        tags = Array(Signal(tag_shape, name=f"tag{k}") for k in range(n))
        # A permutation of the places: the first `used` are open, oldest first; the others are free.
        order = Array(Signal(range(n), name=f"order{k}", init=k) for k in range(n))
        used = Signal(range(n + 1))
        oldest = order[0]
        expired = Signal()
        freeing = Signal()
        # Not right after a place was given back: `oldest` is another one then.
        m.d.sync += expired.eq(
            ~freeing & (used != 0) & ((self.time_ns[:32] - tags[oldest].since)[:32] >= self.node_age_ns)
        )

        run, held = Signal(HoleRun), Signal()
        slot, found = Signal(range(n)), Signal()
        hit, hit_slot = Signal(), Signal(range(n))
        for k in range(n):
            tag = tags[order[k]]
            with m.If((k < used) & (tag.qpn == run.qpn) & (tag.generation == run.generation)):
                m.d.comb += [hit.eq(1), hit_slot.eq(order[k])]
        draft = Signal(Draft)
        encoding = Signal(ENCODING_WIDTH)       # of the draft's body
        measuring, changing = Signal(), Signal()
        piece = self._measure(m, draft, run, measuring)
        # A body whose encoding changes: what is left of it, its first entry, and whether there is another.
        source, left, entry = Signal(abi.NODE_BODY_BITS), Signal(range(abi.LIST_HOLES + 1)), Signal(Piece)
        of_list = Signal()
        m.d.comb += [entry.offset.eq(source[:abi.OFFSET_BITS]),
                     entry.length.eq(Mux(of_list, 1, source[abi.OFFSET_BITS:RUN_BITS]))]
        added, wanted = Signal(Piece), Signal(ENCODING_WIDTH)
        counts, merge = self._count(m, draft, added)
        m.d.comb += [added.eq(Mux(changing, entry.as_value(), piece.as_value())), wanted.eq(self._encoding(counts))]
        grown = self._grow(m, draft, added, counts, merge, Mux(changing, encoding, wanted))
        m.d.comb += [write.addr.eq(slot), write.data.eq(draft), read.addr.eq(hit_slot), read.en.eq(1)]
        m.d.comb += self.idle.eq((used == 0) & ~held & ~self.i.valid & ~self.o.valid)

        def open_draft():
            m.d.sync += [draft.eq(0), draft.base.eq(run.psn), tags[slot].since.eq(self.time_ns),
                         tags[slot].qpn.eq(run.qpn), tags[slot].generation.eq(run.generation)]

        def load_draft():
            m.d.sync += [draft.eq(read.data), encoding.eq(self._encoding(read.data))]

        def release():
            """Give the place back: it moves to the end of the order."""
            for k in range(n):
                passed = Signal(name=f"passed{k}")
                m.d.comb += passed.eq(Cat(order[j] == slot for j in range(k + 1)).any())
                if k + 1 < n:
                    with m.If(passed):
                        m.d.sync += order[k].eq(order[k + 1])
            m.d.sync += [order[n - 1].eq(slot), used.eq(used - 1)]

        with m.If(freeing):
            release()

        with m.FSM():
            with m.State("IDLE"):  # waits for a run, or for the oldest node to come of age
                with m.If(expired):
                    m.d.comb += read.addr.eq(oldest)
                    m.d.sync += slot.eq(oldest)
                    m.next = "LOAD_OLDEST"
                with m.Elif(held):
                    m.next = "LOOKUP"
                with m.Else():
                    m.d.comb += self.i.ready.eq(1)
                    m.d.sync += run.eq(self.i.payload)
                    with m.If(self.i.valid):
                        m.d.sync += held.eq(1)
                        m.next = "LOOKUP"
            with m.State("LOOKUP"):  # finds the QP's node, or a place for it
                m.d.sync += [found.eq(hit), slot.eq(hit_slot)]
                with m.If(hit):
                    m.next = "LOAD"
                with m.Elif(run.length == 0):
                    m.d.sync += held.eq(0)
                    m.d.comb += self.discarded.eq(~run.seal)
                    m.next = "IDLE"
                with m.Elif(used == n):
                    m.d.comb += read.addr.eq(oldest)
                    m.d.sync += slot.eq(oldest)
                    m.next = "LOAD_OLDEST"
                with m.Else():
                    m.d.sync += [slot.eq(order[used[:len(oldest)]]), used.eq(used + 1)]
                    m.next = "OPEN"
            with m.State("OPEN"):  # starts a node at the run
                open_draft()
                m.next = "MEASURE"
            with m.State("LOAD"):  # takes the QP's node from memory
                load_draft()
                m.next = "MEASURE"
                with m.If(run.length == 0):
                    m.next = "SEAL"
                    with m.If(~run.seal):
                        m.d.comb += [self.discarded.eq(1), freeing.eq(1)]
                        m.d.sync += held.eq(0)
                        m.next = "IDLE"
            with m.State("LOAD_OLDEST"):  # takes the oldest node from memory to seal it
                load_draft()
                m.next = "SEAL"
            with m.State("MEASURE"):  # how much of the run fits is being found
                m.d.comb += measuring.eq(1)
                m.next = "GROW"
            with m.State("GROW"):  # adds as much of the run as fits
                is_list = encoding == abi.Encoding.LIST.value
                with m.If(piece.length == 0):
                    m.next = "SEAL"
                with m.Elif((draft.count != 0) & (wanted != encoding)):
                    m.d.sync += [
                        source.eq(draft.body), left.eq(Mux(is_list, draft.count, draft.runs)), of_list.eq(is_list),
                        encoding.eq(wanted), draft.eq(0), draft.base.eq(draft.base),
                    ]
                    m.next = "CHANGE"
                with m.Else():
                    m.d.comb += [write.data.eq(grown), write.en.eq(1)]
                    m.d.sync += [draft.eq(grown), encoding.eq(wanted), run.psn.eq(run.psn + piece.length),
                                 run.length.eq(run.length - piece.length)]
                    m.next = "MEASURE"
                    with m.If((grown.count == abi.NODE_HOLES_MAX) | ((run.length == piece.length) & run.seal)):
                        m.next = "SEAL"
                    with m.Elif(run.length == piece.length):
                        m.d.sync += held.eq(0)
                        m.next = "IDLE"
            with m.State("CHANGE"):  # puts the entries of the body into one of another encoding
                m.d.comb += changing.eq(1)
                m.d.sync += [draft.eq(grown), left.eq(left - 1),
                             source.eq(Mux(of_list, source >> abi.OFFSET_BITS, source >> RUN_BITS))]
                with m.If(left == 1):
                    m.next = "GROW"
            with m.State("SEAL"):  # waits for the report's place
                with m.If(~self.o.valid | self.o.ready):
                    self._report(m, draft, tags[slot], encoding)
                    m.d.comb += [freeing.eq(1), self.count_nodes_sealed.eq(1)]
                    with m.If((run.length == 0) & found_by(run, tags[slot])):
                        m.d.sync += held.eq(0)
                    m.next = "IDLE"
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.count_nodes_sealed):
            m.d.sync += self.o.valid.eq(1)
        return m

    def _report(self, m, draft, tag, encoding):
        """Load the output with a sealed draft."""
        node, header = Signal(NODE), Signal(REPORT_NODE)
        m.d.comb += [
            node.qpn.eq(tag.qpn),
            node.generation.eq(tag.generation),
            node.count.eq(draft.count),
            node.encoding.eq(encoding),
            node.base_psn.eq(draft.base),
            node.body.eq(draft.body),
            header.kind.eq(abi.ReportKind.NODE.value),
            header.node.eq(node.as_value()[64:]),
        ]
        m.d.sync += [self.o.p.entry.eq(header), self.o.p.ticket.eq(self.placed_ticket)]

    def _measure(self, m, draft, run, measuring):
        """As much of the run as fits the draft, a cycle after ``measuring``."""
        offset, merge, far, piece = Signal(32), Signal(), Signal(), Signal(Piece)
        fitting = {name: Signal(range(SPAN + 1), name=f"in_{name.lower()}") for name in self.params.node_encodings}
        m.d.comb += [
            offset.eq(run.psn - draft.base),
            merge.eq((draft.count != 0) & (offset == draft.end)),
            far.eq(offset >= SPAN),
        ]
        if "LIST" in fitting:
            places, space = (abi.LIST_HOLES - draft.count)[:5], (SPAN - offset)[:17]
            with m.If(~far & (draft.count < abi.LIST_HOLES)):
                m.d.comb += fitting["LIST"].eq(Mux(space < places, space, places))
        if "RUNS" in fitting:
            place = Mux(merge, draft.runs <= abi.RUNS_MAX, (draft.runs < abi.RUNS_MAX) & ~far)
            with m.If(place & (draft.count < abi.RUNS_HOLES)):
                m.d.comb += fitting["RUNS"].eq((abi.RUNS_HOLES - draft.count)[:7])
        if "BITMAP" in fitting:
            with m.If(offset < abi.NODE_BODY_BITS):
                m.d.comb += fitting["BITMAP"].eq(abi.NODE_BODY_BITS - offset)
        most = reduce(lambda a, b: Mux(a > b, a, b), fitting.values())
        with m.If(measuring):
            m.d.sync += [piece.offset.eq(offset), piece.length.eq(Mux(run.length < most, run.length, most))]
        return piece

    def _count(self, m, draft, piece):
        """The counters of the draft with a piece, and whether that continues the last run."""
        counts, merge = Signal(Counts), Signal()
        m.d.comb += [
            merge.eq((draft.count != 0) & (piece.offset == draft.end)),
            counts.count.eq(draft.count + piece.length), counts.end.eq(piece.offset + piece.length),
        ]
        with m.If(~merge & (draft.runs <= abi.RUNS_MAX)):
            m.d.comb += counts.runs.eq(draft.runs + 1)
        with m.Else():
            m.d.comb += counts.runs.eq(draft.runs)
        return counts, merge

    def _grow(self, m, draft, piece, counts, merge, encoding):
        """The draft with a piece that fits, its body in the encoding given."""
        grown = Signal(Draft)
        first = (piece.offset - draft.count)[:abi.OFFSET_BITS]  # entry i of the list is `first + i`
        m.d.comb += [grown.eq(draft), grown.count.eq(counts.count), grown.end.eq(counts.end),
                     grown.runs.eq(counts.runs)]
        with m.Switch(encoding):
            with m.Case(abi.Encoding.LIST.value):
                for k in range(abi.LIST_HOLES):
                    with m.If((k >= draft.count) & (k < draft.count + piece.length)):
                        m.d.comb += grown.body.word_select(k, abi.OFFSET_BITS).eq(first + k)
            with m.Case(abi.Encoding.RUNS.value):
                for k in range(abi.RUNS_MAX):
                    word, old = (body.word_select(k, RUN_BITS) for body in (grown.body, draft.body))
                    with m.If(merge & (draft.runs == k + 1)):
                        m.d.comb += word[abi.OFFSET_BITS:].eq(old[abi.OFFSET_BITS:] + piece.length)
                    with m.If(~merge & (draft.runs == k)):
                        m.d.comb += word.eq(Cat(piece.offset[:abi.OFFSET_BITS], piece.length))
            with m.Default():
                ones = ((Const(1, 1) << piece.length) - 1)[:abi.NODE_BODY_BITS]
                m.d.comb += grown.body.eq(draft.body | (ones << piece.offset[:COUNT_WIDTH]))
        return grown

    def _encoding(self, draft):
        """The first encoding that can hold a draft, if any can."""
        found = None
        for name in reversed(self.params.node_encodings):
            fits = {
                "LIST": (draft.count <= abi.LIST_HOLES) & (draft.end <= SPAN),
                "RUNS": (draft.count <= abi.RUNS_HOLES) & (draft.runs <= abi.RUNS_MAX),
                "BITMAP": Const(1),
            }[name]
            code = Const(abi.Encoding[name].value, ENCODING_WIDTH)
            found = code if found is None else Mux(fits, code, found)
        return found


def found_by(run, tag):
    """Whether a place belongs to the run's QP."""
    return (run.qpn == tag.qpn) & (run.generation == tag.generation)
