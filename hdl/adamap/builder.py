"""Collects lost PSNs into Adamap nodes, each in the encoding that holds most of them."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import abi
from ..layouts import NODE, REPORT_NODE, HoleRun, Report
from ..params import CardParams

SPAN = 1 << abi.OFFSET_BITS


class Draft(data.Struct):
    """A node being built, in every encoding that can still hold it."""

    base: 32
    count: 9
    end: 32             # offset behind the last hole
    runs: 4
    list_fits: 1
    runs_fit: 1
    bitmap_fits: 1
    list_body: abi.NODE_BODY_BITS
    runs_body: abi.NODE_BODY_BITS
    bitmap_body: abi.NODE_BODY_BITS


class NodeBuilder(wiring.Component):
    """Pool of unsealed nodes, shared by all QPs.

    A node takes holes as long as one encoding can hold them all, so it holds as many as any encoding allows.
    It is sealed when the next hole fits no encoding, at 320 holes, by ``seal``, at the configured age, or, the
    oldest one, when another QP needs its place. A run takes 5 cycles, plus 2 for every node it seals.

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

        tag_shape = data.StructLayout({"qpn": 24, "generation": 8, "since": 32})
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
        grown, piece = self._grow(m, draft, run)
        m.d.comb += [write.addr.eq(slot), write.data.eq(draft), read.addr.eq(hit_slot), read.en.eq(1)]
        m.d.comb += self.idle.eq((used == 0) & ~held & ~self.i.valid & ~self.o.valid)

        def open_draft():
            encodings = self.params.node_encodings
            m.d.sync += draft.eq(Draft.const({
                "list_fits": "LIST" in encodings, "runs_fit": "RUNS" in encodings, "bitmap_fits": "BITMAP" in encodings,
            }))
            m.d.sync += [draft.base.eq(run.psn), tags[slot].since.eq(self.time_ns), tags[slot].qpn.eq(run.qpn),
                         tags[slot].generation.eq(run.generation)]

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
                m.d.sync += draft.eq(read.data)
                m.next = "MEASURE"
                with m.If(run.length == 0):
                    m.next = "SEAL"
                    with m.If(~run.seal):
                        m.d.comb += [self.discarded.eq(1), freeing.eq(1)]
                        m.d.sync += held.eq(0)
                        m.next = "IDLE"
            with m.State("LOAD_OLDEST"):  # takes the oldest node from memory to seal it
                m.d.sync += draft.eq(read.data)
                m.next = "SEAL"
            with m.State("MEASURE"):  # how much of the run fits is being found
                m.next = "GROW"
            with m.State("GROW"):  # adds as much of the run as fits
                with m.If(piece == 0):
                    m.next = "SEAL"
                with m.Else():
                    m.d.comb += [write.data.eq(grown), write.en.eq(1)]
                    m.d.sync += [draft.eq(grown), run.psn.eq(run.psn + piece), run.length.eq(run.length - piece)]
                    m.next = "MEASURE"
                    with m.If((grown.count == abi.NODE_HOLES_MAX) | ((run.length == piece) & run.seal)):
                        m.next = "SEAL"
                    with m.Elif(run.length == piece):
                        m.d.sync += held.eq(0)
                        m.next = "IDLE"
            with m.State("SEAL"):  # waits for the report's place
                with m.If(~self.o.valid | self.o.ready):
                    self._report(m, draft, tags[slot])
                    m.d.comb += [freeing.eq(1), self.count_nodes_sealed.eq(1)]
                    with m.If((run.length == 0) & found_by(run, tags[slot])):
                        m.d.sync += held.eq(0)
                    m.next = "IDLE"
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.count_nodes_sealed):
            m.d.sync += self.o.valid.eq(1)
        return m

    def _report(self, m, draft, tag):
        """Load the output with a sealed draft."""
        node, header = Signal(NODE), Signal(REPORT_NODE)
        m.d.comb += [
            node.qpn.eq(tag.qpn),
            node.generation.eq(tag.generation),
            node.count.eq(draft.count),
            node.base_psn.eq(draft.base),
            header.kind.eq(abi.ReportKind.NODE.value),
            header.node.eq(node.as_value()[64:]),
        ]
        with m.If(draft.list_fits):
            m.d.comb += [node.encoding.eq(abi.Encoding.LIST.value), node.body.eq(draft.list_body)]
        with m.Elif(draft.runs_fit):
            m.d.comb += [node.encoding.eq(abi.Encoding.RUNS.value), node.body.eq(draft.runs_body)]
        with m.Else():
            m.d.comb += [node.encoding.eq(abi.Encoding.BITMAP.value), node.body.eq(draft.bitmap_body)]
        m.d.sync += [self.o.p.entry.eq(header), self.o.p.ticket.eq(self.placed_ticket)]

    def _grow(self, m, draft, run):
        """The draft with as much of the run as fits, and how much; one cycle after both stand still."""
        offset, merge, far = Signal(32), Signal(), Signal()
        in_list, in_runs, in_bitmap = (
            Signal(range(SPAN + 1), name=name) for name in ("in_list", "in_runs", "in_bitmap")
        )
        left = abi.NODE_HOLES_MAX - draft.count
        m.d.comb += [
            offset.eq(run.psn - draft.base),
            merge.eq((draft.count != 0) & (offset == draft.end)),
            far.eq(offset >= SPAN),
        ]
        with m.If(draft.list_fits & ~far & (draft.count < abi.LIST_HOLES)):
            m.d.comb += in_list.eq(
                Mux(
                    SPAN - offset < abi.LIST_HOLES - draft.count,
                    (SPAN - offset)[:17],
                    (abi.LIST_HOLES - draft.count)[:5],
                )
            )
        with m.If(draft.runs_fit & (merge | ((draft.runs < abi.RUNS_MAX) & ~far))):
            m.d.comb += in_runs.eq(left)
        with m.If(draft.bitmap_fits & (offset < abi.NODE_BODY_BITS)):
            m.d.comb += in_bitmap.eq(abi.NODE_BODY_BITS - offset)

        piece, list_left, runs_left, bitmap_left = (
            Signal(9, name=name) for name in ("piece", "list_left", "runs_left", "bitmap_left")
        )
        most = Mux(in_list > in_runs, in_list, in_runs)
        most = Mux(most > in_bitmap, most, in_bitmap)
        m.d.sync += [
            piece.eq(Mux(run.length < most, run.length, most)),
            list_left.eq(in_list),
            runs_left.eq(in_runs),
            bitmap_left.eq(in_bitmap),
        ]

        grown = Signal(Draft)
        first = (offset - draft.count)[:abi.OFFSET_BITS]  # entry i of the list is `first + i`
        m.d.comb += [
            grown.eq(draft),
            grown.count.eq(draft.count + piece), grown.end.eq(offset + piece),
            grown.list_fits.eq(draft.list_fits & (piece <= list_left)),
            grown.runs_fit.eq(draft.runs_fit & (piece <= runs_left)),
            grown.bitmap_fits.eq(draft.bitmap_fits & (piece <= bitmap_left)),
            grown.bitmap_body.eq(draft.bitmap_body | (((Const(1, 1) << piece) - 1)[:abi.NODE_BODY_BITS] << offset[:9])),
        ]
        for k in range(abi.LIST_HOLES):
            with m.If((k >= draft.count) & (k < draft.count + piece)):
                m.d.comb += grown.list_body.word_select(k, abi.OFFSET_BITS).eq(first + k)
        for k in range(abi.RUNS_MAX):
            word = grown.runs_body.word_select(k, 2 * abi.OFFSET_BITS)
            with m.If(merge & (draft.runs == k + 1)):
                m.d.comb += word[abi.OFFSET_BITS :].eq(
                    draft.runs_body.word_select(k, 2 * abi.OFFSET_BITS)[abi.OFFSET_BITS :] + piece
                )
            with m.If(~merge & (draft.runs == k)):
                m.d.comb += word.eq(Cat(offset[:abi.OFFSET_BITS], piece))
        with m.If(~merge):
            m.d.comb += grown.runs.eq(Mux(draft.runs == abi.RUNS_MAX, abi.RUNS_MAX, draft.runs + 1))
        return grown, piece


def found_by(run, tag):
    """Whether a place belongs to the run's QP."""
    return (run.qpn == tag.qpn) & (run.generation == tag.generation)
