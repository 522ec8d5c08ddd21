"""Collects lost PSNs into Adamap nodes, each in the encoding that holds most of them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import abi
from ..counting import count_outputs
from ..layouts import NODE, REPORT_NODE, HoleRun, Report
from ..params import CardParams
from .cached import ENCODING_WIDTH
from .draft import RUN_BITS, Draft, Growth, Piece, encoding_of
from .draft_places import DraftPlaces


class NodeBuilder(wiring.Component):
    """Pool of unsealed nodes, shared by all QPs.

    A node takes holes as long as one encoding can hold them all, so it holds as many as any encoding allows.
    It is sealed when the next hole fits no encoding, at 320 holes, by ``seal``, at the configured age, or, the
    oldest one, when another QP needs its place.

    A place holds one body, in the encoding that comes first of those that still fit: LIST, RUNS, BITMAP. When holes
    come that only a later one can hold, the entries of the body are put into a new one, one per cycle.

    A run takes 5 cycles where one follows the other, plus 3 for every node it seals. A change of the encoding takes
    one cycle more and one for each entry: 21 at most (20 holes of a list), and 11 from runs to a bitmap; that is at
    most twice per node.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(HoleRun))
        In PSN order per QP. Length 0 with ``seal`` only seals, without it discards the QP's node.
    o : Out(stream.Signature(Report))
        Kind NODE. It has no ticket: a node speaks of nothing that was received.
    time_ns : In(64)
    node_age_ns : In(32)
    discarded : Out(1)
        A discard took effect.
    count_nodes_sealed : Out(1)
    idle : Out(1)
        No node is open and nothing is coming in.
    """

    COUNTS = {"nodes_sealed": 1}

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(HoleRun)),
            "o": Out(stream.Signature(Report)),
            "time_ns": In(64), "node_age_ns": In(32),
            "discarded": Out(1), **count_outputs(self.COUNTS), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.drafts = drafts = Memory(shape=Draft, depth=p.builder_slots, init=[])
        read, write = drafts.read_port(), drafts.write_port()
        m.submodules.places = places = DraftPlaces(p)
        m.submodules.growth = growth = Growth(p)
        run, held = Signal(HoleRun), Signal()
        coming = Signal(HoleRun)        # of which LOOKUP is to be the next state
        only_ends = Signal()            # there are no holes in the run that was looked up
        m.d.comb += coming.eq(self.i.payload)
        slot, next_slot = Signal.like(places.slot), Signal.like(places.slot)
        m.d.comb += [next_slot.eq(slot), places.next_slot.eq(next_slot)]
        m.d.sync += slot.eq(next_slot)
        draft, offset = Signal(Draft), Signal(32)   # and that of the run in it
        encoding = Signal(ENCODING_WIDTH)       # of the draft's body
        # A body whose encoding changes: what is left of it, its first entry, and whether there is another.
        changing, of_list = Signal(), Signal()
        source, left, entry = Signal(abi.NODE_BODY_BITS), Signal(range(abi.LIST_HOLES + 1)), Signal(Piece)
        piece, grown, wanted = growth.piece, growth.grown, Signal(ENCODING_WIDTH)   # `wanted`: with the piece
        m.d.comb += [
            places.next_qpn.eq(coming.qpn), places.next_generation.eq(coming.generation),
            places.qpn.eq(run.qpn), places.generation.eq(run.generation), places.slot.eq(slot),
            places.time_ns.eq(self.time_ns), places.node_age_ns.eq(self.node_age_ns),
            entry.offset.eq(source[:abi.OFFSET_BITS]),
            entry.length.eq(Mux(of_list, 1, source[abi.OFFSET_BITS:RUN_BITS])),
            growth.draft.eq(draft), growth.offset.eq(offset), growth.run_length.eq(run.length),
            growth.added.eq(Mux(changing, entry.as_value(), piece.as_value())),
            growth.encoding.eq(wanted),
            write.addr.eq(slot), write.data.eq(draft), read.addr.eq(places.hit_slot), read.en.eq(1),
            self.idle.eq(places.empty & ~held & ~self.i.valid & ~self.o.valid),
        ]

        def load_draft():
            m.d.sync += [draft.eq(read.data), offset.eq(run.psn - read.data.base),
                         encoding.eq(encoding_of(p, read.data.counts))]

        with m.FSM():
            with m.State("IDLE"):  # waits for a run, or for the oldest node to come of age
                with m.If(places.expired):
                    m.d.comb += [read.addr.eq(places.oldest), next_slot.eq(places.oldest)]
                    m.next = "LOAD_OLDEST"
                with m.Elif(held):
                    m.d.comb += coming.eq(run)
                    m.next = "LOOKUP"
                with m.Else():
                    m.d.comb += self.i.ready.eq(1)
                    m.d.sync += run.eq(self.i.payload)
                    with m.If(self.i.valid):
                        m.d.sync += held.eq(1)
                        m.next = "LOOKUP"
            with m.State("LOOKUP"):  # finds the QP's node, or a place for it
                m.d.comb += next_slot.eq(places.hit_slot)
                m.d.sync += only_ends.eq(run.length == 0)
                with m.If(places.hit):
                    m.next = "LOAD"
                with m.Elif(run.length == 0):
                    m.d.sync += held.eq(0)
                    m.d.comb += self.discarded.eq(~run.seal)
                    m.next = "IDLE"
                with m.Elif(places.full):
                    m.d.comb += [read.addr.eq(places.oldest), next_slot.eq(places.oldest)]
                    m.next = "LOAD_OLDEST"
                with m.Else():
                    m.d.comb += [places.take_en.eq(1), next_slot.eq(places.free_slot)]
                    m.next = "OPEN"
            with m.State("OPEN"):  # starts a node at the run
                m.d.comb += places.start_en.eq(1)
                m.d.sync += [draft.eq(0), draft.base.eq(run.psn), offset.eq(0)]
                m.next = "MEASURE"
            with m.State("LOAD"):  # takes the QP's node from memory
                load_draft()
                m.next = "MEASURE"
                with m.If(only_ends):
                    m.next = "SEAL"
                    with m.If(~run.seal):
                        m.d.comb += [self.discarded.eq(1), places.release_en.eq(1)]
                        m.d.sync += held.eq(0)
                        m.next = "IDLE"
            with m.State("LOAD_OLDEST"):  # takes the oldest node from memory to seal it
                load_draft()
                m.next = "SEAL"
            with m.State("MEASURE"):  # how much of the run fits is being found
                m.d.comb += growth.measuring.eq(1)
                m.next = "WEIGH"
            with m.State("WEIGH"):  # the encoding for that is being found
                m.d.sync += wanted.eq(growth.wanted)
                m.next = "GROW"
            with m.State("GROW"):  # adds as much of the run as fits
                is_list = encoding == abi.Encoding.LIST.value
                with m.If(piece.length == 0):
                    m.next = "SEAL"
                with m.Elif((draft.counts.count != 0) & (wanted != encoding)):
                    m.d.sync += [
                        source.eq(draft.body), of_list.eq(is_list),
                        left.eq(Mux(is_list, draft.counts.count, draft.counts.runs)),
                        encoding.eq(wanted), draft.eq(0), draft.base.eq(draft.base), changing.eq(1),
                    ]
                    m.next = "CHANGE"
                with m.Else():
                    m.d.comb += [write.data.eq(grown), write.en.eq(1)]
                    m.d.sync += [draft.eq(grown), encoding.eq(wanted), run.psn.eq(run.psn + piece.length),
                                 offset.eq(offset + piece.length), run.length.eq(run.length - piece.length)]
                    m.next = "MEASURE"
                    with m.If((grown.counts.count == abi.NODE_HOLES_MAX) | ((run.length == piece.length) & run.seal)):
                        m.next = "SEAL"
                    with m.Elif(run.length == piece.length):
                        m.d.comb += self.i.ready.eq(~places.expired)
                        m.d.sync += held.eq(0)
                        m.next = "IDLE"
                        with m.If(self.i.valid & ~places.expired):
                            m.d.sync += [run.eq(self.i.payload), held.eq(1)]
                            m.next = "LOOKUP"
            with m.State("CHANGE"):  # puts the entries of the body into one of another encoding
                m.d.sync += [draft.eq(grown), left.eq(left - 1),
                             source.eq(Mux(of_list, source >> abi.OFFSET_BITS, source >> RUN_BITS))]
                with m.If(left == 1):
                    m.d.sync += changing.eq(0)
                    m.next = "GROW"
            with m.State("SEAL"):  # waits for the report's place
                with m.If(~self.o.valid | self.o.ready):
                    self._report(m, draft, places, encoding)
                    m.d.comb += [places.release_en.eq(1), self.count_nodes_sealed.eq(1)]
                    with m.If((run.length == 0) & (run.qpn == places.owner_qpn)
                              & (run.generation == places.owner_generation)):
                        m.d.sync += held.eq(0)
                    m.next = "IDLE"
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.count_nodes_sealed):
            m.d.sync += self.o.valid.eq(1)
        return m

    def _report(self, m, draft, places, encoding):
        """Load the output with a sealed draft."""
        node, header = Signal(NODE), Signal(REPORT_NODE)
        m.d.comb += [
            node.qpn.eq(places.owner_qpn),
            node.generation.eq(places.owner_generation),
            node.count.eq(draft.counts.count),
            node.encoding.eq(encoding),
            node.base_psn.eq(draft.base),
            node.body.eq(draft.body),
            header.kind.eq(abi.ReportKind.NODE.value),
            header.node.eq(node.as_value()[64:]),
        ]
        m.d.sync += self.o.p.entry.eq(header)
