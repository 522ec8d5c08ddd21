"""Node builder: collects lost PSNs into Adamap nodes, each in the encoding that holds most of them."""

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.counter_ports import count_outputs
from ...part.layouts import NODE, REPORT_NODE, HoleRun, Report
from ..cache.cached import ENCODING_WIDTH
from .open_node import Counts, OpenNode, OpenNodeAddition, OpenNodeEntries, OpenNodeFit, OpenNodeGrowth, encoding_of
from .open_node_cam import OpenNodeCam


class NodeBuilder(wiring.Component):
    """Pool of open nodes, shared by all QPs.

    A node takes holes as long as one encoding can hold them all, so it holds as many as any encoding allows.
    It is sealed when the next hole fits no encoding, at 320 holes, by ``seal``, at the configured age, or, if it is the
    oldest one, when another QP needs its slot.

    A slot holds one body, in the first encoding that still fits: LIST, RUNS, BITMAP. When holes come that only a later
    one can hold, the entries of the body are converted, one per cycle.

    A run takes 5 cycles back to back, plus 3 for every node it seals. A change of the encoding takes
    one cycle plus one for each entry: at most 21 (20 holes of a list), and 11 from runs to a bitmap; that is at
    most twice per node.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(HoleRun))
        In PSN order per QP. Length 0 with ``seal`` only seals, without it discards the QP's node.
    o : Out(stream.Signature(Report))
        Kind NODE. Without ticket: a node does not refer to received packets.
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
        m.submodules.drafts = drafts = Memory(shape=OpenNode, depth=p.builder_slots, init=[])
        read, write = drafts.read_port(domain="comb"), drafts.write_port()
        m.submodules.places = places = OpenNodeCam(p)
        m.submodules.fit = fit = OpenNodeFit(p)
        m.submodules.entries = entries = OpenNodeEntries()
        m.submodules.addition = addition = OpenNodeAddition()
        m.submodules.growth = growth = OpenNodeGrowth()
        run = Signal(HoleRun)
        again = Signal()                # look up `run` again: a node was sealed before it took all of the run
        coming = Signal(HoleRun)        # the run for which LOOKUP may be the next state
        spent = Signal()                # `run` has no holes left, or there is no run
        slot = Signal.like(places.slot)
        draft = Signal(OpenNode)
        offset = Signal(32)                         # of the run in the open node
        encoding = Signal(ENCODING_WIDTH)           # of the open node's body
        # Registered a cycle ahead: the state may be LOAD; it is OPEN, GROW, CHANGE. The grown node is written a cycle
        # later.
        loading, opening, growing, putting, grew = (Signal(name=name) for name in (
            "loading", "opening", "growing", "putting", "grew"))
        waits = Signal()                # no run is being processed
        # Change of the encoding: the number of entries left, and whether the addition decodes an entry, or did, instead
        # of the run.
        changing, left = Signal(), Signal(range(abi.LIST_HOLES + 1))
        decodes_entry, decoded_entry = Signal(name="decodes_entry"), Signal()
        m.d.comb += [
            coming.eq(Mux(again, run.as_value(), self.i.payload.as_value())),
            places.next_qpn.eq(coming.qpn), places.next_generation.eq(coming.generation),
            places.qpn.eq(run.qpn), places.generation.eq(run.generation), places.slot.eq(slot),
            places.time_ns.eq(self.time_ns), places.node_age_ns.eq(self.node_age_ns),
            fit.counts.eq(draft.counts), fit.offset.eq(offset), fit.run_length.eq(run.length),
            entries.body.eq(draft.body), entries.of_list.eq(fit.before.list),
            addition.counts.eq(draft.counts), addition.offset.eq(offset), addition.sums.eq(fit.sums),
            addition.entry_en.eq(decodes_entry), addition.entry_first.eq(~changing),
            addition.entry_offset.eq(entries.offset), addition.entry_end.eq(entries.end),
            addition.entry_merge.eq(entries.merge),
            encoding.eq(encoding_of(p, draft.counts)),
            write.addr.eq(slot), write.data.eq(draft), write.en.eq(grew), read.addr.eq(slot),
            self.idle.eq(places.empty & waits & ~self.i.valid & ~self.o.valid),
        ]
        counts, old = Signal(Counts), draft.counts
        m.d.comb += [
            growth.before.eq(draft.body), growth.added.eq(addition.o), growth.encoding.eq(fit.encoding),
            growth.length.eq(Mux(decoded_entry, 1, fit.length)),
            counts.count.eq(old.count + fit.length), counts.end.eq(offset + fit.length),
            counts.runs.eq(old.runs + (~fit.sums.merge & (old.runs <= abi.RUNS_MAX))),
        ]
        changes, takes = Signal(), Signal()     # `changes`: the encoding; `takes`: the part of the run that fits
        m.d.comb += [
            changes.eq(growing & ~fit.none & fit.changes & ~changing),
            takes.eq(growing & ~fit.none & (~fit.changes | changing)),
        ]
        m.d.sync += [loading.eq(0), opening.eq(0), growing.eq(0), putting.eq(changes), grew.eq(takes),
                     decodes_entry.eq(0), decoded_entry.eq(decodes_entry), self.discarded.eq(0)]
        with m.If(loading):
            m.d.sync += [draft.base.eq(Mux(opening, run.psn, read.data.base)),
                         draft.counts.eq(Mux(opening, 0, read.data.counts.as_value())),
                         offset.eq(Mux(opening, 0, run.psn - read.data.base))]
        with m.If(loading | growing | putting):     # if nothing of the run fits, nothing is added
            m.d.sync += draft.body.eq(Mux(opening | changes, 0, Mux(loading, read.data.body, growth.body)))
        with m.If(takes):
            m.d.sync += [draft.counts.eq(counts), offset.eq(offset + fit.length), changing.eq(0), spent.eq(fit.whole)]
        with m.If(changes):
            m.d.sync += [changing.eq(1), decodes_entry.eq(left != 1)]
        with m.If(growing & ~fit.whole):
            with m.If(takes):
                m.d.sync += [run.psn.eq(run.psn + fit.length), run.length.eq(run.length - fit.length)]
        with m.Elif(takes | waits):
            m.d.sync += run.eq(self.i.payload)

        states = SimpleNamespace(
            run=run, again=again, spent=spent, slot=slot, draft=draft, encoding=encoding, loading=loading,
            opening=opening, growing=growing, putting=putting, waits=waits, left=left, decodes_entry=decodes_entry,
            changes=changes)
        with m.FSM() as fsm:
            m.d.comb += waits.eq(fsm.ongoing("IDLE") & ~again)
            self._find(m, states, places)
            self._grow(m, states, places, fit, entries)
            self._seal(m, states, places)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.count_nodes_sealed):
            m.d.sync += self.o.valid.eq(1)
        return m

    def _find(self, m, states, places):
        """Build the states that find the open node of the run's QP, or allocate a slot, and load it."""
        run, again, spent, slot = states.run, states.again, states.spent, states.slot
        loading, opening = states.loading, states.opening
        with m.State("IDLE"):  # waits for a run, or for the oldest node to expire
            m.d.sync += [loading.eq(1), slot.eq(places.oldest)]
            with m.If(~again):
                m.d.sync += spent.eq(1)
            with m.If(places.expired):
                m.next = "LOAD_OLDEST"
            with m.Elif(again):
                m.next = "LOOKUP"
            with m.Else():
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.next = "LOOKUP"
        with m.State("LOOKUP"):  # finds the QP's node, or a slot for it
            m.d.sync += [loading.eq(1), spent.eq(run.length == 0), again.eq(0),
                         slot.eq(Mux(places.hit, places.hit_slot, Mux(places.full, places.oldest,
                                                                      places.free_slot)))]
            with m.If(places.hit):
                m.next = "LOAD"
            with m.Elif(run.length == 0):
                m.d.sync += self.discarded.eq(~run.seal)
                m.next = "IDLE"
            with m.Elif(places.full):
                m.next = "LOAD_OLDEST"
            with m.Else():
                m.d.sync += opening.eq(1)
                m.next = "OPEN"
        with m.State("OPEN"):  # starts a node at the run
            m.d.comb += places.start_en.eq(1)
            m.next = "MEASURE"
        with m.State("LOAD"):  # loads the QP's node from memory
            m.next = "MEASURE"
            with m.If(spent):
                m.next = "SEAL"
                with m.If(~run.seal):
                    m.d.sync += self.discarded.eq(1)
                    m.d.comb += places.release_en.eq(1)
                    m.next = "IDLE"
        with m.State("LOAD_OLDEST"):  # loads the oldest node from memory to seal it
            m.next = "SEAL"

    def _grow(self, m, states, places, fit, entries):
        """Build the states that add as much of the run to the node as fits."""
        run, draft, left, growing, putting = states.run, states.draft, states.left, states.growing, states.putting
        decodes_entry, changes = states.decodes_entry, states.changes
        with m.State("MEASURE"):  # waits for the sums of run and open node
            m.d.comb += entries.body_en.eq(1)
            m.next = "WEIGH"
        with m.State("WEIGH"):  # waits for the length that fits and its encoding
            m.d.sync += [left.eq(Mux(fit.before.list, draft.counts.count, draft.counts.runs)), decodes_entry.eq(1),
                         growing.eq(1)]
            m.next = "GROW"
        with m.State("GROW"):  # adds as much of the run as fits
            m.next = "MEASURE"
            with m.If(fit.none):
                m.next = "SEAL"
            with m.Elif(changes):
                m.next = "CHANGE"
            with m.Elif(fit.fills | (fit.whole & run.seal)):
                m.next = "SEAL"
            with m.Elif(fit.whole):
                m.d.comb += self.i.ready.eq(~places.expired)
                m.next = "IDLE"
                with m.If(self.i.valid & ~places.expired):
                    m.next = "LOOKUP"
        with m.State("CHANGE"):  # converts the entries of the body to another encoding
            m.d.sync += [left.eq(left - 1), decodes_entry.eq(left != 2), putting.eq(left != 1)]
            with m.If(left == 1):
                m.d.sync += growing.eq(1)
                m.next = "GROW"

    def _seal(self, m, states, places):
        """Build the state that reports the node."""
        draft, encoding, again, spent = states.draft, states.encoding, states.again, states.spent
        with m.State("SEAL"):  # waits for space in the output register
            with m.If(~self.o.valid | self.o.ready):
                self._report(m, draft, places, encoding)
                m.d.comb += [places.release_en.eq(1), self.count_nodes_sealed.eq(1)]
                m.d.sync += again.eq(~spent)    # the rest of the run begins another node
                m.next = "IDLE"

    def _report(self, m, draft, places, encoding):
        """Load the output register with a sealed node."""
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
